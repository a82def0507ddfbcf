-- Deletes the record, whoever holds the lock, and notifies the head of the queue. Waiters stay in the queue, except
-- those at its head whose timeout has passed.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- KEYS[3]  timeouts (sorted set: owner id -> ms since the epoch; a head is removed after this time)
-- ARGV[1]  channel prefix; the channel of a waiter is prefix:owner id
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  freed
--          0  no record exists
--
-- This request must not be repeated: the repeat would free the lock of a later holder.
redis.call('hexists', KEYS[1], '') -- fails for a key of another type, which must not be deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
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
if head then
    redis.call(ARGV[2] or 'publish', ARGV[1] .. ':' .. head, '0')
end
return redis.call('del', KEYS[1])
