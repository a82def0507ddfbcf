-- The first hold of an owner (expected count 0) of a lock whose holds are numbered. Writes only if the record is
-- absent, or to confirm what an earlier send of this very request already wrote.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] token (integer: the number of the last hold)
-- ARGV[1] owner
-- ARGV[2] lease in ms
-- ARGV[3] ms that the token is kept from now on, 0 for ever
-- ARGV[4] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   n taken, and n is the number of the hold | {'BUSY', ttl} another owner holds | {'STALE', ttl} the
--         owner text is in use by somebody unknown; ttl in ms, -1 where the record has no expiry
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
    -- First of all: where it may not be counted nothing is to be held.
    local number = redis.call('incr', KEYS[2])
    if ARGV[3] ~= '0' then
        redis.call('pexpire', KEYS[2], ARGV[3])
    end
    redis.call('hset', KEYS[1], ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would be taken for ever.
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
    -- It may come late, after a renewal or a further level made the hold longer.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    -- Nobody was numbered since: the record was this owner's throughout.
    return tonumber(redis.call('get', KEYS[2]) or redis.call('incr', KEYS[2]))
end
return {'STALE', ttl}
