-- The last release of an owner, whatever count the record has, of a lock whose waiters stand in a queue: the first of
-- them is told. Uses only commands that a server out of memory still accepts, and publishes first: were the channel
-- forbidden, the record would stay.
-- KEYS[1] record (hash: owner -> hold count)
-- KEYS[2] queue (list of owners, the first at its head)
-- KEYS[3] timeouts (zset: owner -> when it counts as gone if it is first by then, in ms since the epoch)
-- ARGV[1] owner
-- ARGV[2] channel of the first waiter, without that owner
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n freed, and n subscribers were told | {'GONE'} no record | {'OTHER'} held by others
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held and redis.call('exists', KEYS[1]) == 1 then
    return {'OTHER'}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head
while true do
    head = redis.call('lindex', KEYS[2], 0)
    local due = head and tonumber(redis.call('zscore', KEYS[3], head))
    if not due or due > now then
        break
    end
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
end
local told = head and redis.call(ARGV[3] or 'publish', ARGV[2] .. ':' .. head, '0') or 0
if not held then
    return {'GONE'}
end
redis.call('del', KEYS[1])
return told
