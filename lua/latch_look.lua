-- Whether a latch is open.
-- KEYS[1] record (integer: how often it is to be counted down yet)
-- Reply   1 open | {'BUSY', ttl} it is not; ttl in ms, -1 where the record has no expiry
local count = redis.call('get', KEYS[1])
if count and not string.find(count, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no count')
end
if not count or tonumber(count) <= 0 then
    return 1
end
return {'BUSY', redis.call('pttl', KEYS[1])}
