-- How many permits are free; those whose lease has ended become so. Times are the server's.
-- KEYS[1] record (integer: permits that are free)
-- KEYS[2] timeouts (zset: id of a permit that is taken -> end of its lease in ms since the epoch)
-- ARGV[1] channel
-- ARGV[2] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   permits that are free
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expired = redis.call('zrangebyscore', KEYS[2], 0, now)
if #expired > 0 then
    -- First: a server out of memory lets it pass, and then what follows.
    redis.call('zremrangebyscore', KEYS[2], 0, now)
    free = redis.call('incrby', KEYS[1], #expired)
    if free > 0 then
        redis.call(ARGV[2] or 'publish', ARGV[1], free)
    end
end
return tonumber(free or 0)
