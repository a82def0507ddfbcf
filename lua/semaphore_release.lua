-- Returns permits, or adds them.
--
-- KEYS[1]  record (integer: free permits)
-- KEYS[2]  mark (integer: number of this client's last request that took effect)
-- ARGV[1]  number of this request
-- ARGV[2]  number of permits
-- ARGV[3]  ms for which the mark is kept
-- ARGV[4]  channel
-- ARGV[5]  number of the acquire that took the permits, if it is unknown whether that acquire took effect, else '0'
-- ARGV[6]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n  released, and the message reached n subscribers; 0 if this release took effect before, or if
--             the acquire in ARGV[5] never did
--
-- The requests of a client are numbered. No request takes effect twice, or after a request with a higher number.
local done, number = tonumber(redis.call('get', KEYS[2]) or 0), tonumber(ARGV[1])
if done >= number then
    return 0
end
local free = redis.call('get', KEYS[1])
if free and not string.find(free, '^-?%d+$') then
    return redis.error_reply('WRONGTYPE the value is not a number of permits')
end
-- PEXPIRE comes first: a server out of memory accepts it, and after it the other writes of the script.
redis.call('pexpire', KEYS[2], ARGV[3])
redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[3])
if ARGV[5] ~= '0' and done ~= tonumber(ARGV[5]) then
    return 0
end
-- A refused request has no effect, so it restores the mark. The user may not publish, or the sum is out of range.
local function refused(answer)
    redis.call('set', KEYS[2], done, 'px', ARGV[3])
    return answer
end
local receivers = redis.pcall(ARGV[6] or 'publish', ARGV[4], string.format('%.0f', (free or 0) + ARGV[2]))
if type(receivers) == 'table' then
    return refused(receivers)
end
local sum = redis.pcall('incrby', KEYS[1], ARGV[2])
return type(sum) == 'table' and refused(sum) or receivers
