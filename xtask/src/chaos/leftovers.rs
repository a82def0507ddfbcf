//! Finds keys and subscriptions that remain on a server after all clients have stopped.

use std::time::{Duration, SystemTime};

use super::history::Permits;
use super::keys::capacity;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the keys that should not be there. `java` is the id of the Redisson that took part.
pub fn find(server: &Server, java: Option<&str>) -> Vec<String> {
    let call = |words: &[&str]| server.call(words, TIMEOUT).unwrap_or_else(|problem| vec![problem]);
    let mut left = Vec::new();
    for key in call(&["KEYS", "*"]) {
        let unexpected = match key.split(':').next().unwrap_or_default() {
            // The mark of a client's last request. It must have an expiry.
            _ if key.contains(":redisson-lock:") => {
                call(&["PTTL", &key]).into_iter().filter(|ttl| ttl == "-1").collect()
            }
            // The number of permits is judged with the history.
            "semaphore" | "javasemaphore" | "expirable" => Vec::new(),
            "{expirable" => call(&["ZRANGEBYSCORE", &key, &wall_clock_ms(), "+inf"]),
            // Never expires, so that tokens never restart.
            "redisson_lock_token" => Vec::new(),
            // Redisson leaves the queue entry of a waiter whose call failed.
            "redisson_lock_queue" => waiters(call(&["LRANGE", &key, "0", "-1"]), java),
            "redisson_lock_timeout" => waiters(call(&["ZRANGE", &key, "0", "-1"]), java),
            // Expires; 3.52.0 never deletes it.
            "redisson_unlock_latch" if java.is_some() => Vec::new(),
            _ => vec![record(&key, &call)],
        };
        left.extend(unexpected.into_iter().map(|value| format!("{key}: {value}")));
    }
    left
}

/// Describes a record: its time to live in milliseconds and, of a hash, its fields.
fn record(key: &str, call: &impl Fn(&[&str]) -> Vec<String>) -> String {
    let ttl = call(&["PTTL", key]).concat();
    match call(&["TYPE", key]).concat().as_str() {
        "hash" => format!("{ttl} {}", call(&["HGETALL", key]).join(" ")),
        _ => ttl,
    }
}

/// Returns our remaining subscriptions, recognized by their user. Redisson's are not our concern.
pub fn subscribers(server: &Server) -> Vec<String> {
    let call = |words: &[&str]| server.call(words, TIMEOUT).unwrap_or_else(|problem| vec![problem]);
    let mut left = Vec::new();
    for subscribers in call(&["CLIENT", "LIST", "TYPE", "pubsub"]) {
        let ours = subscribers.lines().filter(|line| line.contains(" user=chaos "));
        left.extend(ours.map(str::to_owned));
    }
    left
}

/// Returns the number of permits of each semaphore.
pub fn permits(server: &Server) -> Result<Vec<Permits>, String> {
    let number = |words: &[&str]| -> Result<i64, String> {
        let reply = server.call(words, TIMEOUT)?;
        reply.concat().parse().map_err(|_| format!("{}: {reply:?}", words.join(" ")))
    };
    let keys = server.call(&["KEYS", "*"], TIMEOUT)?;
    let semaphores =
        keys.into_iter().filter(|key| !key.starts_with('{') && key.contains(':') && capacity(key) > 1);
    let semaphores = semaphores.filter(|key| !key.starts_with("readwrite"));
    semaphores
        .map(|key| {
            let free = number(&["GET", &key])?;
            // Expired permits that nobody has collected yet.
            let expired = number(&["ZCARD", &format!("{{{key}}}:timeout")])?;
            Ok(Permits { key, free: free + expired })
        })
        .collect()
}

fn waiters(all: Vec<String>, java: Option<&str>) -> Vec<String> {
    all.into_iter().filter(|owner| java.is_none_or(|java| !owner.starts_with(java))).collect()
}

