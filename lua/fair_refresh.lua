-- Refreshes the scores of a client's waiters, so that no other client removes them.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  allowance in ms: how long a head may ignore a free lock before the head is removed
-- ARGV[2]  owner id of the first waiter; the owner ids of further waiters follow
-- Reply    1  done
--
-- It adds no waiter to the queue, so a late delivery is harmless.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting = {}
for i = 2, #ARGV do
    waiting[ARGV[i]] = true
end
local scores = {}
local all = redis.call('zrange', KEYS[3], 0, -1, 'withscores')
for i = 1, #all, 2 do
    scores[all[i]] = tonumber(all[i + 1])
end
-- The time at which the holder's lease ends, or the predecessor is removed.
local before = now + math.max(redis.call('pttl', KEYS[1]), 0)
for _, owner in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
    local due = scores[owner] or 0
    if waiting[owner] and due < before + ARGV[1] then
        due = before + ARGV[1]
        -- ZREM comes first: a server out of memory accepts it, and after it the other writes of the script.
        redis.call('zrem', KEYS[3], '')
        redis.call('zadd', KEYS[3], string.format('%.0f', due), owner)
    end
    before = math.max(before, due)
end
return 1
