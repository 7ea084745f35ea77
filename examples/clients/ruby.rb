# gem install redis, or Debian: ruby-redis
require 'redis'

# The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
def items(*texts)
  texts.map { |item| [item.bytesize].pack('V') + item.b }.join
end

client = Redis.new(port: ARGV[0].to_i)
client.call('BF.RESERVE', 'users', 0.001, 1000)
new = client.call('BF.ADD', 'users', 'ada')
more = client.call('BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace'))
bits = client.call('BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara'))
stats = Hash[*client.call('BF.STATS', 'users')] # alternating names and values
puts "#{new} #{more} #{bits.unpack1('H*')} #{stats['Number of items inserted']}"