fn wall_clock_ms() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_millis().to_string()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{BufRead, Write};
    use std::path::Path;

    use super::*;

    /// With every permission, like the clients of the campaign.
    const USER: [&str; 7] = ["ACL", "SETUSER", "chaos", "on", "nopass", "+@all", "&*"];

    fn server() -> Server {
        let program = env::var_os("REDISSON_LOCK_SERVER").expect("`cargo xtask test` names it");
        Server::start(Path::new(&program), &[]).unwrap()
    }

    fn run(server: &Server, commands: &[&str]) {
        for command in commands {
            server.call(&command.split(' ').collect::<Vec<_>>(), TIMEOUT).unwrap();
        }
    }

    #[test]
    fn expected_keys_are_not_reported() {
        let server = server();
        run(
            &server,
            &[
                "SET {semaphore:1}:redisson-lock:id 7 PX 60000",
                "SET semaphore:1 3",
                "SET javasemaphore:1 3",
                "SET expirable:1 3",
                "ZADD {expirable:1}:timeout 1 expired",
                "SET redisson_lock_token:{fenced:hot} 7",
            ],
        );
        assert_eq!(find(&server, None), Vec::<String>::new());
    }

    #[test]
    fn unexpected_keys_are_reported() {
        for (command, found) in [
            ("HSET hot:0 owner 1", "hot:0: -1 owner 1"),
            ("HSET readwrite:hot mode read", "readwrite:hot: -1 mode read"),
            ("SET {semaphore:1}:redisson-lock:id 7", "{semaphore:1}:redisson-lock:id: -1"),
            ("ZADD {expirable:1}:timeout 99999999999999 held", "{expirable:1}:timeout: held"),
            ("RPUSH redisson_lock_queue:{fair:hot} id:1", "redisson_lock_queue:{fair:hot}: id:1"),
            ("ZADD redisson_lock_timeout:{fair:hot} 1 id:1", "redisson_lock_timeout:{fair:hot}: id:1"),
            ("SET redisson_unlock_latch:{hot:0}:id 1", "redisson_unlock_latch:{hot:0}:id: -1"),
        ] {
            let server = server();
            run(&server, &[command]);
            assert_eq!(find(&server, None), [found]);
        }
    }

    #[test]
    fn leftovers_of_java_are_not_reported() {
        let server = server();
        run(
            &server,
            &[
                "RPUSH redisson_lock_queue:{fair:hot} java:1 ours:1",
                "ZADD redisson_lock_timeout:{fair:hot} 1 java:1",
                "SET redisson_unlock_latch:{hot:0}:id 1",
            ],
        );
        assert_eq!(find(&server, Some("java")), ["redisson_lock_queue:{fair:hot}: ours:1"]);
    }

    #[test]
    fn our_subscriptions_are_reported() {
        let server = server();
        server.call(&USER, TIMEOUT).unwrap();
        let subscribe = |user: &str| {
            let mut subscriber = server.send(&["AUTH", user, ""]).unwrap();
            subscriber.get_mut().write_all(b"SUBSCRIBE redisson_lock__channel:{hot:0}\r\n").unwrap();
            // An array confirms the subscription, after the reply to AUTH.
            for kind in ["+OK", "*3"] {
                let mut line = String::new();
                subscriber.read_line(&mut line).unwrap();
                assert_eq!(line.trim_end(), kind);
            }
            subscriber
        };
        let others = subscribe("default");
        assert_eq!(subscribers(&server), Vec::<String>::new());
        let ours = subscribe("chaos");
        assert_eq!(subscribers(&server).len(), 1);
        drop((others, ours));
    }

    #[test]
    fn free_and_expired_permits_are_counted() {
        let server = server();
        run(&server, &["SET semaphore:1 2", "SET expirable:1 1", "ZADD {expirable:1}:timeout 1 a 2 b"]);
        let mut permits = permits(&server).unwrap();
        permits.sort_by(|one, other| one.key.cmp(&other.key));
        let permits: Vec<_> = permits.iter().map(|permits| (&*permits.key, permits.free)).collect();
        assert_eq!(permits, [("expirable:1", 3), ("semaphore:1", 2)]);
    }
}
