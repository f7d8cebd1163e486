-- Removes deliveries that their holder is done with; one that has another holder by now stays.
-- ARGV: holder, tags. Returns how many there were.
local count = 0
for i = 2, #ARGV do
  local tag = ARGV[i]
  if owner(tag) == ARGV[1] then
    redis.call('HDEL', held, tag)
    redis.call('HDEL', unacked, tag)
    redis.call('ZREM', index, tag)
    count = count + 1
  end
end
return count
