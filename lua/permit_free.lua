-- Returns the number of free permits. Permits whose lease has ended become free first.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- ARGV[1]  channel
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n  the number of free permits
--
-- Times are the server's.
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expired = redis.call('zrangebyscore', KEYS[2], 0, now)
if #expired > 0 then
    -- ZREMRANGEBYSCORE comes first: a server out of memory accepts it, and after it the other writes of the script.
    redis.call('zremrangebyscore', KEYS[2], 0, now)
    free = redis.call('incrby', KEYS[1], #expired)
    if free > 0 then
        redis.call(ARGV[2] or 'publish', ARGV[1], free)
    end
end
return tonumber(free or 0)
