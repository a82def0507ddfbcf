-- Deletes the record, whoever holds the lock.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  channel, empty if no message is sent
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  freed
--          0  no record exists
--
-- This request must not be repeated: the repeat would free the lock of a later holder.
redis.call('hexists', KEYS[1], '') -- fails for a key of another type, which must not be deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
if ARGV[1] ~= '' then
    redis.call(ARGV[2] or 'publish', ARGV[1], '0')
end
return redis.call('del', KEYS[1])
