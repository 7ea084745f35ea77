-- luarocks install redis-lua, or Debian: lua-redis
local redis = require 'redis'

-- The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
local function items(...)
  local blob = ''
  for _, item in ipairs({...}) do
    local length = #item
    for _ = 1, 4 do
      blob = blob .. string.char(length % 256)
      length = math.floor(length / 256)
    end
    blob = blob .. item
  end
  return blob
end

for _, name in ipairs({ 'RESERVE', 'ADD', 'BULKADD', 'BULKTEST', 'STATS' }) do
  redis.commands['bf_' .. name:lower()] = redis.command('BF.' .. name)
end

local client = redis.connect('127.0.0.1', arg[1])
client:bf_reserve('users', 0.001, 1000)
local new = client:bf_add('users', 'ada')
local more = client:bf_bulkadd('users', 'PREFIXED', items('ada', 'grace'))
local bits = client:bf_bulktest('users', 'PREFIXED', items('ada', 'barbara'))
local stats, count = client:bf_stats('users') -- alternating names and values
for index = 1, #stats, 2 do
  if stats[index] == 'Number of items inserted' then count = stats[index + 1] end
end
print(string.format('%d %d %02x %d', new, more, bits:byte(), count))
