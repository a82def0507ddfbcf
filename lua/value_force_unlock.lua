-- Deletes the token whoever holds. Not harmless to repeat: a later holder would lose the lock.
-- KEYS[1] record (string: the holder's token)
-- ARGV[1] channel
-- ARGV[2] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 freed | 0 there was no record
if not redis.call('get', KEYS[1]) then
    return 0
end
redis.call(ARGV[2] or 'publish', ARGV[1], '0')
return redis.call('del', KEYS[1])
