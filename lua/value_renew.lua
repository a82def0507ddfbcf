-- Renews a batch of tokens.
--
-- KEYS[i]       record (string: the holder's token)
-- ARGV[2i - 1]  token of hold i
-- ARGV[2i]      minimum TTL of record i in ms, 0 to check the hold only
-- Reply         list  one number per hold:
--               1     the record has this token
--               0     no record exists
--               -1    the key has another type
--               -2    not renewed, because the server refused
--               -3    the record has another token
--
-- An error with one key does not stop the renewal of the others.
local reply = {}
for i, key in ipairs(KEYS) do
    local token, lease = redis.pcall('get', key), tonumber(ARGV[2 * i])
    local held = 1
    if type(token) == 'table' then
        held = string.find(token.err, 'WRONGTYPE', 1, true) and -1 or -2
    elseif token ~= ARGV[2 * i - 1] then
        held = token and -3 or 0
    elseif lease > 0 and redis.call('pttl', key) < lease then
        local set = redis.pcall('pexpire', key, lease)
        held = type(set) == 'number' and 1 or -2
    end
    reply[i] = held
end
return reply
