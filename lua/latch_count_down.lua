-- Counts a latch down by one. If the count reaches 0, deletes the record and notifies the waiters.
--
-- KEYS[1]  record (integer: remaining count)
-- KEYS[2]  mark (integer: number of this client's last request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  ms for which the mark is kept
-- ARGV[3]  channel
-- ARGV[4]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n  done; the message reached n subscribers
--
-- The requests of a client are numbered. No request takes effect twice, or after a request with a higher number.
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local count = redis.call('get', KEYS[1])
if count and not string.find(count, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a count')
end
-- PEXPIRE comes first: a server out of memory accepts it, and after it the other writes of the script.
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
if not count then
    return 0
end
-- A refused request has no effect, so it restores the mark. The user may not publish, or Redis cannot read the count as an
-- integer.
local function refused(answer)
    redis.call('set', KEYS[2], done, 'px', ARGV[2])
    return answer
end
local receivers = count == '1' and redis.pcall(ARGV[4] or 'publish', ARGV[3], '0') or 0
if type(receivers) == 'table' then
    return refused(receivers)
end
local left = redis.pcall('decr', KEYS[1])
if type(left) == 'table' then
    return refused(left)
end
if left <= 0 then
    redis.call('del', KEYS[1])
end
return receivers
