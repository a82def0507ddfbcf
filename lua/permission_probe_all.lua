-- Tries the commands of every kind, and reports those that were refused. Leaves no key.
--
-- ARGV[1]  name of a key that does not exist; not in KEYS, so that the probe also works for a user without access to
--          this key
-- ARGV[2]  channel without subscribers
-- ARGV[3]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    {name, error, ..}  the name and the error of each command that was refused
local refused = {}
local function try(name, ...)
    local answer = redis.pcall(name, ...)
    if type(answer) == 'table' and answer.err then
        refused[#refused + 1] = name
        refused[#refused + 1] = answer.err
        return false
    end
    return true
end
for _, name in ipairs({
    'exists', 'get', 'hgetall', 'hlen', 'llen', 'lpop', 'persist', 'pttl', 'type', 'zcard',
}) do
    try(name, ARGV[1])
end
for _, name in ipairs({'hdel', 'hexists', 'hget', 'zrem', 'zscore'}) do
    try(name, ARGV[1], 'none')
end
for _, name in ipairs({'lrange', 'getrange', 'zrange', 'zrangebyscore', 'zremrangebyscore'}) do
    try(name, ARGV[1], 0, 0)
end
try('hscan', ARGV[1], 0)
try('lindex', ARGV[1], 0)
try('lrem', ARGV[1], 0, 'none')
try('pexpire', ARGV[1], 1)
-- A server that permits these refuses an argument, and writes nothing.
try('hset', ARGV[1], 'none', 0, 'none')
try('hincrby', ARGV[1], 'none', 'none')
try('incrby', ARGV[1], 'none')
try('decrby', ARGV[1], 'none')
try('set', ARGV[1], 'none', 'none')
try('zadd', ARGV[1], 'none', 'none')
-- These write, so they are tried only if the key can be deleted.
if try('del', ARGV[1]) then
    for _, name in ipairs({'incr', 'decr'}) do
        try(name, ARGV[1])
        redis.call('del', ARGV[1])
    end
    for _, name in ipairs({'lpush', 'rpush'}) do
        try(name, ARGV[1], 'none')
        redis.call('del', ARGV[1])
    end
end
try('time')
try('pubsub', ARGV[3] and 'shardnumsub' or 'numsub', ARGV[2])
try(ARGV[3] or 'publish', ARGV[2], '0')
return refused
