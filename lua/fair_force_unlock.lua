-- Frees the record whoever holds it; the queue stays, and the first in it is told. Not harmless to repeat: a later
-- holder would lose the lock.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] queue (list of owners, the first at its head)
-- ARGV[1] channel of the first waiter, without that owner
-- ARGV[2] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 freed | 0 there was no record
redis.call('hexists', KEYS[1], '') -- a record of another type is an error, never deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local head = redis.call('lindex', KEYS[2], 0)
if head then
    redis.call(ARGV[2] or 'publish', ARGV[1] .. ':' .. head, '0')
end
return redis.call('del', KEYS[1])
