-- Sets a token, if no token is set.
--
-- KEYS[1]  record (string: the holder's token)
-- ARGV[1]  token
-- ARGV[2]  lease in ms
-- ARGV[3]  '1' if an earlier send of this request was not answered, else '0'
-- Reply    1                     acquired
--          {'BUSY', ttl, token}  the record has another token
--          ttl: ms that the record has left, -1 if it never expires
--
-- The script writes only if the record is absent, or to extend the TTL if an earlier send of this request took effect.
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    return 1
end
local token = redis.call('get', KEYS[1]) -- fails for a key of another type
local ttl = redis.call('pttl', KEYS[1])
if ARGV[3] == '1' and token == ARGV[1] then
    -- A repeat may arrive late, after a renewal has extended the hold.
    if ttl < tonumber(ARGV[2]) then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
    return 1
end
return {'BUSY', ttl, token}
