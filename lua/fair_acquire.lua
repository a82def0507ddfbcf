-- Acquires the first hold of an owner of a fair lock. A free lock goes to the head of the queue.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  owner id
-- ARGV[2]  lease in ms
-- ARGV[3]  allowance in ms: how long a head may ignore a free lock before the head is removed
-- ARGV[4]  '0' for a single attempt, '1' for a new waiter, '2' for a waiter that was queued before
-- ARGV[5]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    1                     acquired
--          {'BUSY', ttl, other}  `other` holds the lock, or is the head of the queue
--          {'STALE', ttl}        the record names this owner id already, and not by this request
--          ttl: ms until the lease ends, or, if the lock is free, until the head is removed;
--          -1 if the record never expires
--
-- Times are the server's.
local allowance = tonumber(ARGV[3])

-- An owner is queued only if it is in the list: short of memory, the server may delete only the list.
local score = ARGV[4] ~= '0' and tonumber(redis.call('zscore', KEYS[3], ARGV[1]))
local queued = score and redis.call('lindex', KEYS[2], 0) == ARGV[1]
if score and not queued then
    for _, owner in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
        queued = queued or owner == ARGV[1]
    end
end
if ARGV[4] == '2' and not queued and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    -- This waiter was removed as the head. Put it back before the head is read; otherwise its successor would be the head.
    redis.call('lrem', KEYS[2], 0, ARGV[1])
    redis.call('lpush', KEYS[2], ARGV[1])
    queued = true
end

local ttl = redis.call('pttl', KEYS[1])
local head, now, due = redis.call('lindex', KEYS[2], 0), 0, nil
if head or ttl ~= -2 then
    -- A free lock without waiters needs no clock.
    local time = redis.call('time')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
while head do
    due = tonumber(redis.call('zscore', KEYS[3], head))
    if not due then
        -- The client that queued this owner set no score.
        due = now + allowance
        redis.call('zadd', KEYS[3], string.format('%.0f', due), head)
    end
    if head == ARGV[1] or due > now then
        break
    end
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
    head = redis.call('lindex', KEYS[2], 0)
end

if ttl == -2 and (not head or head == ARGV[1]) then
    redis.call('hset', KEYS[1], ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would stay held forever.
        redis.call('del', KEYS[1])
        return expires
    end
    if head then
        redis.call('lpop', KEYS[2])
        redis.call('zrem', KEYS[3], head)
        -- All waiters move up by one place. A live waiter must not be removed before it was ever the head.
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
    -- A repeat may arrive late, after a renewal or a further level has extended the hold.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
if held then
    return {'STALE', ttl}
end

if ARGV[4] ~= '0' then
    -- The time at which the holder's lease ends, or the predecessor is removed.
    local before = now + math.max(ttl, 0)
    if not queued then
        -- The latest of all waiters, not only that of the last one: clients may use different allowances.
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
-- HSCAN reads a part of the record: other clients may have written any number of fields.
return {'BUSY', ttl, redis.call('hscan', KEYS[1], '0', 'count', '10')[2][1]}
