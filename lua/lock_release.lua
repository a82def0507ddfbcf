-- Releases the last level of an owner's hold, whatever hold count the record has.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  owner id
-- ARGV[2]  channel, empty if no message is sent
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          released; the message reached n subscribers
--          {'GONE'}   no record exists
--          {'OTHER'}  other owners hold the lock
--
-- The script uses only commands that a server accepts when it is out of memory. It publishes before it deletes: if the
-- user lacks the permission to publish, the script fails and the record stays.
if not redis.call('hget', KEYS[1], ARGV[1]) then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local receivers = ARGV[2] == '' and 0 or redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return receivers
