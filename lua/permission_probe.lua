-- Tries the commands of a reentrant lock, and reports those that the user lacks the permission for. Changes no key.
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
    end
end
for _, name in ipairs({'exists', 'pttl', 'del'}) do
    try(name, ARGV[1])
end
for _, name in ipairs({'hexists', 'hget', 'hdel'}) do
    try(name, ARGV[1], 'none')
end
try('pexpire', ARGV[1], 1)
-- A field without a value: a server that permits HSET refuses the number of arguments, and writes nothing.
try('hset', ARGV[1], 'none', 0, 'none')
try(ARGV[3] or 'publish', ARGV[2], '0')
return refused
