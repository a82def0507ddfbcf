-- Acquires the first write hold of an owner.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- ARGV[1]  owner id as a writer
-- ARGV[2]  lease in ms
-- ARGV[3]  the same owner's id as a reader
-- ARGV[4]  '1' to upgrade a reader: the lock is acquired although the owner reads, if nobody else does; else '0'
-- ARGV[5]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    1               acquired
--          {'BUSY', ttl}   other owners hold the lock
--          {'STALE', ttl}  the record names this owner id already, and not by this request
--          {'OWN', ttl}    the owner itself holds the lock as a reader
--          ttl: ms that the record has left, -1 if it never expires
--
-- The script writes only if the record is absent, to upgrade, or to extend the TTL if an earlier send of this request
-- took effect.
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
    redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would stay held forever.
        redis.call('del', KEYS[1])
    end
    return expires
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if held and held == '1' and ARGV[5] == '1' then
    -- A repeat may arrive late, after a renewal or a further level has extended the hold.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
if held then
    return {'STALE', ttl}
end
local reads = redis.call('hexists', KEYS[1], ARGV[3]) == 1
if ARGV[4] ~= '1' or not reads then
    return {reads and 'OWN' or 'BUSY', ttl}
end
-- The fields are the mode, this reader, and others.
if redis.call('hlen', KEYS[1]) > 2 then
    return {'BUSY', ttl}
end
redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], '1')
if ttl < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
