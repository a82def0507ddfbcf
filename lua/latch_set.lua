-- Creates a latch, if none exists.
--
-- KEYS[1]  record (integer: remaining count)
-- ARGV[1]  count
-- ARGV[2]  channel
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    1  created
--          0  the latch exists
--
-- This request must not be repeated: the reply would differ.
if redis.call('exists', KEYS[1]) == 1 then
    return 0
end
redis.call(ARGV[3] or 'publish', ARGV[2], '1')
redis.call('set', KEYS[1], ARGV[1])
return 1
