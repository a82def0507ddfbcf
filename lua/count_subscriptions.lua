-- Counts the subscriptions of a channel.
--
-- ARGV[1]  channel, whose slot decides which node answers
-- ARGV[2]  optional: 'spublish' if messages go only to the nodes of the channel's slot
-- Reply    n: the channel has n subscriptions, -1 if that is unknown
local reply = redis.pcall('pubsub', ARGV[2] and 'shardnumsub' or 'numsub', ARGV[1])
return reply.err and -1 or tonumber(reply[2])
