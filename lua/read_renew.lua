-- Renews a batch of read holds. One bad key does not stop the others.
-- KEYS[2i - 1]  record i (hash: owner -> hold count, and mode -> read or write)
-- KEYS[2i]      timeout of hold i (string, expires with its lease)
-- ARGV[2i - 1]  owner of hold i
-- ARGV[2i]      lease in ms that both must have at least, 0 to only look
-- Reply         for each hold
--               n the owner holds it; the first of both would have expired in n ms, at least 1
--               | 0 no record | -1 the record is of another type
--               | -2 it was not renewed: the server refuses to | -3 held by others
local reply = {}
local function refused(answer)
    return string.find(answer.err, 'WRONGTYPE', 1, true) and -1 or -2
end
-- A key without an expiry (-1) outlives every other one; a key that is gone (-2) has no time left.
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
        -- Also one that has lapsed: the holder lives.
        local alive, lives = redis.pcall('pttl', KEYS[i + 1]), redis.pcall('pttl', KEYS[i])
        held = math.min(left(alive), left(lives))
        if lease > 0 and type(alive) == 'number' and alive < lease then
            alive = redis.pcall('set', KEYS[i + 1], '1', 'px', lease)
        end
        if lease > 0 and type(lives) == 'number' and lives < lease then
            lives = redis.pcall('pexpire', KEYS[i], lease)
        end
        for _, answer in ipairs({alive, lives}) do
            if type(answer) == 'table' and answer.err then
                held = refused(answer)
            end
        end
    end
    reply[#reply + 1] = held
end
return reply
