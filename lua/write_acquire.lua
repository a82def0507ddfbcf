-- The first write hold of an owner (expected count 0). Writes only if the record is absent, or to confirm what an
-- earlier send of this very request already wrote.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- ARGV[1] owner as a writer
-- ARGV[2] lease in ms
-- ARGV[3] the same owner as a reader
-- ARGV[4] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   1 taken | {'BUSY', ttl} others hold | {'STALE', ttl} the owner text is in use by somebody unknown
--         | {'OWN', ttl} the owner holds it as a reader; ttl in ms, -1 where the record has no expiry
local ttl = redis.call('pttl', KEYS[1])
if ttl == -2 then
    redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], '1')
    local expires = redis.pcall('pexpire', KEYS[1], ARGV[2])
    if expires ~= 1 then
        -- Without an expiry the lock would be taken for ever.
        redis.call('del', KEYS[1])
    end
    return expires
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if held and held == '1' and ARGV[4] == '1' then
    -- It may come late, after a renewal or a further level made the hold longer.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
if held then
    return {'STALE', ttl}
end
return {redis.call('hexists', KEYS[1], ARGV[3]) == 1 and 'OWN' or 'BUSY', ttl}
