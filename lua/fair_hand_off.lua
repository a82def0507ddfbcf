-- Moves the record from an owner that holds it once to another owner of the same client, if that one is the head of the
-- queue. Otherwise releases the lock, and notifies the head.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  owner id that releases
-- ARGV[2]  owner id that takes over
-- ARGV[3]  lease of the new owner in ms
-- ARGV[4]  allowance in ms: how long a head may ignore a free lock before the head is removed
-- ARGV[5]  channel prefix; the channel of a waiter is prefix:owner id
-- ARGV[6]  '1' if an earlier send of this request was not answered, else '0'
-- ARGV[7]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    0             moved
--          {'FREED'}     released
--          {'GONE'}      no record exists
--          {'OTHER'}     other owners hold the lock
--          {'MISMATCH'}  the hold count is not 1
--
-- To release, the script uses only commands that a server accepts when it is out of memory. It publishes before it deletes:
-- if the user lacks the permission to publish, the script fails and the record stays.
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held and ARGV[6] == '1' and redis.call('hget', KEYS[1], ARGV[2]) == '1' then
    -- A repeat may arrive late, after a renewal or a further level has extended the new hold.
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
        redis.call('pexpire', KEYS[1], ARGV[3])
    end
    return 0
end
if not held and redis.call('exists', KEYS[1]) == 1 then
    return {'OTHER'}
end
if held and held ~= '1' then
    return {'MISMATCH'}
end

local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = redis.call('lindex', KEYS[2], 0)
local due = head and tonumber(redis.call('zscore', KEYS[3], head))
while due and due <= now do
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
    head = redis.call('lindex', KEYS[2], 0)
    due = head and tonumber(redis.call('zscore', KEYS[3], head))
end

if held and head == ARGV[2] and type(redis.pcall('hset', KEYS[1], head, '1')) == 'number' then
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('pexpire', KEYS[1], ARGV[3])
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], head)
    -- All waiters move up by one place. A live waiter must not be removed before it was ever the head.
    local allowance, others = tonumber(ARGV[4]), redis.call('zrange', KEYS[3], 0, -1, 'withscores')
    for i = 1, #others, 2 do
        local score = math.max(others[i + 1] - allowance, math.min(others[i + 1], now + allowance))
        redis.call('zadd', KEYS[3], string.format('%.0f', score), others[i])
    end
    return 0
end
if head then
    redis.call(ARGV[7] or 'publish', ARGV[5] .. ':' .. head, '0')
end
if not held then
    return {'GONE'}
end
redis.call('del', KEYS[1])
return {'FREED'}
