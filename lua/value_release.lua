-- Deletes a token.
--
-- KEYS[1]  record (string: the holder's token)
-- ARGV[1]  token
-- ARGV[2]  channel; only clients of this library listen to it
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          released; the message reached n subscribers
--          {'GONE'}   no record exists
--          {'OTHER'}  the record has another token
--
-- The script publishes before it deletes: if the user lacks the permission to publish, the script fails and the record
-- stays.
local token = redis.call('get', KEYS[1])
if token ~= ARGV[1] then
    return {token and 'OTHER' or 'GONE'}
end
local receivers = redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return receivers
