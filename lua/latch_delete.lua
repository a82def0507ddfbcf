-- Deletes a latch, which opens it, and notifies the waiters.
--
-- KEYS[1]  record (integer: remaining count)
-- ARGV[1]  channel
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  deleted
--          0  no latch exists
--
-- This request must not be repeated: the repeat would open a later latch.
redis.call('get', KEYS[1]) -- fails for a key of another type, which must not be deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
redis.call(ARGV[2] or 'publish', ARGV[1], '0')
return redis.call('del', KEYS[1])
