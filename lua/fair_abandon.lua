-- Takes an owner that waits no more out of the queue. If the lock is free, whoever is first by then is told.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] queue (list of owners, the first at its head)
-- KEYS[3] timeouts (zset: owner -> when it counts as gone if it is first by then, in ms since the epoch)
-- ARGV[1] owner
-- ARGV[2] ms for which it counted beyond the one before it
-- ARGV[3] channel of the first waiter, without that owner
-- ARGV[4] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 it has left | 0 it was not there
local score = redis.call('zscore', KEYS[3], ARGV[1])
if redis.call('lrem', KEYS[2], 0, ARGV[1]) == 0 and not score then
    return 0
end
redis.call('zrem', KEYS[3], ARGV[1])
if score then
    -- Those behind it stand one place further on.
    local time = redis.call('time')
    local floor = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
    local behind = redis.call('zrangebyscore', KEYS[3], score, '+inf', 'withscores')
    for i = 1, #behind, 2 do
        local lower = math.max(behind[i + 1] - ARGV[2], math.min(behind[i + 1], floor))
        redis.call('zadd', KEYS[3], string.format('%.0f', lower), behind[i])
    end
end
local head = redis.call('lindex', KEYS[2], 0)
if head and redis.call('exists', KEYS[1]) == 0 then
    redis.call(ARGV[4] or 'publish', ARGV[3] .. ':' .. head, '0')
end
return 1
