-- Releases the read hold of an owner. The record then lasts as long as the longest hold of the other readers, and is
-- deleted with the last of them.
--
-- Beside more than ten others, a record that outlasts this hold keeps its expiry. So the cost of a release does not grow
-- with the readers, unless its hold is the longest. That expiry belongs to another hold, with two exceptions: a writer that
-- became a reader may have left it, and before Redis 7.2 the two expiries of one acquire may differ by 1 ms. In both
-- cases the releases of the last readers correct it.
--
-- KEYS[1]  record (hash: owner id -> hold count, and mode -> read or write)
-- KEYS[2]  timeout of the hold (string that expires with its lease)
-- Further KEYS are the timeouts of this client's other readers, because some servers refuse access to other keys.
-- ARGV[1]  owner id as a reader
-- ARGV[2]  channel
-- ARGV[3]  part of a timeout's name before the owner id
-- ARGV[4]  part of a timeout's name between the owner id and the number of the hold
-- ARGV[5]  '1' if KEYS does not name this client's other readers, else '0'
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n          released; the message reached n subscribers
--          {'GONE'}   no record exists
--          {'OTHER'}  other owners hold the lock
--          {'KEYS'}   nothing was done: the request must name this client's other readers in KEYS
--
-- The script uses only commands that a server accepts when it is out of memory. It publishes before it deletes: if the
-- user lacks the permission to publish, the script fails and the record stays.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local size, crowd = redis.call('hlen', KEYS[1]), 12
local ends = size > crowd and redis.call('pttl', KEYS[2]) or 0
if ends > 0 and ends < redis.call('pttl', KEYS[1]) then
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('del', KEYS[2])
    return 0
end
local writes = size > 2 and redis.call('hget', KEYS[1], 'mode') == 'write'
-- Other clients may have written any number of owners and counts. The script reads at most 1000 timeouts.
local limit, count, longest = 1000, 0, 0
local known = size <= limit
local fields = known and size > 2 and not writes and redis.call('hgetall', KEYS[1]) or {}
for i = 1, #fields, 2 do
    if fields[i] ~= 'mode' and fields[i] ~= ARGV[1] then
        local holds = math.max(tonumber(fields[i + 1]) or 0, 0)
        count = count + holds
        -- This comparison is false for NaN.
        known = known and count <= limit
        for hold = 1, known and holds or 0 do
            -- Some servers refuse access to keys that are not in KEYS, and the client knows only its own readers.
            local left = redis.pcall('pttl', ARGV[3] .. fields[i] .. ARGV[4] .. hold)
            if ARGV[5] == '1' and type(left) ~= 'number' then
                return {'KEYS'}
            end
            known = known and type(left) == 'number'
            longest = known and math.max(longest, left) or longest
        end
    end
end
local receivers = 0
-- Readers whose holds have expired do not count. A remaining writer has no timeout; its hold ends with the record.
if known and longest == 0 and not writes then
    receivers = redis.call(ARGV[6] or 'publish', ARGV[2], '0')
    redis.call('del', KEYS[1], KEYS[2])
else
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('del', KEYS[2])
    -- If it is unknown when the other holds end, the record keeps its expiry.
    if known and not writes then
        redis.call('pexpire', KEYS[1], longest)
    end
end
return receivers
