-- Refreshes the scores of a client's waiters, so that no other client takes them for gone. It adds nobody to the queue, so
-- a late delivery is harmless.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] queue (list of owners, the first at its head)
-- KEYS[3] timeouts (zset: owner -> when it counts as gone if it is first by then, in ms since the epoch)
-- ARGV[1] ms for which a waiter counts beyond the one before it
-- ARGV[2] and on: the owners
-- Reply   1
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lives = {}
for i = 2, #ARGV do
    lives[ARGV[i]] = true
end
local scores = {}
local all = redis.call('zrange', KEYS[3], 0, -1, 'withscores')
for i = 1, #all, 2 do
    scores[all[i]] = tonumber(all[i + 1])
end
-- When the lock, or the one before, counts as gone.
local before = now + math.max(redis.call('pttl', KEYS[1]), 0)
for _, owner in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
    local due = scores[owner] or 0
    if lives[owner] and due < before + ARGV[1] then
        due = before + ARGV[1]
        redis.call('zadd', KEYS[3], string.format('%.0f', due), owner)
    end
    before = math.max(before, due)
end
return 1
