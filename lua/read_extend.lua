-- Makes a read hold last longer, if it does not already: for a further level of it, which the client counts itself.
-- KEYS[1] record (hash: owner -> hold count, and mode -> read or write)
-- KEYS[2] timeout of the hold (string, expires with its lease)
-- ARGV[1] owner as a reader
-- ARGV[2] lease in ms that both must have at least, 0 to only look
-- Reply   1 done | {'GONE'} no record | {'OTHER'} held by others
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local lease = tonumber(ARGV[2])
if lease > 0 then
    if redis.call('pttl', KEYS[2]) < lease then
        redis.call('set', KEYS[2], '1', 'px', ARGV[2])
    end
    if redis.call('pttl', KEYS[1]) < lease then
        redis.call('pexpire', KEYS[1], ARGV[2])
    end
end
return 1
