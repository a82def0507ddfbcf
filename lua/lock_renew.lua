-- Renews a batch of holds. One bad key does not stop the others.
-- KEYS[i]       record (hash: owner -> hold count)
-- ARGV[2i - 1]  owner of record i
-- ARGV[2i]      lease in ms that the record must have at least, 0 to only look
-- Reply         the number of keys, if each is held by its owner; else for each key
--               1 the owner holds it | 0 no record | -1 the record is of another type
--               | -2 it was not renewed: the server refuses to | -3 held by others
local reply = {}
local function refused(answer)
    return string.find(answer.err, 'WRONGTYPE', 1, true) and -1 or -2
end
for i, key in ipairs(KEYS) do
    local held = redis.pcall('hexists', key, ARGV[2 * i - 1])
    if type(held) ~= 'number' then
        reply[i] = refused(held)
    elseif held == 0 then
        reply[i] = redis.pcall('exists', key) == 1 and -3 or 0
    else
        reply[i] = 1
        if ARGV[2 * i] ~= '0' then
            local ttl = redis.pcall('pttl', key)
            if type(ttl) == 'number' and ttl < tonumber(ARGV[2 * i]) then
                local set = redis.pcall('pexpire', key, ARGV[2 * i])
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
