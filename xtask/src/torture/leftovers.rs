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
    // Ours are known by their user: what Redisson leaves is its own affair.
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
