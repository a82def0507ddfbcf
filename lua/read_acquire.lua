-- The first read hold of an owner (expected count 0), among other readers or behind a write hold of the same owner.
-- An earlier send of this very request is confirmed.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- KEYS[2] timeout of the hold (string, expires with its lease)
-- ARGV[1] owner as a reader
-- ARGV[2] lease in ms
-- ARGV[3] the same owner as a writer
-- ARGV[4] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   n taken; the record would have expired in n ms, from 1 to the lease | {'BUSY', ttl} a writer holds
--         | {'STALE', ttl} the owner text is in use by somebody unknown; ttl in ms, -1 where the record has no expiry
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
-- First of all: a hold without its timeout would not count. A repeat may come late, after a renewal or a further level
-- made the hold longer.
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
        -- Without an expiry the lock would be taken for ever.
        redis.call('hdel', KEYS[1], ARGV[1])
        redis.call('del', KEYS[2])
        if ttl == -2 then
            redis.call('del', KEYS[1])
        end
        return expires
    end
end
-- No record, and one without an expiry, shorten no lease.
return ttl < 0 and tonumber(ARGV[2]) or math.max(math.min(ttl, ARGV[2]), 1)
