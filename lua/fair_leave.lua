-- Removes from the queue an owner that no longer waits. If the lock is free, removes the waiters at the head whose
-- timeout has passed, and notifies the next one.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  owner id
-- ARGV[2]  allowance in ms: how long a head may ignore a free lock before the head is removed
-- ARGV[3]  channel prefix; the channel of a waiter is prefix:owner id
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  removed
--          0  the owner was not in the queue
local score = redis.call('zscore', KEYS[3], ARGV[1])
if redis.call('lrem', KEYS[2], 0, ARGV[1]) == 0 and not score then
    return 0
end
redis.call('zrem', KEYS[3], ARGV[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if score then
    -- The waiters behind this owner move up by one place.
    local floor = now + ARGV[2]
    local behind = redis.call('zrangebyscore', KEYS[3], score, '+inf', 'withscores')
    for i = 1, #behind, 2 do
        local lower = math.max(behind[i + 1] - ARGV[2], math.min(behind[i + 1], floor))
        redis.call('zadd', KEYS[3], string.format('%.0f', lower), behind[i])
    end
end
if redis.call('exists', KEYS[1]) == 1 then
    return 1
end
local head = redis.call('lindex', KEYS[2], 0)
local due = head and tonumber(redis.call('zscore', KEYS[3], head))
while due and due <= now do
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
    head = redis.call('lindex', KEYS[2], 0)
    due = head and tonumber(redis.call('zscore', KEYS[3], head))
end
if head then
    redis.call(ARGV[4] or 'publish', ARGV[3] .. ':' .. head, '0')
end
return 1
