-- Acquires the first read hold of an owner, together with other readers or under the owner's own write hold.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- KEYS[2]  timeout of the hold (string that expires with its lease)
-- ARGV[1]  owner id as a reader
-- ARGV[2]  lease in ms
-- ARGV[3]  the same owner's id as a writer
-- ARGV[4]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    n               acquired; the record had n ms left before this request (clamped to 1 .. lease)
--          {'BUSY', ttl}   a writer holds the lock
--          {'STALE', ttl}  the record names this owner id already, and not by this request
--          ttl: ms that the record has left, -1 if it never expires
--
-- If an earlier send of this request took effect, the script extends the expiries.
local ttl = redis.call('pttl', KEYS[1])
local held
if ttl ~= -2 then
    if redis.call('hget', KEYS[1], 'mode') ~= 'read' and redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
        return {'BUSY', ttl}
    end
    held = redis.call('hget', KEYS[1], ARGV[1])
    if held and (held ~= '1' or ARGV[4] ~= '1') then
        return {'STALE', ttl}
    end
end
-- The timeout comes first, because a hold without it does not count. A repeat may arrive late, after a renewal or a
-- further level has extended the hold.
if not held or redis.call('pttl', KEYS[2]) < tonumber(ARGV[2]) then
    redis.call('set', KEYS[2], '1', 'px', ARGV[2])
end
if ttl == -2 then
    redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], '1')
else
    redis.call('hset', KEYS[1], ARGV[1], '1')
end
if ttl < tonumber(ARGV[2]) then
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would stay held forever.
        redis.call('hdel', KEYS[1], ARGV[1])
        redis.call('del', KEYS[2])
        if ttl == -2 then
            redis.call('del', KEYS[1])
        end
        return expires
    end
end
-- An absent record and a record without an expiry do not shorten the lease.
return ttl < 0 and tonumber(ARGV[2]) or math.max(math.min(ttl, ARGV[2]), 1)
