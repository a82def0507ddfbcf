-- Frees the record whoever holds it in that mode. Not harmless to repeat: a later holder would lose the lock.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- ARGV[1] mode
-- ARGV[2] channel
-- ARGV[3] message
-- ARGV[4] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 freed | 0 it was not held in that mode
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[1] then
    return 0
end
redis.call(ARGV[4] or 'publish', ARGV[2], ARGV[3])
return redis.call('del', KEYS[1])
