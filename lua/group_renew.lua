-- Renews a batch of holds on values of groups. One bad key does not stop the others. Times are the server's.
-- KEYS[i]       record (hash: value -> owner; value:owner:expire_time -> ms since the epoch)
-- ARGV[2i - 1]  values of hold i, of 22 bytes each, a line's end, owner; another line's end ends it
-- ARGV[2i]      lease in ms that they must have at least, 0 to only look
-- Reply         for each hold
--               1 the owner holds them | 0 no record | -1 the record is of another type
--               | -2 it was not renewed: the server refuses to | -3 others hold one, or nobody does
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
            -- 'now' was rounded down.
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
    local fine, held = pcall(renew, key, values, owner, tonumber(ARGV[2 * i]))
    if not fine then
        local text = type(held) == 'table' and held.err or tostring(held)
        held = string.find(text, 'WRONGTYPE', 1, true) and -1 or -2
    end
    reply[i] = held
end
return reply
