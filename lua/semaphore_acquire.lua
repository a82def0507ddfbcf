-- Takes permits, if there are so many. Harmless to repeat: the requests of a client are numbered, and none takes
-- effect after a later one has.
-- KEYS[1] record (integer: permits that are free)
-- KEYS[2] mark (integer: the last request of the client that took effect)
-- ARGV[1] number of this request
-- ARGV[2] permits
-- ARGV[3] ms that the mark is kept
-- Reply   1 taken | {'BUSY', -1} there are fewer | {'STALE', -1} a later request has taken effect
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return done == number and 1 or {'STALE', -1}
end
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
if not free or tonumber(free) < tonumber(ARGV[2]) then
    return {'BUSY', -1}
end
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[3])
redis.call('decrby', KEYS[1], ARGV[2])
return 1
