-- Takes permits, if enough of them are free.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  mark (integer: number of this client's last request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  number of permits
-- ARGV[3]  ms for which the mark is kept
-- Reply    1              acquired
--          {'BUSY', -1}   too few permits are free
--          {'STALE', -1}  a request with a higher number has taken effect
--
-- The requests of a client are numbered. No request takes effect twice, or after a request with a higher number.
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return done == number and 1 or {'STALE', -1}
end
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
if not free or tonumber(free) < tonumber(ARGV[2]) then
    return {'BUSY', -1}
end
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[3])
local left = redis.pcall('decrby', KEYS[1], ARGV[2])
if type(left) == 'table' then
    -- Redis cannot read the value as an integer, or the user may not change it. A refused request has no effect, so it
    -- restores the mark.
    redis.call('set', KEYS[2], done, 'px', ARGV[3])
    return left
end
return 1
