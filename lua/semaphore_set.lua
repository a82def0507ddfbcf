-- Makes a semaphore, if there is none, and tells those who wait. Not harmless to repeat: the answer would differ.
-- KEYS[1] record (integer: permits that are free)
-- ARGV[1] permits
-- ARGV[2] ms that it lives, 0 for ever
-- ARGV[3] channel
-- ARGV[4] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 made | 0 there is one
if redis.call('exists', KEYS[1]) == 1 then
    return 0
end
redis.call(ARGV[4] or 'publish', ARGV[3], ARGV[1])
redis.call('set', KEYS[1], ARGV[1])
if ARGV[2] ~= '0' then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
