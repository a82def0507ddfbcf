-- Deletes a latch, which opens it, and tells those who wait. Not harmless to repeat: a later latch would open.
-- KEYS[1] record (integer: how often it is to be counted down yet)
-- ARGV[1] channel
-- ARGV[2] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 deleted | 0 there was none
redis.call('get', KEYS[1]) -- a record of another type is an error, never deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
redis.call(ARGV[2] or 'publish', ARGV[1], '0')
return redis.call('del', KEYS[1])
