-- Changes the hold count of the owner from one known value to another: a re-entry raises it, a release
-- that is not the last lowers it. Never shortens the lease.
-- KEYS[1] record (hash: owner -> hold count)
-- ARGV[1] owner
-- ARGV[2] count expected in the record
-- ARGV[3] count wanted, at least 1
-- ARGV[4] lease in ms that the record must have at least, 0 to leave it
-- ARGV[5] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   1 done | {'GONE'} no record | {'OTHER'} held by others | {'MISMATCH', n} the count is n
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
if held == ARGV[2] then
    redis.call('hset', KEYS[1], ARGV[1], ARGV[3])
elseif held ~= ARGV[3] or ARGV[5] ~= '1' then
    return {'MISMATCH', tonumber(held)}
end
if ARGV[4] ~= '0' and redis.call('pttl', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('pexpire', KEYS[1], ARGV[4])
end
return 1
