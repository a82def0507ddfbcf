-- Gives permits back by their ids, also those whose lease has ended. No earlier request of the client takes effect after
-- it. Times are the server's.
-- KEYS[1] record (integer: permits that are free)
-- KEYS[2] timeouts (zset: id of a permit that is taken -> end of its lease in ms since the epoch)
-- KEYS[3] mark (integer: the last request of the client that took effect)
-- ARGV[1] number of this request
-- ARGV[2] ms that the mark is kept
-- ARGV[3] channel
-- ARGV[4] ids, of 16 bytes each
-- ARGV[5] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n given back, and n subscribers were told | {'GONE'} one of them was not held any more
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lived, found = true, {}
for at = 1, #ARGV[4], 16 do
    local id = string.sub(ARGV[4], at, at + 15)
    local ends = redis.call('zscore', KEYS[2], id)
    lived = lived and ends and tonumber(ends) > now
    if ends then
        found[#found + 1] = id
    end
end
-- First: a server out of memory lets it pass, and then what follows.
redis.call('pexpire', KEYS[3], ARGV[2])
if tonumber(redis.call('get', KEYS[3]) or 0) < tonumber(ARGV[1]) then
    redis.call('set', KEYS[3], ARGV[1], 'px', ARGV[2])
end
local told = 0
if #found > 0 then
    told = redis.call(ARGV[5] or 'publish', ARGV[3], string.format('%.0f', (free or 0) + #found))
    redis.call('incrby', KEYS[1], #found)
    redis.call('zrem', KEYS[2], unpack(found))
end
return lived and told or {'GONE'}
