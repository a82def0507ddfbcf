-- The last write release of an owner, whatever count the record has. Its own reads go on, and others may join them.
-- Publishes before it deletes: were the channel forbidden, the record would stay.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- ARGV[1] owner as a writer
-- ARGV[2] channel
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n freed, and n subscribers were told | {'GONE'} no record | {'OTHER'} held by others
if not redis.call('hget', KEYS[1], ARGV[1]) then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local reads = redis.call('hlen', KEYS[1]) > 2
local told = redis.call(ARGV[3] or 'publish', ARGV[2], '1')
if reads then
    -- In this order: a server out of memory lets the one pass, and then the other.
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('hset', KEYS[1], 'mode', 'read')
else
    redis.call('del', KEYS[1])
end
return told
