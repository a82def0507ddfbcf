-- Deletes a latch, which opens it, and tells those who wait. Not harmless to repeat: a later latch would open.
-- KEYS[1] record (integer: how often it is to be counted down yet)
-- ARGV[1] channel
-- Reply   1 deleted | 0 there was none
redis.call('get', KEYS[1]) -- a record of another type is an error, never deleted
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
redis.call('publish', ARGV[1], '0')
return redis.call('del', KEYS[1])
