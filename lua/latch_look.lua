-- Checks whether a latch is open.
--
-- KEYS[1]  record (integer: remaining count)
-- Reply    1              open
--          {'BUSY', ttl}  closed
--          ttl: ms that the record has left, -1 if it never expires
local count = redis.call('get', KEYS[1])
if count and not string.find(count, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a count')
end
if not count or tonumber(count) <= 0 then
    return 1
end
return {'BUSY', redis.call('pttl', KEYS[1])}
