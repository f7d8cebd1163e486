-- Takes messages off the lists and records each as unacked and as held, in one step.
-- KEYS: the lists of the highest priority, then those of the next one, and so on.
-- ARGV: holder, most messages, most bytes, lists of each priority, 1 to take turns, seconds our keys live.
-- Returns {0} when the holder has no lease any more, else {1, {list, tag, list, tag, ...} in JSON, {raw, ...},
-- {list, no message, ...}}: each element that the client has to read by itself costs it time.
local holder, room, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local width, in_turns, seconds = tonumber(ARGV[4]), ARGV[5] == '1', ARGV[6]
if not redis.call('ZSCORE', leases, holder) then
  return {0}
end

local time = now()
local about, taken, junk = {}, {}, {}
local unacked_words, index_words, held_words = {}, {}, {}

-- cjson refuses a few texts that Python's json reads (a lone surrogate); a quote inside a JSON string is
-- always behind a backslash, so these patterns find members only.
local function member(raw, name)
  return string.match(raw, '"' .. name .. '":%s*"([^"\\]*)"')
end

-- The member of that name where there is only one. To look for the name first is ten times as fast.
local function only_member(raw, name)
  local quoted = '"' .. name .. '":'
  local first, last = string.find(raw, quoted, 1, true)
  if first and not string.find(raw, quoted, last, true) then
    return string.match(raw, '^%s*"([^"\\]*)"', last + 1)
  end
end

local function address(raw)
  local tag, exchange, routing_key =
    only_member(raw, 'delivery_tag'), only_member(raw, 'exchange'), only_member(raw, 'routing_key')
  if tag and exchange and routing_key then
    return tag, exchange, routing_key -- without a look at all the rest
  end
  local ok, message = pcall(cjson.decode, raw)
  if not ok then
    return member(raw, 'delivery_tag'), member(raw, 'exchange'), member(raw, 'routing_key')
  end
  local properties = type(message) == 'table' and message.properties
  if type(properties) ~= 'table' then
    return nil
  end
  local tag, info = properties.delivery_tag, properties.delivery_info
  if type(tag) == 'number' then
    tag = string.format('%.0f', tag)
  end
  if type(info) ~= 'table' then
    info = {}
  end
  return type(tag) == 'string' and tag, info.exchange, info.routing_key
end

local texts = {} -- nearly all messages have the same names in them
local function as_json(name)
  name = type(name) == 'string' and name or ''
  texts[name] = texts[name] or cjson.encode(name)
  return texts[name]
end

local SEQUENCES = { -- those of UTF-8 for what is not ASCII, as strict as Python takes them
  '[\194-\223][\128-\191]',
  '\224[\160-\191][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]',
  '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]',
}

-- A tag that is no text could never be acknowledged.
local function is_text(tag)
  local rest = tag
  for i = 1, string.find(tag, '[\128-\255]') and #SEQUENCES or 0 do
    rest = string.gsub(rest, SEQUENCES[i], ' ')
  end
  return not string.find(rest, '[\128-\255]')
end

-- The raw text goes in as it came: cjson would turn an empty list into an empty object.
local function record(list, raw)
  local tag, exchange, routing_key = address(raw)
  if not tag or tag == '' or not is_text(tag) then
    junk[#junk + 1] = list - FIRST_LIST
    junk[#junk + 1] = raw
    return
  end
  time = time + 0.000001 -- so that the scores keep the order
  local score = text(time)
  local at = #held_words
  unacked_words[at + 1] = tag
  unacked_words[at + 2] = '[' .. raw .. ', ' .. as_json(exchange) .. ', ' .. as_json(routing_key) .. ']'
  index_words[at + 1], index_words[at + 2] = score, tag
  held_words[at + 1], held_words[at + 2] = tag, score .. ' ' .. holder
  about[#about + 1] = list - FIRST_LIST
  about[#about + 1] = tag
  taken[#taken + 1] = raw
end

for first = FIRST_LIST, #KEYS, width do
  local open, turn = {}, 1
  for list = first, first + width - 1 do
    open[#open + 1] = list
  end
  while open[1] and room > 0 and bytes > 0 do
    if turn > #open then
      turn = 1
    end
    local raw = redis.pcall('RPOP', KEYS[open[turn]])
    if type(raw) == 'table' then -- an error: the key is no list
      if #taken + #junk == 0 then
        return raw
      end
      raw = false
    end
    if raw then
      record(open[turn], raw)
      room, bytes = room - 1, bytes - #raw
      if in_turns then
        turn = turn + 1
      end
    else
      table.remove(open, turn)
    end
  end
end
if #taken > 0 then
  in_bulk('HSET', unacked, unacked_words)
  in_bulk('ZADD', index, index_words)
  in_bulk('HSET', held, held_words)
  redis.call('EXPIRE', held, seconds)
end
return {1, cjson.encode(about), taken, junk}
