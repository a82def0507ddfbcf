-- Hands the record from an owner that holds it once to another owner of the same client, without freeing it.
-- KEYS[1] record (hash: owner -> hold count)
-- ARGV[1] owner that lets go
-- ARGV[2] owner that takes over; the same one if others of its client held in between and are in no record
-- ARGV[3] lease in ms of the new owner
-- ARGV[4] channel
-- ARGV[5] '1' if an earlier send of this request went unanswered, else '0'
-- ARGV[6] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n moved, and the channel has n subscriptions, -1 where that cannot be known
--         | {'GONE'} no record | {'OTHER'} held by others | {'MISMATCH'} another count
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
-- What confirms an earlier send may come late, after a renewal or a further level made the new hold longer.
if not moved or redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
end
-- Behind the writes: before Redis 5 none may follow it.
local reply = redis.pcall('pubsub', ARGV[6] and 'shardnumsub' or 'numsub', ARGV[4])
return reply.err and -1 or tonumber(reply[2])
