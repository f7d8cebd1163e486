-- Puts one delivery back on its queues, once, whoever else tries to at the same time.
-- KEYS: the lists. ARGV: holder, tag, and for each list LPUSH or RPUSH and the payload.
-- Returns 1 when this call did it.
local holder, tag = ARGV[1], ARGV[2]
if owner(tag) ~= holder then
  return 0
end
redis.call('HDEL', held, tag)
-- Without a queue to go to it stays unacked, for the visibility timeout.
if #KEYS < FIRST_LIST or redis.call('HEXISTS', unacked, tag) == 0 then
  return 0
end
for i = FIRST_LIST, #KEYS do
  local at = 3 + 2 * (i - FIRST_LIST)
  redis.call(ARGV[at], KEYS[i], ARGV[at + 1])
end
redis.call('HDEL', unacked, tag)
redis.call('ZREM', index, tag)
return 1
