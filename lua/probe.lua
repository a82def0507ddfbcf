-- Finds out which commands of the other scripts the user may not run, without changing anything.
-- ARGV[1] a key that does not exist; no KEYS, because a user who may not use it is to be told of his commands still
-- ARGV[2] a channel that nobody listens to
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   {name, error, name, error, ..} of the commands that were refused
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
-- A field without its value: refused as such by a server that would otherwise run it.
try('hset', ARGV[1], 'none', 0, 'none')
try(ARGV[3] or 'publish', ARGV[2], '0')
return refused
