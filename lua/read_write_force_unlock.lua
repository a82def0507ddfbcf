-- Deletes the record if the lock is held in the given mode, whoever holds it.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- ARGV[1]  mode: read or write
-- ARGV[2]  channel
-- ARGV[3]  message
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  freed
--          0  the lock is not held in that mode
--
-- This request must not be repeated: the repeat would free the lock of a later holder.
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[1] then
    return 0
end
redis.call(ARGV[4] or 'publish', ARGV[2], ARGV[3])
return redis.call('del', KEYS[1])
