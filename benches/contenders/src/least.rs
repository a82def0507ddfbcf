//! The least scripts that acquire and release Redisson's record of a kind: the floor for a library that uses scripts. They serve no waiters,
//! and a repeat of them is not safe.

/// The acquire and the release of a kind. Its key, owner, lease in ms and channel are those of a plain lock: `KEYS[1]`, `ARGV[1]` and
/// `ARGV[2]`. A semaphore has one permit.
pub fn scripts(kind: &str) -> [&'static str; 2] {
    const PUBLISHED: &str = "
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    redis.call('publish', ARGV[2], 0)
    return 1
end";
    match kind {
        "fair" => [
            "
if redis.call('exists', KEYS[1]) == 0 and redis.call('exists', 'queue:' .. KEYS[1]) == 0 then
    redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return 0",
            "
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    if redis.call('exists', 'queue:' .. KEYS[1]) == 1 then
        redis.call('publish', ARGV[2], 0)
    end
    return 1
end",
        ],
        "fenced" => [
            "
if redis.call('exists', KEYS[1]) == 0 then
    redis.call('incr', 'token:' .. KEYS[1])
    redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return 0",
            PUBLISHED,
        ],
        "read" => [
            "
if (redis.call('hget', KEYS[1], 'mode') or 'read') == 'read' then
    redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1)
    redis.call('set', 'timeout:' .. KEYS[1], 1, 'px', ARGV[2])
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return 0",
            "
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    redis.call('del', 'timeout:' .. KEYS[1])
    if redis.call('hlen', KEYS[1]) == 1 then
        redis.call('del', KEYS[1])
        redis.call('publish', ARGV[2], 0)
    end
    return 1
end",
        ],
        "write" => [
            "
if redis.call('exists', KEYS[1]) == 0 then
    redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return 0",
            "
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    redis.call('del', KEYS[1])
    redis.call('publish', ARGV[2], 0)
    return 1
end",
        ],
        "spin" => [
            "
if redis.call('exists', KEYS[1]) == 0 then
    redis.call('hset', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return 0",
            "
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    return 1
end",
        ],
        "semaphore" => [
            "
local free = tonumber(redis.call('get', KEYS[1]) or 1)
if free > 0 then
    redis.call('set', KEYS[1], free - 1)
    return nil
end
return 0",
            "
redis.call('incrby', KEYS[1], 1)
redis.call('publish', ARGV[2], 1)
return 1",
        ],
        "expirable" => [
            "
local now, free = redis.call('time'), tonumber(redis.call('get', KEYS[1]) or 1)
if free > 0 then
    redis.call('set', KEYS[1], free - 1)
    redis.call('zadd', 'timeouts:' .. KEYS[1], now[1] * 1000 + ARGV[2], ARGV[1])
    return nil
end
return 0",
            "
if redis.call('zrem', 'timeouts:' .. KEYS[1], ARGV[1]) == 1 then
    redis.call('incrby', KEYS[1], 1)
    redis.call('publish', ARGV[2], 1)
    return 1
end",
        ],
        "value" => [
            "
if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then
    return nil
end
return 0",
            "
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
end",
        ],
        other => panic!("unknown kind: {other}"),
    }
}
