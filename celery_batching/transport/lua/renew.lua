-- Makes a lease last from now on, unless its holder was declared dead.
-- A worker takes a new lease with each connection; that none of them ended otherwise than by its own will
-- shows in `workers`, which its pool processes ask.
-- ARGV: holder, worker, seconds, seconds our keys live, and 'renew', 'continue' (a new lease of a worker
-- that had one before) or 'begin'. Returns 0 when what it goes on from is over.
local holder, worker, how = ARGV[1], ARGV[2], ARGV[5]
if how == 'renew' and not redis.call('ZSCORE', leases, holder) then
  return 0
end
if how == 'continue' and not redis.call('ZSCORE', workers, worker) then
  return 0
end
local ending = text(now() + tonumber(ARGV[3]))
redis.call('ZREM', leases, holder) -- a full server allows this, and after one write all others of a script
redis.call('ZADD', leases, ending, holder)
redis.call('ZADD', workers, ending, worker)
expire(ARGV[4])
return 1
