-- Sets a token where there is none. Writes only if the record is absent, or to confirm what an earlier send of this very
-- request already wrote.
-- KEYS[1] record (string: the holder's token)
-- ARGV[1] token
-- ARGV[2] lease in ms
-- ARGV[3] '1' if an earlier send of this request went unanswered, else '0'
-- Reply   1 taken | {'BUSY', ttl, token} another holds; ttl in ms, -1 where the record has no expiry
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    return 1
end
local token = redis.call('get', KEYS[1]) -- a record of another type is an error
local ttl = redis.call('pttl', KEYS[1])
if ARGV[3] == '1' and token == ARGV[1] then
    -- It may come late, after a renewal made the hold longer.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
return {'BUSY', ttl, token}
