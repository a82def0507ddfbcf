-- Adds permits, if the semaphore exists.
--
-- KEYS[1]  record (integer: free permits)
-- ARGV[1]  number of permits
-- ARGV[2]  channel
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  released
--          0  the semaphore does not exist
--
-- This request must not be repeated: it would take effect twice.
local free = redis.call('get', KEYS[1])
if not free then
    return 0
end
if not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
redis.call(ARGV[3] or 'publish', ARGV[2], string.format('%.0f', free + ARGV[1]))
redis.call('incrby', KEYS[1], ARGV[1])
return 1
