-- Frees the record whoever holds it. Not harmless to repeat: a later holder would lose the lock.
-- KEYS[1] record (hash: owner -> hold count)
-- ARGV[1] channel, empty where nobody is told
-- ARGV[2] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 freed | 0 there was no record
redis.call('hexists', KEYS[1], '') -- a record of another type is an error, never deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
if ARGV[1] ~= '' then
    redis.call(ARGV[2] or 'publish', ARGV[1], '0')
end
return redis.call('del', KEYS[1])
