-- Adds permits, or takes them away, which may leave fewer than none; the record lives for ever from then on. Not harmless
-- to repeat.
-- KEYS[1] record (integer: permits that are free)
-- ARGV[1] permits, below 0 to take away
-- ARGV[2] channel
-- ARGV[3] '1' if permits have ids: then it is told how many came, and nothing if none did; else how many are free
-- ARGV[4] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   permits that are free
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
if ARGV[3] ~= '1' then
    redis.call(ARGV[4] or 'publish', ARGV[2], string.format('%.0f', (free or 0) + ARGV[1]))
elseif tonumber(ARGV[1]) > 0 then
    redis.call(ARGV[4] or 'publish', ARGV[2], ARGV[1])
end
free = redis.call('incrby', KEYS[1], ARGV[1])
redis.call('persist', KEYS[1])
return free
