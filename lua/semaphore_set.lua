-- Creates a semaphore, if none exists.
--
-- KEYS[1]  record (integer: free permits)
-- ARGV[1]  number of permits
-- ARGV[2]  TTL of the record in ms, 0 forever
-- ARGV[3]  channel
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  created
--          0  the semaphore exists
--
-- This request must not be repeated: the reply would differ.
if redis.call('exists', KEYS[1]) == 1 then
    return 0
end
redis.call(ARGV[4] or 'publish', ARGV[3], ARGV[1])
redis.call('set', KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
