-- Moves the record from an owner that holds it once to another owner of the same client, without freeing the lock.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  owner id that releases
-- ARGV[2]  owner id that takes over; the same one if the record still names it (a pipelined hold ran ahead)
-- ARGV[3]  lease of the new owner in ms
-- ARGV[4]  channel
-- ARGV[5]  '1' if an earlier send of this request was not answered, else '0'
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n             moved; the channel has n subscriptions, -1 if that is unknown
--          {'GONE'}      no record exists
--          {'OTHER'}     other owners hold the lock
--          {'MISMATCH'}  the hold count is not 1
local held = redis.call('hget', KEYS[1], ARGV[1])
local moved = not held and ARGV[5] == '1' and redis.call('hget', KEYS[1], ARGV[2]) == '1'
if not held and not moved then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
if held and held ~= '1' then
    return {'MISMATCH'}
end
if held and ARGV[1] ~= ARGV[2] then
    redis.call('hset', KEYS[1], ARGV[2], '1')
    redis.call('hdel', KEYS[1], ARGV[1])
end
-- A repeat may arrive late, after a renewal or a further level has extended the new hold.
if not moved or redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
end
local reply = redis.pcall('pubsub', ARGV[6] and 'shardnumsub' or 'numsub', ARGV[4])
return reply.err and -1 or tonumber(reply[2])
