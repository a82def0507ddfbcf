//! The least scripts that acquire and release Redisson's record of a kind: the floor for a library that uses scripts. They serve no waiters,
//! and a repeat of them is not safe.

/// The acquire and the release of a kind. Its key, owner, lease in ms and channel are those of a plain lock: `KEYS[1]`, `ARGV[1]` and
/// `ARGV[2]`. A semaphore has one permit.
pub fn scripts(kind: &str) -> [String; 2] {
    const FREE: &str = "redis.call('exists', KEYS[1]) == 0";
    const HELD: &str = "redis.call('hset', KEYS[1], ARGV[1], 1)";
    const EXPIRES: &str = "redis.call('pexpire', KEYS[1], ARGV[2])";
    const LEFT: &str = "redis.call('hdel', KEYS[1], ARGV[1]) == 1";
    const PUBLISH: &str = "redis.call('publish', ARGV[2], 1)";
    const PERMITS: &str = "tonumber(redis.call('get', KEYS[1]) or 1) > 0";
    const TAKE: &str = "redis.call('set', KEYS[1], 0)";
    let acquire = |condition: &str, effects: &[&str]| {
        format!("if {condition} then {} return nil end return 0", effects.join(" "))
    };
    let release =
        |condition: &str, effects: &[&str]| format!("if {condition} then {} return 1 end", effects.join(" "));
    match kind {
        "fair" => {
            let queue = "redis.call('exists', 'queue:' .. KEYS[1])";
            let notify = format!("if {queue} == 1 then {PUBLISH} end");
            [acquire(&format!("{FREE} and {queue} == 0"), &[HELD, EXPIRES]), release(LEFT, &[&notify])]
        }
        "fenced" => {
            let count = "redis.call('incr', 'token:' .. KEYS[1])";
            [acquire(FREE, &[count, HELD, EXPIRES]), release(LEFT, &[PUBLISH])]
        }
        "read" => {
            let shared = "(redis.call('hget', KEYS[1], 'mode') or 'read') == 'read'";
            let held = "redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1)";
            let timeout = "redis.call('set', 'timeout:' .. KEYS[1], 1, 'px', ARGV[2])";
            let ended = "redis.call('del', 'timeout:' .. KEYS[1])";
            let free =
                format!("if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1]) {PUBLISH} end");
            [acquire(shared, &[held, timeout, EXPIRES]), release(LEFT, &[ended, &free])]
        }
        "write" => {
            let held = "redis.call('hset', KEYS[1], 'mode', 'write', ARGV[1], 1)";
            [acquire(FREE, &[held, EXPIRES]), release(LEFT, &["redis.call('del', KEYS[1])", PUBLISH])]
        }
        "spin" => [acquire(FREE, &[HELD, EXPIRES]), release(LEFT, &[])],
        "semaphore" => {
            [acquire(PERMITS, &[TAKE]), release("true", &["redis.call('incrby', KEYS[1], 1)", PUBLISH])]
        }
        "expirable" => {
            let ends = "redis.call('time')[1] * 1000 + ARGV[2]";
            let held = format!("redis.call('zadd', 'timeouts:' .. KEYS[1], {ends}, ARGV[1])");
            let left = "redis.call('zrem', 'timeouts:' .. KEYS[1], ARGV[1]) == 1";
            let free = "redis.call('incrby', KEYS[1], 1)";
            [acquire(PERMITS, &[TAKE, &held]), release(left, &[free, PUBLISH])]
        }
        "value" => {
            let owned = "redis.call('get', KEYS[1]) == ARGV[1]";
            let free = "redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])";
            [acquire(free, &[]), release(owned, &["redis.call('del', KEYS[1])"])]
        }
        other => panic!("unknown kind: {other}"),
    }
}
