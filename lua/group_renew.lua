-- Renews a batch of holds on values of groups.
--
-- KEYS[i]       record (hash: value -> owner id; value:owner id:expire_time -> ms since the epoch;
--               value:owner id:lock_count -> hold count)
-- ARGV[2i - 1]  "<values>\n<owner id>\n<number of the acquire>" of hold i; each value has 22 bytes, the number is
--               ignored
-- ARGV[2i]      minimum time in ms that the hold must have left, 0 to check the hold only
-- Reply         list  one number per hold:
--               1     the owner holds all of the values
--               0     no record exists
--               -1    the key has another type
--               -2    not renewed, because the server refused
--               -3    one of the values is held by another owner, or by none
--
-- An error with one key does not stop the renewal of the others. Times are the server's.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function renew(key, values, owner, lease)
    for at = 1, #values, 22 do
        local value = string.sub(values, at, at + 21)
        local field = value .. ':' .. owner .. ':expire_time'
        local ends = tonumber(redis.call('hget', key, field) or 0)
        if ends <= now or redis.call('hget', key, value) ~= owner then
            return redis.call('exists', key) == 1 and -3 or 0
        end
        if lease > 0 and ends <= now + lease then
            -- HDEL comes first: a server out of memory accepts it, and after it the other writes of the script.
            redis.call('hdel', key, '')
            -- 1 is added because 'now' was rounded down.
            redis.call('hset', key, field, string.format('%.0f', now + 1 + lease))
        end
    end
    if lease > 0 and redis.call('pttl', key) < lease then
        redis.call('pexpire', key, lease)
    end
    return 1
end
local reply = {}
for i, key in ipairs(KEYS) do
    local values, owner = string.match(ARGV[2 * i - 1], '^(.-)\n(.-)\n')
    local ok, held = pcall(renew, key, values, owner, tonumber(ARGV[2 * i]))
    if not ok then
        local text = type(held) == 'table' and held.err or tostring(held)
        held = string.find(text, 'WRONGTYPE', 1, true) and -1 or -2
    end
    reply[i] = held
end
return reply
