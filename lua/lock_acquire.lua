-- Acquires the first hold of an owner.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  owner id
-- ARGV[2]  lease in ms
-- ARGV[3]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    1                      acquired
--          {'BUSY', ttl, holder}  `holder` holds the lock
--          {'STALE', ttl}         the record names this owner id already, and not by this request
--          ttl: ms that the record has left, -1 if it never expires
--
-- The script writes only if the record is absent, or to extend the TTL if an earlier send of this request took effect.
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
    redis.call('hset', KEYS[1], ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would stay held forever.
        redis.call('del', KEYS[1])
    end
    return expires
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
    -- HSCAN reads a part of the record: other clients may have written any number of fields.
    return {'BUSY', ttl, redis.call('hscan', KEYS[1], '0', 'count', '10')[2][1]}
end
if held == '1' and ARGV[3] == '1' then
    -- A repeat may arrive late, after a renewal or a further level has extended the hold.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
return {'STALE', ttl}
