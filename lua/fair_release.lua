-- Releases the last level of an owner's hold on a fair lock, whatever hold count the record has, and notifies the
-- head of the queue.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  owner id
-- ARGV[2]  channel prefix; the channel of a waiter is prefix:owner id
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          released; the message reached n subscribers
--          {'GONE'}   no record exists
--          {'OTHER'}  other owners hold the lock
--
-- The script uses only commands that a server accepts when it is out of memory. It publishes before it deletes: if the
-- user lacks the permission to publish, the script fails and the record stays.
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held and redis.call('exists', KEYS[1]) == 1 then
    return {'OTHER'}
end
local head = redis.call('lindex', KEYS[2], 0)
if head then
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local due = tonumber(redis.call('zscore', KEYS[3], head))
    while due and due <= now do
        redis.call('zrem', KEYS[3], head)
        redis.call('lpop', KEYS[2])
        head = redis.call('lindex', KEYS[2], 0)
        due = head and tonumber(redis.call('zscore', KEYS[3], head))
    end
end
local receivers = head and redis.call(ARGV[3] or 'publish', ARGV[2] .. ':' .. head, '0') or 0
if not held then
    return {'GONE'}
end
redis.call('del', KEYS[1])
return receivers
