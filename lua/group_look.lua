-- Returns the holder of values of a group, and the number of waiters.
--
-- KEYS[1]  record (hash: value -> owner id; value:owner id:expire_time -> ms since the epoch;
--          value:owner id:lock_count -> hold count)
-- ARGV[1]  values, 22 bytes each
-- ARGV[2]  owner id that must hold all of the values; empty for any holder of any value
-- ARGV[3]  channel
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {n}                       not held; the channel has n subscriptions, -1 if that is unknown
--          {n, owner id, count, ms}  held
--
-- With an owner id, count and ms are the smallest of all values. Otherwise they belong to the value that is held
-- longest. Times are the server's.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiting = redis.pcall('pubsub', ARGV[4] and 'shardnumsub' or 'numsub', ARGV[3])
local number = waiting.err and -1 or tonumber(waiting[2])
local holder, count, left
for at = 1, #ARGV[1], 22 do
    local value = string.sub(ARGV[1], at, at + 21)
    local owner = redis.call('hget', KEYS[1], value)
    local held = owner and value .. ':' .. owner
    local ms = held and tonumber(redis.call('hget', KEYS[1], held .. ':expire_time') or 0) - now or 0
    if ARGV[2] ~= '' and (ms <= 0 or owner ~= ARGV[2]) then
        return {number}
    end
    if ms > 0 then
        local times = tonumber(redis.call('hget', KEYS[1], held .. ':lock_count') or 0)
        if not holder or ARGV[2] == '' and ms > left then
            holder, count, left = owner, times, ms
        elseif ARGV[2] ~= '' then
            count, left = math.min(count, times), math.min(left, ms)
        end
    end
end
return {number, holder, count, left}
