-- Renews a batch of read holds.
--
-- KEYS[2i - 1]  record i (hash: owner id -> hold count, and mode -> read or write)
-- KEYS[2i]      timeout of hold i (string that expires with its lease)
-- ARGV[2i - 1]  owner id of hold i
-- ARGV[2i]      minimum TTL of both keys in ms, 0 to check the hold only
-- Reply         list  one number per hold:
--               n     renewed; n >= 1 is the smaller TTL of the two keys in ms before the renewal
--               0     no record exists
--               -1    the key has another type
--               -2    not renewed, because the server refused
--               -3    other owners hold the lock
--
-- An error with one key does not stop the renewal of the others.
local reply = {}
local function refused(answer)
    return string.find(answer.err, 'WRONGTYPE', 1, true) and -1 or -2
end
-- A key without an expiry (-1) outlives all others. An absent key (-2) has no time left.
local function left(ttl)
    return type(ttl) ~= 'number' and 1 or ttl == -1 and 2 ^ 53 or math.max(ttl, 1)
end
for i = 1, #KEYS, 2 do
    local owner, lease = ARGV[i], tonumber(ARGV[i + 1])
    local held = redis.pcall('hexists', KEYS[i], owner)
    if type(held) ~= 'number' then
        held = refused(held)
    elseif held == 0 then
        held = redis.pcall('exists', KEYS[i]) == 1 and -3 or 0
    else
        -- A timeout that has expired is set again, because its holder is alive.
        local timeout, record = redis.pcall('pttl', KEYS[i + 1]), redis.pcall('pttl', KEYS[i])
        held = math.min(left(timeout), left(record))
        if lease > 0 and type(timeout) == 'number' and timeout < lease then
            -- PEXPIRE comes first: a server out of memory accepts it, and after it the other writes of the script.
            timeout = redis.pcall('pexpire', KEYS[i + 1], lease)
            if timeout == 0 then
                timeout = redis.pcall('set', KEYS[i + 1], '1', 'px', lease)
            end
        end
        if lease > 0 and type(record) == 'number' and record < lease then
            record = redis.pcall('pexpire', KEYS[i], lease)
        end
        for _, answer in ipairs({timeout, record}) do
            if type(answer) == 'table' and answer.err then
                held = refused(answer)
            end
        end
    end
    reply[#reply + 1] = held
end
return reply
