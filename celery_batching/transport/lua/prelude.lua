-- Stands before every script. KEYS 1 to 6 are the same in all of them; the lists of the queues follow.
local unacked, index, held, leases, dead, workers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local FIRST_LIST = 7

-- Seconds of the server's clock, the only one that all holders share.
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function text(seconds)
  return string.format('%.6f', seconds)
end

-- `held` says of a tag who took it, and which score it got in the index on that occasion.
local function parse(value)
  return string.match(value, '^(%S+) (.*)$')
end

-- A stock worker that restored the message and took it since gave it another score, or none.
local function still_has(tag, score)
  local current = redis.call('ZSCORE', index, tag)
  return current and tonumber(current) == tonumber(score)
end

-- One call for many words instead of one for each: those cost more than what they do. Lua cannot hand
-- over more than some thousands at once. Returns the sum of the replies.
local function in_bulk(command, key, words)
  local sum = 0
  for first = 1, #words, 1000 do
    sum = sum + redis.call(command, key, unpack(words, first, math.min(first + 999, #words)))
  end
  return sum
end

local function owner(tag)
  local value = redis.call('HGET', held, tag)
  if not value then
    return nil
  end
  local score, holder = parse(value)
  return still_has(tag, score) and holder or nil
end

local function expire(seconds)
  redis.call('EXPIRE', held, seconds)
  redis.call('EXPIRE', leases, seconds)
  redis.call('EXPIRE', dead, seconds)
  redis.call('EXPIRE', workers, seconds)
end
