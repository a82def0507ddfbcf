-- Deletes the token, whoever holds the lock.
--
-- KEYS[1]  record (string: the holder's token)
-- ARGV[1]  channel
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  freed
--          0  no record exists
--
-- This request must not be repeated: the repeat would free the lock of a later holder.
if not redis.call('get', KEYS[1]) then
    return 0
end
redis.call(ARGV[2] or 'publish', ARGV[1], '0')
return redis.call('del', KEYS[1])
