# cpan Redis, or Debian: libredis-perl
use strict;
use warnings;
use Redis;

# The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
sub items { join '', map { pack('V', length $_) . $_ } @_ }

my $client = Redis->new(server => "127.0.0.1:$ARGV[0]");
# The name of a method may contain a dot if it is in a string.
sub call { my ($client, $command, @arguments) = @_; $client->$command(@arguments) }
call($client, 'BF.RESERVE', 'users', 0.001, 1000);
my $new = call($client, 'BF.ADD', 'users', 'ada');
my $more = call($client, 'BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace'));
my $bits = call($client, 'BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara'));
my %stats = @{ call($client, 'BF.STATS', 'users') };    # alternating names and values
print join(' ', $new, $more, unpack('H*', $bits), $stats{'Number of items inserted'}), "\n";
