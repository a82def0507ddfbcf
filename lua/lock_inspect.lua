-- Reports the holders of a lock, its lease, and its waiters, all at the same moment.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- ARGV[1]  channel
-- ARGV[2]  how many fields to read at least; in a large hash, the others may be missing
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {fields, ttl, n}  the reply of HSCAN; ms that the record has left, -1 if it never expires, -2 if it is
--                            absent; the channel has n subscriptions, -1 if that is unknown
local waiting = redis.pcall('pubsub', ARGV[3] and 'shardnumsub' or 'numsub', ARGV[1])
local number = waiting.err and -1 or tonumber(waiting[2])
return {redis.call('hscan', KEYS[1], '0', 'count', ARGV[2]), redis.call('pttl', KEYS[1]), number}
