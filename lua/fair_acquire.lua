-- The first hold of an owner (expected count 0) of a lock whose waiters stand in a queue. The first of them gets the
-- lock when it is free. Times are the server's.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] queue (list of owners, the first at its head)
-- KEYS[3] timeouts (zset: owner -> when it counts as gone if it is first by then, in ms since the epoch)
-- ARGV[1] owner
-- ARGV[2] lease in ms
-- ARGV[3] ms for which a waiter counts beyond the one before it
-- ARGV[4] '0' it does not wait, '1' it comes to wait, '2' it was put into the queue before
-- ARGV[5] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   1 taken | {'BUSY', ttl, other} that owner holds, or comes first; ttl in ms until that may change by itself, -1
--         where the record has no expiry | {'STALE', ttl} the owner text is in use by somebody unknown
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local allowance = tonumber(ARGV[3])

-- The list alone decides who is in the queue: an eviction may remove the list and leave the timeouts.
local score = ARGV[4] ~= '0' and tonumber(redis.call('zscore', KEYS[3], ARGV[1]))
local stands = score and redis.call('lindex', KEYS[2], 0) == ARGV[1]
if score and not stands then
    for _, owner in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
        stands = stands or owner == ARGV[1]
    end
end
if ARGV[4] == '2' and not stands and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    -- It was first and taken for gone. Put it back before the head is computed, or the entry behind it would hold it up.
    redis.call('lrem', KEYS[2], 0, ARGV[1])
    redis.call('lpush', KEYS[2], ARGV[1])
    stands = true
end

local head, due
while true do
    head = redis.call('lindex', KEYS[2], 0)
    due = head and tonumber(redis.call('zscore', KEYS[3], head))
    if head and not due then
        -- Whoever put it there says nothing of when it is gone.
        due = now + allowance
        redis.call('zadd', KEYS[3], string.format('%.0f', due), head)
    end
    if not head or head == ARGV[1] or due > now then
        break
    end
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
end

local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 and (not head or head == ARGV[1]) then
    redis.call('hset', KEYS[1], ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would be taken for ever.
        redis.call('del', KEYS[1])
        return expires
    end
    if head then
        redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], head)
        -- All stand one place further on. But a waiter that lives is not to count as gone before it was ever first.
        local others = redis.call('zrange', KEYS[3], 0, -1, 'withscores')
        for i = 1, #others, 2 do
            local score = math.max(others[i + 1] - allowance, math.min(others[i + 1], now + allowance))
            redis.call('zadd', KEYS[3], string.format('%.0f', score), others[i])
        end
    elseif score then
        redis.call('zrem', KEYS[3], ARGV[1])
    end
    return 1
end

local held = redis.call('hget', KEYS[1], ARGV[1])
if held and held == '1' and ARGV[5] == '1' then
    -- It may come late, after a renewal or a further level made the hold longer.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
if held then
    return {'STALE', ttl}
end

if ARGV[4] ~= '0' then
    -- When the lock, or the one before, counts as gone.
    local before = now + math.max(ttl, 0)
    if not stands then
        -- Of all, not only of the last: clients may reckon with unlike allowances.
        local last = redis.call('zrange', KEYS[3], -1, -1, 'withscores')
        before = last[2] and math.max(tonumber(last[2]), before) or before
        redis.call('lrem', KEYS[2], 0, ARGV[1])
        redis.call('rpush', KEYS[2], ARGV[1])
    elseif head ~= ARGV[1] then
        before = due
    end
    if not score or score < before + allowance then
        redis.call('zadd', KEYS[3], string.format('%.0f', before + allowance), ARGV[1])
    end
end
if ttl == -2 then
    return {'BUSY', due - now, head}
end
-- A part of it: somebody may have put any number of fields there.
return {'BUSY', ttl, redis.call('hscan', KEYS[1], '0', 'count', '10')[2][1]}
