-- Passes permits from holders to waiters of the same client, without freeing them. Each waiter gets ids and a lease of its
-- own.
--
-- KEYS[1]       timeouts (sorted set: id of a taken permit -> end of its lease in ms since the epoch)
-- ARGV[3i - 2]  permit ids of holder i, 16 bytes each
-- ARGV[3i - 1]  as many new ids, for waiter i
-- ARGV[3i]      lease of waiter i in ms, 0 forever
-- Reply         list  one number per waiter:
--               1     passed
--               0     not passed, because one of the holder's permits is no longer held
--
-- The request has at most 1000 ids of holders: Lua's 'unpack' accepts fewer than 8000 values.
--
-- This script may run twice, because no other request contains the new ids. A repeat restarts the leases. Times are the
-- server's.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function each_id(ids, visit)
    for at = 1, #ids, 16 do
        visit(string.sub(ids, at, at + 15))
    end
end

local function all_held(ids)
    local held = true
    each_id(ids, function(id)
        held = held and tonumber(redis.call('zscore', KEYS[1], id) or 0) > now
    end)
    return held
end

local reply, added, removed = {}, {}, {}
for i = 1, #ARGV / 3 do
    local old, new, lease = ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    local held = all_held(old)
    reply[i] = (held or all_held(new)) and 1 or 0
    if reply[i] == 1 then
        -- 922337203685477 means no expiry. 1 is added because 'now' was rounded down.
        local score = lease == '0' and '922337203685477' or string.format('%.0f', now + 1 + lease)
        each_id(new, function(id)
            added[#added + 1] = score
            added[#added + 1] = id
        end)
    end
    if held then
        each_id(old, function(id)
            removed[#removed + 1] = id
        end)
    end
end
-- ZADD comes first: if the server refuses it, nothing has changed.
if #added > 0 then
    redis.call('zadd', KEYS[1], unpack(added))
end
if #removed > 0 then
    redis.call('zrem', KEYS[1], unpack(removed))
end
return reply
