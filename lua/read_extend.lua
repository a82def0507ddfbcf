-- Extends the lease of a read hold when its owner re-enters. The client counts the levels, and the record does not.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- KEYS[2]  timeout of the hold (string that expires with its lease)
-- ARGV[1]  owner id as a reader
-- ARGV[2]  minimum TTL of both keys in ms, 0 to check the hold only
-- Reply    1          done
--          {'GONE'}   no record exists
--          {'OTHER'}  other owners hold the lock
--
-- The expiry never becomes shorter.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local lease = tonumber(ARGV[2])
if lease > 0 then
    if redis.call('pttl', KEYS[2]) < lease then
        redis.call('set', KEYS[2], '1', 'px', ARGV[2])
    end
    if redis.call('pttl', KEYS[1]) < lease then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
end
return 1
