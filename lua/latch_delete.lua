-- Deletes a latch, which opens it, and notifies the waiters.
--
-- KEYS[1]  record (integer: remaining count)
-- ARGV[1]  channel
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  deleted
--          0  no latch exists
--
-- This request must not be repeated: the repeat would open a later latch.
local count = redis.call('get', KEYS[1]) -- fails for a key of another type, which must not be deleted
if not count then
    return 0
end
-- DEL comes first: a server that accepts no writes refuses it, and must not send the message.
redis.call('del', KEYS[1])
local sent = redis.pcall(ARGV[2] or 'publish', ARGV[1], '0')
if type(sent) == 'table' then
    -- The user may not publish, so the waiters would not hear of the deletion.
    redis.call('set', KEYS[1], count)
    return sent
end
return 1
