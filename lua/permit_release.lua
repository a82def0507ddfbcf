-- Returns permits by their ids, including permits whose lease has ended.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- KEYS[3]  mark (integer: number of this client's last numbered request that took effect)
-- ARGV[1]  number of this request, if it is unknown whether the acquire of the permits took effect, else '0'
-- ARGV[2]  ms for which the mark is kept
-- ARGV[3]  channel
-- ARGV[4]  permit ids, 16 bytes each
-- ARGV[5]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n         released; the message reached n subscribers
--          {'GONE'}  one of the permits was no longer held
--
-- This script may run twice. After it, no request of the client with a lower number takes effect, if ARGV[1] is not '0'.
-- Times are the server's.
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all_held, found = true, {}
for at = 1, #ARGV[4], 16 do
    local id = string.sub(ARGV[4], at, at + 15)
    local ends = redis.call('zscore', KEYS[2], id)
    all_held = all_held and ends and tonumber(ends) > now
    if ends then
        found[#found + 1] = id
    end
end
-- This ZREM removes nothing, and comes first. A server out of memory accepts it, and after it the other writes of the script. A
-- server that accepts no writes refuses it before the message is sent.
redis.call('zrem', KEYS[2], '')
if ARGV[1] ~= '0' and tonumber(redis.call('get', KEYS[3]) or 0) < tonumber(ARGV[1]) then
    redis.call('set', KEYS[3], ARGV[1], 'px', ARGV[2])
end
local receivers = 0
if #found > 0 then
    receivers = redis.call(ARGV[5] or 'publish', ARGV[3], string.format('%.0f', (free or 0) + #found))
    redis.call('incrby', KEYS[1], #found)
    redis.call('zrem', KEYS[2], unpack(found))
end
return all_held and receivers or {'GONE'}
