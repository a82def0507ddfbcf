-- Acquires the first hold of an owner of a fenced lock, and issues its token.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  token (integer: the last token that was issued)
-- ARGV[1]  owner id
-- ARGV[2]  lease in ms
-- ARGV[3]  ms for which the token key is kept, 0 forever
-- ARGV[4]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    n               acquired; n is the token of the hold
--          {'BUSY', ttl}   another owner holds the lock
--          {'STALE', ttl}  the record names this owner id already, and not by this request
--          ttl: ms that the record has left, -1 if it never expires
--
-- The script writes only if the record is absent, or to extend the TTL if an earlier send of this request took effect.
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
    -- INCR comes first: if the user may not run it, the lock must not be held.
    local number = redis.call('incr', KEYS[2])
    if ARGV[3] ~= '0' then
        redis.call('pexpire', KEYS[2], ARGV[3])
    end
    redis.call('hset', KEYS[1], ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would stay held forever.
        redis.call('del', KEYS[1])
        return expires
    end
    return number
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
    return {'BUSY', ttl}
end
if held == '1' and ARGV[4] == '1' then
    -- A repeat may arrive late, after a renewal or a further level has extended the hold.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    -- No later token was issued, because this owner has held the lock since.
    return tonumber(redis.call('get', KEYS[2]) or redis.call('incr', KEYS[2]))
end
return {'STALE', ttl}
