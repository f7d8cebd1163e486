-- Makes a lease last from now on, unless its holder was declared dead.
-- ARGV: holder, seconds, seconds our keys live, 1 for a new holder. Returns 1 when it holds.
if ARGV[4] ~= '1' and not redis.call('ZSCORE', leases, ARGV[1]) then
  return 0
end
redis.call('ZADD', leases, text(now() + tonumber(ARGV[2])), ARGV[1])
expire(ARGV[3])
return 1
