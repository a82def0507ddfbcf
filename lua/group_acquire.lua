-- Acquires one hold on each of several values of a group: all of them or none.
--
-- KEYS[1]  record (hash: value -> owner id; value:owner id:expire_time -> ms since the epoch;
--          value:owner id:lock_count -> hold count)
-- KEYS[2]  mark (integer: number of the owner's last request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  ms for which the mark is kept
-- ARGV[3]  owner id
-- ARGV[4]  lease in ms
-- ARGV[5]  values, 22 bytes each
-- Reply    1              acquired
--          {'BUSY', ms}   other owners hold some of the values, for at most that time
--          {'STALE', -1}  a request with a higher number has taken effect
--          {'STALE', 0}   this request has taken effect before, and its hold has expired
--
-- The requests of an owner are numbered. No request takes effect twice, or after a request with a higher number. A
-- repeat restarts the lease. Times are the server's.
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done > number then
    return {'STALE', -1}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if done == number then
    local field = ':' .. ARGV[3] .. ':expire_time'
    for at = 1, #ARGV[5], 22 do
        local value = string.sub(ARGV[5], at, at + 21)
        local ends = tonumber(redis.call('hget', KEYS[1], value .. field) or 0)
        if ends <= now or redis.call('hget', KEYS[1], value) ~= ARGV[3] then
            return {'STALE', 0}
        end
    end
    for at = 1, #ARGV[5], 22 do
        local value = string.sub(ARGV[5], at, at + 21)
        local ends = tonumber(redis.call('hget', KEYS[1], value .. field))
        ends = string.format('%.0f', math.max(ends, now + 1 + ARGV[4])) -- 'now' was rounded down
        redis.call('hset', KEYS[1], value .. field, ends)
    end
    if redis.call('pttl', KEYS[1]) < tonumber(ARGV[4]) then
        redis.call('pexpire', KEYS[1], ARGV[4])
    end
    return 1
end
local left = 0
for at = 1, #ARGV[5], 22 do
    local value = string.sub(ARGV[5], at, at + 21)
    local owner = redis.call('hget', KEYS[1], value)
    if owner and owner ~= ARGV[3] then
        local ends = tonumber(redis.call('hget', KEYS[1], value .. ':' .. owner .. ':expire_time') or 0)
        left = math.max(left, ends - now)
    end
end
if left > 0 then
    return {'BUSY', left}
end
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
for at = 1, #ARGV[5], 22 do
    local value = string.sub(ARGV[5], at, at + 21)
    local owner = redis.call('hget', KEYS[1], value)
    local mine = value .. ':' .. ARGV[3]
    local ends = owner == ARGV[3] and tonumber(redis.call('hget', KEYS[1], mine .. ':expire_time') or 0) or 0
    if ends <= now then
        -- An expired hold no longer counts. Redisson leaves the fields of an expired hold when it takes the value, so this
        -- owner may have such fields, too.
        local lapsed = value .. ':' .. (owner or '')
        local fields = {lapsed .. ':expire_time', lapsed .. ':lock_count', mine .. ':expire_time', mine .. ':lock_count'}
        redis.call('hdel', KEYS[1], unpack(fields))
    end
    ends = string.format('%.0f', math.max(ends, now + 1 + ARGV[4])) -- 'now' was rounded down
    redis.call('hset', KEYS[1], value, ARGV[3], mine .. ':expire_time', ends)
    redis.call('hincrby', KEYS[1], mine .. ':lock_count', 1)
end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('pexpire', KEYS[1], ARGV[4])
end
return 1
