-- Renews a batch of holds.
--
-- KEYS[i]       record (hash: owner id -> hold count)
-- ARGV[2i - 1]  owner id of hold i
-- ARGV[2i]      minimum TTL of record i in ms, 0 to check the hold only
-- Reply         #KEYS  every owner holds its record
--               list   otherwise; one number per hold:
--               1      the owner holds the record
--               0      no record exists
--               -1     the key has another type
--               -2     not renewed, because the server refused
--               -3     other owners hold the lock
--
-- An error with one key does not stop the renewal of the others.
local try = redis.pcall
local reply = {}
local function refused(answer)
    return string.find(answer.err, 'WRONGTYPE', 1, true) and -1 or -2
end
for i, key in ipairs(KEYS) do
    local held = try('hexists', key, ARGV[2 * i - 1])
    if type(held) ~= 'number' then
        reply[i] = refused(held)
    elseif held == 0 then
        reply[i] = try('exists', key) == 1 and -3 or 0
    else
        reply[i] = 1
        if ARGV[2 * i] ~= '0' then
            local ttl = try('pttl', key)
            if type(ttl) == 'number' and ttl < tonumber(ARGV[2 * i]) then
                local set = try('pexpire', key, ARGV[2 * i])
                if type(set) ~= 'number' then
                    reply[i] = refused(set)
                end
            end
        end
    end
end
for _, answer in ipairs(reply) do
    if answer ~= 1 then
        return reply
    end
end
return #KEYS
