-- Takes permits with ids and leases, if enough of them are free. Permits whose lease has ended count as free.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- KEYS[3]  mark (integer: number of this client's last numbered request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  ms for which the mark is kept
-- ARGV[3]  lease in ms, 0 forever
-- ARGV[4]  channel
-- ARGV[5]  permit ids, 16 bytes each
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1              acquired
--          {'BUSY', ms}   too few permits are free; the next lease ends in ms, -1 if none ends
--          {'STALE', -1}  a request with a higher number has taken effect
--          {'STALE', 0}   this request has taken effect before, and a lease has ended
--
-- The acquires of a client are numbered. None takes effect twice, or after a request with a higher number. A
-- repeat restarts the leases. Times are the server's.
local done, number = tonumber(redis.call('get', KEYS[3]) or 0), tonumber(ARGV[1])
if done > number then
    return {'STALE', -1}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- 922337203685477 (more than ten thousand years) means no expiry. 1 is added because 'now' was rounded down.
local score = ARGV[3] == '0' and '922337203685477' or string.format('%.0f', now + 1 + ARGV[3])
if done == number then
    for at = 1, #ARGV[5], 16 do
        local ends = redis.call('zscore', KEYS[2], string.sub(ARGV[5], at, at + 15))
        if tonumber(ends or 0) <= now then
            return {'STALE', 0}
        end
    end
    for at = 1, #ARGV[5], 16 do
        local id = string.sub(ARGV[5], at, at + 15)
        if tonumber(redis.call('zscore', KEYS[2], id)) < tonumber(score) then
            redis.call('zadd', KEYS[2], score, id)
        end
    end
    return 1
end
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
local permits = #ARGV[5] / 16
local expired = redis.call('zrangebyscore', KEYS[2], 0, now, 'limit', 0, permits)
if #expired > 0 then
    redis.call('zrem', KEYS[2], unpack(expired))
    free = redis.call('incrby', KEYS[1], #expired)
    if free > 0 then
        redis.call(ARGV[6] or 'publish', ARGV[4], free)
    end
end
if not free or tonumber(free) < permits then
    local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
    local ends = first[2] and tonumber(first[2]) < 922337203685477 and math.max(first[2] - now, 0)
    return {'BUSY', ends or -1}
end
redis.call('set', KEYS[3], ARGV[1], 'px', ARGV[2])
local left = redis.pcall('decrby', KEYS[1], permits)
if type(left) == 'table' then
    -- Redis cannot read the value as an integer, or the user may not change it. A refused request has no effect, so it
    -- restores the mark.
    redis.call('set', KEYS[3], done, 'px', ARGV[2])
    return left
end
for at = 1, #ARGV[5], 16 do
    redis.call('zadd', KEYS[2], score, string.sub(ARGV[5], at, at + 15))
end
local ttl = redis.call('pttl', KEYS[1])
if ttl > 0 then
    redis.call('pexpire', KEYS[2], ttl)
end
return 1
