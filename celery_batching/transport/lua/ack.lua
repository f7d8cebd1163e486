-- Removes deliveries that their holder is done with; one that has another holder by now stays.
-- ARGV: holder, tags. Returns how many there were.
local done = {}
for i = 2, #ARGV do
  if owner(ARGV[i]) == ARGV[1] then
    done[#done + 1] = ARGV[i]
  end
end
in_bulk('HDEL', unacked, done)
in_bulk('ZREM', index, done)
return in_bulk('HDEL', held, done)
