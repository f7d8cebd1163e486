-- Gives all that a holder has a new score, so that it does not pass the visibility timeout.
-- ARGV: holder. Returns how many there are.
local time, count = now(), 0
local entries = redis.call('HGETALL', held)
for i = 1, #entries, 2 do
  local tag = entries[i]
  local score, holder = parse(entries[i + 1])
  if holder == ARGV[1] and still_has(tag, score) then
    count = count + 1
    local fresh = text(time)
    redis.call('HDEL', held, tag) -- first, as a full server allows this, and after one write all others
    redis.call('ZADD', index, fresh, tag)
    redis.call('HSET', held, tag, fresh .. ' ' .. holder)
  end
end
return count
