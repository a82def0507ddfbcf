-- Reads the record of a lock, semaphore or latch of any kind, and what tells its kind, all at the same moment.
--
-- KEYS[1]  record (of any type)
-- KEYS[2]  queue of a fair lock (list: owner ids of the waiters, the first one at the head)
-- KEYS[3]  token of a fenced lock (integer: the last token)
-- KEYS[4]  timeouts of an expirable semaphore (sorted set: id of a taken permit -> end of its lease)
-- ARGV[1]  channel of the releases of a lock
-- ARGV[2]  channel of the releases of a read/write lock
-- ARGV[3]  channel of the permits of a semaphore
-- ARGV[4]  channel of a latch
-- ARGV[5]  how many fields to read at least; in a large hash, the others may be missing
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {type}  the record is of a type that no kind has
--          {type, ttl, content, mode, token, queue, n, taken, {n1, n2, n3, n4}, now}
--                  ms that the record has left, -1 if it never expires, -2 if it is absent; for a hash the reply of
--                  HSCAN, for a string its first 256 bytes; the field 'mode' of a hash; the last token; the first 100
--                  owners in the queue; n owners wait; the number of taken permits; the number of subscriptions of each
--                  channel, none if it is unknown; ms since the epoch
--
-- Each reply but that of the record is nil if the user may not read it.
local kind = redis.call('type', KEYS[1]).ok
local content, mode = false, false
if kind == 'hash' then
    content = redis.call('hscan', KEYS[1], '0', 'count', ARGV[5])
    mode = redis.call('hget', KEYS[1], 'mode')
elseif kind == 'string' then
    content = redis.call('getrange', KEYS[1], 0, 255)
elseif kind ~= 'none' then
    return {kind}
end
-- The other keys may be of any type, too, and the user may lack the permission for them.
local function try(...)
    local answer = redis.pcall(...)
    if type(answer) == 'table' and answer.err then
        return false
    end
    return answer
end
local numbers = {}
local command = ARGV[6] and 'shardnumsub' or 'numsub'
local waiting = try('pubsub', command, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
for at = 2, waiting and #waiting or 0, 2 do
    numbers[#numbers + 1] = tonumber(waiting[at])
end
local time = try('time')
local now = time and time[1] * 1000 + math.floor(time[2] / 1000)
return {
    kind, redis.call('pttl', KEYS[1]), content, mode, try('get', KEYS[3]), try('lrange', KEYS[2], 0, 99),
    try('llen', KEYS[2]), try('zcard', KEYS[4]), numbers, now,
}
