-- Takes all free permits. The record never expires afterwards.
--
-- KEYS[1]  record (integer: free permits)
-- Reply    n  the number of permits that were free
--
-- This request must not be repeated: the reply would differ, and permits that were released in the meantime would be
-- taken, too.
local free = redis.call('get', KEYS[1])
if not free then
    return 0
end
if not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
redis.call('set', KEYS[1], '0')
return tonumber(free)
