-- Releases the last level of an owner's write hold, whatever hold count the record has. If the owner also reads, the
-- record changes to mode read and other readers may join.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- ARGV[1]  owner id as a writer
-- ARGV[2]  channel
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          released; the message reached n subscribers
--          {'GONE'}   no record exists
--          {'OTHER'}  other owners hold the lock
--
-- The script publishes before it deletes: if the user lacks the permission to publish, the script fails and the record
-- stays.
if not redis.call('hget', KEYS[1], ARGV[1]) then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local reads = redis.call('hlen', KEYS[1]) > 2
local receivers = redis.call(ARGV[3] or 'publish', ARGV[2], '1')
if reads then
    -- In this order: a server out of memory accepts HSET only after another write of the script.
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('hset', KEYS[1], 'mode', 'read')
else
    redis.call('del', KEYS[1])
end
return receivers
