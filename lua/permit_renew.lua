-- Renews a batch of holds on permits.
--
-- KEYS[i]       timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- ARGV[2i - 1]  permit ids of hold i, 16 bytes each
-- ARGV[2i]      minimum time in ms that the leases must have left, 0 to check the hold only
-- Reply         list  one number per hold:
--               1     all of the permits are held
--               0     one of them is no longer held
--               -1    the key has another type
--               -2    not renewed, because the server refused
--
-- An error with one key does not stop the renewal of the others. Times are the server's.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}
for i, key in ipairs(KEYS) do
    local ids, lease = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
    local held = 1
    for at = 1, #ids, 16 do
        local id = string.sub(ids, at, at + 15)
        local answer = redis.pcall('zscore', key, id)
        if type(answer) ~= 'table' then
            local ends = tonumber(answer or 0)
            if ends <= now then
                held = math.min(held, 0)
            elseif lease > 0 and ends <= now + lease then
                -- 1 is added because 'now' was rounded down.
                local score = string.format('%.0f', now + 1 + lease)
                answer = redis.pcall('zadd', key, score, id)
                if type(answer) == 'table' and string.find(answer.err, 'OOM', 1, true) then
                    -- This ZADD needs no memory. A server out of memory accepts it after a write that it allows, such as ZREM.
                    redis.pcall('zrem', key, '')
                    answer = redis.pcall('zadd', key, score, id)
                end
            end
        end
        if type(answer) == 'table' then
            held = math.min(held, string.find(answer.err, 'WRONGTYPE', 1, true) and -1 or -2)
        end
    end
    reply[i] = held
end
return reply
