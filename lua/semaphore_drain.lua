-- Takes all permits that are free; the record lives for ever from then on. Not harmless to repeat.
-- KEYS[1] record (integer: permits that are free)
-- Reply   permits that were free
local free = redis.call('get', KEYS[1])
if not free then
    return 0
end
if not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is no number of permits')
end
redis.call('set', KEYS[1], '0')
return tonumber(free)
