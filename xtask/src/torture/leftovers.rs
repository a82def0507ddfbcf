//! What is left in the server when nobody wants anything any more.

use std::time::{Duration, SystemTime};

use super::history::Permits;
use super::keys::capacity;
use crate::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);

/// What should not be there. `java` is the id of a Redisson that took part.
pub fn find(server: &Server, java: Option<&str>) -> Vec<String> {
    let ask = |words: &[&str]| server.ask(words, PATIENCE).unwrap_or_else(|problem| vec![problem]);
    let mut left = Vec::new();
    for key in ask(&["KEYS", "*"]) {
        let mine = match key.split(':').next().unwrap_or_default() {
            // The mark of a client's last request; it is to end.
            _ if key.contains(":redisson-lock:") => {
                ask(&["PTTL", &key]).into_iter().filter(|ttl| ttl == "-1").collect()
            }
            // What permits are left is judged with the history.
            "semaphore" | "javasemaphore" | "expirable" => Vec::new(),
            "{expirable" => ask(&["ZRANGEBYSCORE", &key, &wall_clock_ms(), "+inf"]),
            // Never ends, so that the numbers never begin again.
            "redisson_lock_token" => Vec::new(),
            // A waiter whose call failed leaves its place behind, in Redisson.
            "redisson_lock_queue" => waiters(ask(&["LRANGE", &key, "0", "-1"]), java),
            "redisson_lock_timeout" => waiters(ask(&["ZRANGE", &key, "0", "-1"]), java),
            // Ends by itself; 3.52.0 never deletes it.
            "redisson_unlock_latch" if java.is_some() => Vec::new(),
            _ => ask(&["PTTL", &key]),
        };
        left.extend(mine.into_iter().map(|what| format!("{key}: {what}")));
    }
    left
}

/// Subscriptions. Ours are known by their user: what Redisson leaves is its own affair.
pub fn subscribers(server: &Server) -> Vec<String> {
    let ask = |words: &[&str]| server.ask(words, PATIENCE).unwrap_or_else(|problem| vec![problem]);
    let mut left = Vec::new();
    for subscribers in ask(&["CLIENT", "LIST", "TYPE", "pubsub"]) {
        let ours = subscribers.lines().filter(|line| line.contains(" user=torture "));
        left.extend(ours.map(str::to_owned));
    }
    left
}

/// How the semaphores stand.
pub fn permits(server: &Server) -> Result<Vec<Permits>, String> {
    let number = |words: &[&str]| -> Result<i64, String> {
        let reply = server.ask(words, PATIENCE)?;
        reply.concat().parse().map_err(|_| format!("{}: {reply:?}", words.join(" ")))
    };
    let keys = server.ask(&["KEYS", "*"], PATIENCE)?;
    let semaphores =
        keys.into_iter().filter(|key| !key.starts_with('{') && key.contains(':') && capacity(key) > 1);
    let semaphores = semaphores.filter(|key| !key.starts_with("readwrite"));
    semaphores
        .map(|key| {
            let free = number(&["GET", &key])?;
            // Those that have ended and nobody has come to collect.
            let ended = number(&["ZCARD", &format!("{{{key}}}:timeout")])?;
            Ok(Permits { key, free: free + ended })
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

    /// With every permission, as the clients of the campaign.
    const USER: [&str; 7] = ["ACL", "SETUSER", "torture", "on", "nopass", "+@all", "&*"];

    fn server() -> Server {
        let program = env::var_os("REDISSON_LOCK_SERVER").expect("`cargo xtask test` names it");
        Server::start(Path::new(&program), &[]).unwrap()
    }

    fn run(server: &Server, commands: &[&str]) {
        for command in commands {
            server.ask(&command.split(' ').collect::<Vec<_>>(), PATIENCE).unwrap();
        }
    }

    #[test]
    fn what_may_stay_is_not_found() {
        let server = server();
        run(
            &server,
            &[
                "SET {semaphore:1}:redisson-lock:id 7 PX 60000",
                "SET semaphore:1 3",
                "SET javasemaphore:1 3",
                "SET expirable:1 3",
                "ZADD {expirable:1}:timeout 1 ended",
                "SET redisson_lock_token:{fenced:hot} 7",
            ],
        );
        assert_eq!(find(&server, None), Vec::<String>::new());
    }

    #[test]
    fn whatever_else_is_left_is_found() {
        for (command, found) in [
            ("HSET hot:0 owner 1", "hot:0: -1"),
            ("HSET readwrite:hot mode read", "readwrite:hot: -1"),
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
    fn what_java_leaves_is_its_own() {
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
    fn a_subscription_of_ours_is_found() {
        let server = server();
        server.ask(&USER, PATIENCE).unwrap();
        let subscribe = |user: &str| {
            let mut subscriber = server.request(&["AUTH", user, ""]).unwrap();
            subscriber.get_mut().write_all(b"SUBSCRIBE redisson_lock__channel:{hot:0}\r\n").unwrap();
            // It is confirmed by an array, and after the password.
            for kind in ["+OK", "*3"] {
                let mut line = String::new();
                subscriber.read_line(&mut line).unwrap();
                assert_eq!(line.trim_end(), kind);
            }
            subscriber
        };
        let others = subscribe("default");
        assert_eq!(subscribers(&server), Vec::<String>::new());
        let ours = subscribe("torture");
        assert_eq!(subscribers(&server).len(), 1);
        drop((others, ours));
    }

    #[test]
    fn permits_are_those_that_are_free_and_those_that_have_ended() {
        let server = server();
        run(&server, &["SET semaphore:1 2", "SET expirable:1 1", "ZADD {expirable:1}:timeout 1 a 2 b"]);
        let mut permits = permits(&server).unwrap();
        permits.sort_by(|one, other| one.key.cmp(&other.key));
        let permits: Vec<_> = permits.iter().map(|permits| (&*permits.key, permits.free)).collect();
        assert_eq!(permits, [("expirable:1", 3), ("semaphore:1", 2)]);
    }
}
