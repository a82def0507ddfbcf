-- Reports the holder of a fair lock, its lease, and its waiters, all at the same moment.
--
-- KEYS[1]  record (hash: owner id -> hold count)
-- KEYS[2]  queue (list: owner ids of the waiters, the first one at the head; it alone decides the order)
-- ARGV[1]  how many fields to read at least; in a large hash, the others may be missing
-- Reply    {fields, ttl, n}  the reply of HSCAN; ms that the record has left, -1 if it never expires, -2 if it is
--                            absent; n owners wait
local fields = redis.call('hscan', KEYS[1], '0', 'count', ARGV[1])
return {fields, redis.call('pttl', KEYS[1]), redis.call('llen', KEYS[2])}
