-- Makes a latch, if there is none. Not harmless to repeat: the answer would differ.
-- KEYS[1] record (integer: how often it is to be counted down yet)
-- ARGV[1] count
-- ARGV[2] channel
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   1 made | 0 there is one
if redis.call('exists', KEYS[1]) == 1 then
    return 0
end
redis.call(ARGV[3] or 'publish', ARGV[2], '1')
redis.call('set', KEYS[1], ARGV[1])
return 1
