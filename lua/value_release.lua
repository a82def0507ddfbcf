-- Deletes a token, and tells those who listen: clients of other libraries do not. Publishes first: were the channel
-- forbidden, the record would stay.
-- KEYS[1] record (string: the holder's token)
-- ARGV[1] token
-- ARGV[2] channel
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n freed, and n subscribers were told | {'GONE'} no record | {'OTHER'} another holds
local token = redis.call('get', KEYS[1])
if token ~= ARGV[1] then
    return {token and 'OTHER' or 'GONE'}
end
local told = redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return told
