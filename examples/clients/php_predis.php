<?php // composer require predis/predis, or Debian: php-nrk-predis
require 'Predis/autoload.php';

// The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
function items(string ...$items): string {
    return implode('', array_map(fn ($item) => pack('V', strlen($item)) . $item, $items));
}

$client = new Predis\Client(['port' => (int) $argv[1]]);
$client->executeRaw(['BF.RESERVE', 'users', 0.001, 1000]);
$new = $client->executeRaw(['BF.ADD', 'users', 'ada']);
$more = $client->executeRaw(['BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace')]);
$bits = $client->executeRaw(['BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara')]);
$stats = $client->executeRaw(['BF.STATS', 'users']); // alternating names and values
$count = $stats[array_search('Number of items inserted', $stats) + 1];
echo "$new $more ", bin2hex($bits), " $count\n";
