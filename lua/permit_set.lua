-- Changes the number of all permits, free and taken. Creates the semaphore if none exists. The number of free permits
-- can become negative.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- ARGV[1]  number of permits
-- ARGV[2]  channel
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n  the number of free permits
--
-- Permits whose lease has ended still count as taken; without a record, none does. This request must not be repeated: it
-- could undo a later change.
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
local taken = free and redis.call('zcard', KEYS[2]) or 0
local missing = ARGV[1] - taken - (free or 0)
if free and missing == 0 then
    return tonumber(free)
end
redis.call(ARGV[3] or 'publish', ARGV[2], ARGV[1])
return redis.call('incrby', KEYS[1], string.format('%.0f', missing))
