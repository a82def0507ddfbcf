-- Gives values of a group back once. Harmless to repeat: the requests of an owner are numbered, and none takes effect
-- after a later one has. Times are the server's.
-- KEYS[1] record (hash: value -> owner; value:owner:expire_time -> ms since the epoch; value:owner:lock_count -> count)
-- KEYS[2] mark (integer: the last request of the owner that took effect)
-- ARGV[1] number of this request
-- ARGV[2] ms that the mark is kept
-- ARGV[3] owner
-- ARGV[4] number of the request that took them, if that may not have taken effect, else '0'
-- ARGV[5] values, of 22 bytes each
-- ARGV[6] channel
-- ARGV[7] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n given back, and n subscribers were told, 0 if it was done before | {'GONE'} one of them was not held
--         any more
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local told, lived = 0, true
-- First: a server out of memory lets it pass, and then what follows.
redis.call('pexpire', KEYS[2], ARGV[2])
if ARGV[4] == '0' or done == tonumber(ARGV[4]) then
    -- Before the values: were the channel forbidden, nothing would change.
    told = redis.call(ARGV[7] or 'publish', ARGV[6], '0')
    for at = 1, #ARGV[5], 22 do
        local value = string.sub(ARGV[5], at, at + 21)
        local mine = value .. ':' .. ARGV[3]
        if redis.call('hget', KEYS[1], value) ~= ARGV[3] then
            lived = false
        else
            lived = lived and tonumber(redis.call('hget', KEYS[1], mine .. ':expire_time') or 0) > now
            local count = tonumber(redis.call('hget', KEYS[1], mine .. ':lock_count') or 0)
            if count > 1 then
                redis.call('hset', KEYS[1], mine .. ':lock_count', count - 1)
            else
                redis.call('hdel', KEYS[1], value, mine .. ':expire_time', mine .. ':lock_count')
            end
        end
    end
end
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return lived and told or {'GONE'}
