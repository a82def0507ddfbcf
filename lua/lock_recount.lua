-- Changes the hold count of an owner: a re-entry raises it, a release that is not the last lowers it.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  owner id
-- ARGV[2]  expected count
-- ARGV[3]  new count, at least 1
-- ARGV[4]  minimum TTL of the record in ms, 0 to leave the TTL unchanged
-- ARGV[5]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    1                done
--          {'GONE'}         no record exists
--          {'OTHER'}        other owners hold the lock
--          {'MISMATCH', n}  the count is n
--
-- The expiry never becomes shorter.
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
