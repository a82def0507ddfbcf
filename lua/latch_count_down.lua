-- Counts a latch down, and tells those who wait when it opens. Harmless to repeat: the requests of a client are numbered,
-- and none takes effect after a later one has.
-- KEYS[1] record (integer: how often it is to be counted down yet)
-- KEYS[2] mark (integer: the last request of the client that took effect)
-- ARGV[1] number of this request
-- ARGV[2] ms that the mark is kept
-- ARGV[3] channel
-- ARGV[4] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n done, and n subscribers were told
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local count = redis.call('get', KEYS[1])
if count and not string.find(count, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no count')
end
-- First: a server out of memory lets it pass, and then what follows.
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
if not count then
    return 0
end
local told = 0
if tonumber(count) == 1 then
    told = redis.pcall(ARGV[4] or 'publish', ARGV[3], '0')
    if type(told) == 'table' then
        -- The channel is forbidden: then nothing is done.
        redis.call('set', KEYS[2], done, 'px', ARGV[2])
        return told
    end
end
if redis.call('decr', KEYS[1]) <= 0 then
    redis.call('del', KEYS[1])
end
return told
