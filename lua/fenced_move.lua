-- Hands the record of a lock whose holds are numbered from an owner that holds it once to another owner of the
-- same client, without freeing it. The new hold has a number of its own.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] token (integer: the number of the last hold)
-- ARGV[1] owner that lets go
-- ARGV[2] owner that takes over, another one
-- ARGV[3] lease in ms of the new owner
-- ARGV[4] ms that the token is kept from now on, 0 for ever
-- ARGV[5] channel
-- ARGV[6] '1' if an earlier send of this request went unanswered, else '0'
-- ARGV[7] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   {n, number} moved, the channel has n subscriptions, -1 where that cannot be known
--         | {'GONE'} no record | {'OTHER'} held by others | {'MISMATCH'} another count
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
-- What confirms an earlier send may come late, after a renewal or a further level made the new hold longer.
if ARGV[4] ~= '0' and not (moved and redis.call('pttl', KEYS[2]) >= tonumber(ARGV[4])) then
    redis.call('pexpire', KEYS[2], ARGV[4])
end
if not moved or redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
end
-- Behind the writes: before Redis 5 none may follow it.
local reply = redis.pcall('pubsub', ARGV[7] and 'shardnumsub' or 'numsub', ARGV[5])
return {reply.err and -1 or tonumber(reply[2]), number}
