-- Releases an owner's holds on values of a group, except those that it keeps.
--
-- KEYS[1]  record (hash: value -> owner id; value:owner id:expire_time -> ms since the epoch;
--          value:owner id:lock_count -> hold count)
-- KEYS[2]  mark (integer: number of the owner's last request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  ms for which the mark is kept
-- ARGV[3]  owner id
-- ARGV[4]  number of holds that the owner keeps on each value, separated by spaces
-- ARGV[5]  values, 22 bytes each
-- ARGV[6]  channel
-- ARGV[7]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n         released, and the message reached n subscribers; 0 if the request took effect before
--          {'GONE'}  one of the values was no longer held
--
-- The requests of an owner are numbered. No request takes effect twice, or after a request with a higher number. Times
-- are the server's.
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all_held = true
-- PEXPIRE comes first: a server out of memory accepts it, and after it the other writes of the script.
redis.call('pexpire', KEYS[2], ARGV[2])
-- PUBLISH comes before the values change: if the user may not publish, nothing changes.
local receivers = redis.call(ARGV[7] or 'publish', ARGV[6], '0')
local kept = string.gmatch(ARGV[4], '%d+')
for at = 1, #ARGV[5], 22 do
    local value, keep = string.sub(ARGV[5], at, at + 21), tonumber(kept())
    local mine = value .. ':' .. ARGV[3]
    if redis.call('hget', KEYS[1], value) ~= ARGV[3] then
        all_held = false
        -- Redisson leaves these fields when it takes an expired value.
        redis.call('hdel', KEYS[1], mine .. ':expire_time', mine .. ':lock_count')
    else
        all_held = all_held and tonumber(redis.call('hget', KEYS[1], mine .. ':expire_time') or 0) > now
        local count = tonumber(redis.call('hget', KEYS[1], mine .. ':lock_count') or 0)
        if math.min(count, keep) > 0 then
            redis.call('hset', KEYS[1], mine .. ':lock_count', math.min(count, keep))
        else
            redis.call('hdel', KEYS[1], value, mine .. ':expire_time', mine .. ':lock_count')
        end
    end
end
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
return all_held and receivers or {'GONE'}
