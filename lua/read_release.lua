-- The last read release of an owner. The record lives on as long as the longest hold of the other readers, and ends
-- with the last of them. Uses only commands that a server out of memory still accepts, and publishes first: were the
-- channel forbidden, the record would stay.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- KEYS[2] timeout of the hold (string, expires with its lease)
-- ARGV[1] owner as a reader
-- ARGV[2] channel
-- ARGV[3] what precedes an owner in the name of a timeout
-- ARGV[4] what follows it, and precedes the number of the hold
-- ARGV[5] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n freed, and n subscribers were told | {'GONE'} no record | {'OTHER'} held by others
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local writes, size = redis.call('hget', KEYS[1], 'mode') == 'write', redis.call('hlen', KEYS[1])
-- The owners and counts of the others are whatever somebody put there: a thousand timeouts are looked at and no more.
local most, looks, longest = 1000, 0, 0
local known = size <= most
local fields = known and size > 2 and redis.call('hgetall', KEYS[1]) or {}
for i = 1, #fields, 2 do
    if fields[i] ~= 'mode' and fields[i] ~= ARGV[1] then
        local holds = math.max(tonumber(fields[i + 1]) or 0, 0)
        looks = looks + holds
        -- Not true of a number that is none.
        known = known and looks <= most
        for hold = 1, known and holds or 0 do
            -- Some servers refuse a script the keys that it was not given, and nobody can give it these.
            local left = redis.pcall('pttl', ARGV[3] .. fields[i] .. ARGV[4] .. hold)
            known = known and type(left) == 'number'
            longest = known and math.max(longest, left) or longest
        end
    end
end
local told = 0
-- Readers whose holds have all lapsed do not count. A writer that is left goes by the record alone.
if known and longest == 0 and not (writes and size > 2) then
    told = redis.call(ARGV[5] or 'publish', ARGV[2], '0')
    redis.call('del', KEYS[1], KEYS[2])
else
    redis.call('hdel', KEYS[1], ARGV[1])
    redis.call('del', KEYS[2])
    -- Where it is not known when the others end, the record keeps its expiry.
    if known and not writes then
        redis.call('pexpire', KEYS[1], longest)
    end
end
return told
