-- The last release of an owner, whatever count the record has. Uses only commands that a server out of
-- memory still accepts, and publishes first: were the channel forbidden, the record would stay.
-- KEYS[1] record (hash: owner -> hold count)
-- ARGV[1] owner
-- ARGV[2] channel, empty where nobody is told
-- ARGV[3] 'spublish' where each message is for the nodes of its slot alone, else absent
-- Reply   n freed, and n subscribers were told | {'GONE'} no record | {'OTHER'} held by others
if not redis.call('hget', KEYS[1], ARGV[1]) then
    return {redis.call('exists', KEYS[1]) == 0 and 'GONE' or 'OTHER'}
end
local told = ARGV[2] == '' and 0 or redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return told
