-- Gives permits back, or adds them. Harmless to repeat: the requests of a client are numbered, and none takes effect
-- after a later one has.
-- KEYS[1] record (integer: permits that are free)
-- KEYS[2] mark (integer: the last request of the client that took effect)
-- ARGV[1] number of this request
-- ARGV[2] permits
-- ARGV[3] ms that the mark is kept
-- ARGV[4] channel
-- ARGV[5] number of the request that took them, if that may not have taken effect, else '0'
-- ARGV[6] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n given back, and n subscribers were told; 0 if it was done before
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
-- First: a server out of memory lets it pass, and then what follows.
redis.call('pexpire', KEYS[2], ARGV[3])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[3])
if ARGV[5] ~= '0' and done ~= tonumber(ARGV[5]) then
    return 0
end
local told = redis.pcall(ARGV[6] or 'publish', ARGV[4], string.format('%.0f', (free or 0) + ARGV[2]))
if type(told) == 'table' then
    -- The channel is forbidden: then nothing is done.
    redis.call('set', KEYS[2], done, 'px', ARGV[3])
    return told
end
redis.call('incrby', KEYS[1], ARGV[2])
return told
