-- Frees values of a group, whoever holds them.
--
-- KEYS[1]  record (hash: value -> owner id; value:owner id:expire_time -> ms since the epoch;
--          value:owner id:lock_count -> hold count)
-- ARGV[1]  values, 22 bytes each
-- ARGV[2]  channel
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  freed
--          0  none of the values was held
--
-- This request must not be repeated: the repeat would free the lock of a later holder.
local freed = 0
for at = 1, #ARGV[1], 22 do
    local value = string.sub(ARGV[1], at, at + 21)
    local owner = redis.call('hget', KEYS[1], value)
    if owner then
        if freed == 0 then
            redis.call(ARGV[3] or 'publish', ARGV[2], '0')
        end
        freed = 1
        local held = value .. ':' .. owner
        redis.call('hdel', KEYS[1], value, held .. ':expire_time', held .. ':lock_count')
    end
end
return freed
