-- Reports the numbers of permits, and the lease of one permit. Permits whose lease has ended become free first.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- ARGV[1]  channel
-- ARGV[2]  id of the permit, 16 bytes, or '' for none
-- ARGV[3]  new lease of the permit in ms, 0 to keep its lease
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {free, taken, ms}  the numbers of permits; the lease ends in ms, -1 if it never ends, -2 if the permit is
--                             not taken
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
        redis.call(ARGV[4] or 'publish', ARGV[1], free)
    end
end
local ends = tonumber(redis.call('zscore', KEYS[2], ARGV[2]) or 0)
if ends > 0 and ARGV[3] ~= '0' then
    -- 1 is added because 'now' was rounded down.
    ends = now + 1 + ARGV[3]
    redis.call('zadd', KEYS[2], string.format('%.0f', ends), ARGV[2])
end
-- 922337203685477 means no expiry.
local left = ends == 0 and -2 or ends < 922337203685477 and ends - now or -1
return {tonumber(free or 0), redis.call('zcard', KEYS[2]), left}
