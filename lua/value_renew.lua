-- Renews a batch of tokens. One bad key does not stop the others.
-- KEYS[i]       record (string: the holder's token)
-- ARGV[2i - 1]  token of record i
-- ARGV[2i]      lease in ms that the record must have at least, 0 to only look
-- Reply         for each hold
--               1 it is the record's token | 0 no record | -1 the record is of another type
--               | -2 it was not renewed: the server refuses to | -3 it is another
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
