-- Moves the record of a fenced lock from an owner that holds it once to another owner of the same client, without
-- freeing the lock. The new hold gets its own token.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  token (integer: the last token that was issued)
-- ARGV[1]  owner id that releases
-- ARGV[2]  owner id that takes over, never the same one
-- ARGV[3]  lease of the new owner in ms
-- ARGV[4]  ms for which the token key is kept, 0 forever
-- ARGV[5]  channel
-- ARGV[6]  '1' if an earlier send of this request was not answered, else '0'
-- ARGV[7]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {n, token}    moved; the channel has n subscriptions, -1 if that is unknown
--          {'GONE'}      no record exists
--          {'OTHER'}     other owners hold the lock
--          {'MISMATCH'}  the hold count is not 1
local held = redis.call('hget', KEYS[1], ARGV[1])
local moved = not held and ARGV[6] == '1' and redis.call('hget', KEYS[1], ARGV[2]) == '1'
if not held and not moved then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
if held and held ~= '1' then
    return {'MISMATCH'}
end
if held then
    redis.call('incr', KEYS[2])
    redis.call('hset', KEYS[1], ARGV[2], '1')
    redis.call('hdel', KEYS[1], ARGV[1])
end
local number = tonumber(redis.call('get', KEYS[2]) or redis.call('incr', KEYS[2]))
-- A repeat may arrive late, after a renewal or a further level has extended the new hold.
if ARGV[4] ~= '0' and not (moved and redis.call('pttl', KEYS[2]) >= tonumber(ARGV[4])) then
    redis.call('pexpire', KEYS[2], ARGV[4])
end
if not moved or redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
end
local reply = redis.pcall('pubsub', ARGV[7] and 'shardnumsub' or 'numsub', ARGV[5])
return {reply.err and -1 or tonumber(reply[2]), number}
