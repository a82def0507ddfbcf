-- Replaces the token of a holder by that of another owner of the same client, without freeing the lock.
--
-- KEYS[1]  record (string: the holder's token)
-- ARGV[1]  token of the owner that releases
-- ARGV[2]  token of the owner that takes over
-- ARGV[3]  lease of the new owner in ms
-- ARGV[4]  channel
-- ARGV[5]  '1' if an earlier send of this request was not answered, else '0'
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          moved; the channel has n subscriptions, -1 if that is unknown
--          {'GONE'}   no record exists
--          {'OTHER'}  the record has another token
local token = redis.call('get', KEYS[1])
local moved = ARGV[5] == '1' and token == ARGV[2]
if token ~= ARGV[1] and not moved then
    return {token and 'OTHER' or 'GONE'}
end
-- A repeat may arrive late, after a renewal has extended the new hold.
if not moved or redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
end
local reply = redis.pcall('pubsub', ARGV[6] and 'shardnumsub' or 'numsub', ARGV[4])
return reply.err and -1 or tonumber(reply[2])
