-- Reports the holder of a value lock, its lease, and its waiters, all at the same moment.
--
-- KEYS[1]  record (string: the holder's token)
-- ARGV[1]  channel
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {token, ttl, n}  the token, nil if the record is absent; ms that the record has left, -1 if it never expires,
--                           -2 if it is absent; the channel has n subscriptions, -1 if that is unknown
local waiting = redis.pcall('pubsub', ARGV[2] and 'shardnumsub' or 'numsub', ARGV[1])
local number = waiting.err and -1 or tonumber(waiting[2])
return {redis.call('get', KEYS[1]), redis.call('pttl', KEYS[1]), number}
