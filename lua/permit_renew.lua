-- Renews a batch of permits. One bad key does not stop the others. Times are the server's.
-- KEYS[i]       timeouts (zset: id of a permit that is taken -> end of its lease in ms since the epoch)
-- ARGV[2i - 1]  ids of hold i, of 16 bytes each
-- ARGV[2i]      lease in ms that they must have at least, 0 to only look
-- Reply         for each hold
--               1 all are taken still | 0 one is not | -1 the record is of another type
--               | -2 it was not renewed: the server refuses to
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
                -- 'now' was rounded down.
                local score = string.format('%.0f', now + 1 + lease)
                answer = redis.pcall('zadd', key, score, id)
                if type(answer) == 'table' and string.find(answer.err, 'OOM', 1, true) then
                    -- It makes nothing larger, and may follow what writes and is let pass.
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
