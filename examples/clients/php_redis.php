<?php // Debian: php-redis

// The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
function items(string ...$items): string {
    return implode('', array_map(fn ($item) => pack('V', strlen($item)) . $item, $items));
}

$client = new Redis();
$client->connect('127.0.0.1', (int) $argv[1]);
$client->setOption(Redis::OPT_REPLY_LITERAL, true); // else names of fields, which are status replies, are just true
$client->rawCommand('BF.RESERVE', 'users', 0.001, 1000);
$new = $client->rawCommand('BF.ADD', 'users', 'ada');
$more = $client->rawCommand('BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace'));
$bits = $client->rawCommand('BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara'));
$stats = $client->rawCommand('BF.STATS', 'users'); // alternating names and values
$count = $stats[array_search('Number of items inserted', $stats, true) + 1];
echo "$new $more ", bin2hex($bits), " $count\n";
