-- Declares dead the holders whose lease is over, and those that are named.
-- ARGV: seconds our keys live, holders. Returns {tag, score, holder, ...} of what the dead still have.
local time = text(now())
local gone = redis.call('ZRANGEBYSCORE', leases, '-inf', time)
redis.call('ZREMRANGEBYSCORE', workers, '-inf', time)
for i = 2, #ARGV do
  gone[#gone + 1] = ARGV[i]
end
for _, holder in ipairs(gone) do
  redis.call('ZREM', leases, holder)
  redis.call('SADD', dead, holder)
end
local rest = {} -- how much each of the dead has
for _, holder in ipairs(redis.call('SMEMBERS', dead)) do
  rest[holder] = 0
end
if not next(rest) then
  return {}
end
expire(ARGV[1])
local found = {}
local entries = redis.call('HGETALL', held)
for i = 1, #entries, 2 do
  local tag = entries[i]
  local score, holder = parse(entries[i + 1])
  if rest[holder] then
    if still_has(tag, score) then
      rest[holder] = rest[holder] + 1
      found[#found + 1], found[#found + 2], found[#found + 3] = tag, score, holder
    else
      redis.call('HDEL', held, tag)
    end
  end
end
for holder, count in pairs(rest) do
  if count == 0 then
    redis.call('SREM', dead, holder)
  end
end
return found
