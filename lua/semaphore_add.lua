-- Adds or removes permits. The number of free permits can become negative. The record never expires afterwards.
--
-- KEYS[1]  record (integer: free permits)
-- ARGV[1]  number of permits, below 0 to remove them
-- ARGV[2]  channel
-- ARGV[3]  '1' if permits have ids: the message is the number added, and is sent only if it is above 0.
--          Otherwise the message is the number of free permits
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n  the number of free permits
--
-- This request must not be repeated: it would take effect twice.
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
if ARGV[3] ~= '1' then
    redis.call(ARGV[4] or 'publish', ARGV[2], string.format('%.0f', (free or 0) + ARGV[1]))
elseif tonumber(ARGV[1]) > 0 then
    redis.call(ARGV[4] or 'publish', ARGV[2], ARGV[1])
end
free = redis.call('incrby', KEYS[1], ARGV[1])
redis.call('persist', KEYS[1])
return free
