//! Makes the server evict the records of locks, as it does when it also serves as a cache. Every `volatile-` policy does
//! this, because the record of a lock has an expiry like the entries of a cache.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use super::history::Window;
use super::now;
use crate::server::{Connection, Server};

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long evictions take after the limit was lowered.
const SETTLES: Duration = Duration::from_millis(20);
/// A server evicts all that it may within this time.
const GIVES_WAY: Duration = Duration::from_secs(2);
/// The number and the size of the cache entries.
const ENTRIES: usize = 400;
const ENTRY_BYTES: usize = 1024;
const CACHE: &str = "cache:";
/// The memory limit falls in this many steps before it becomes 1 byte.
const STEPS: usize = 8;

const FILL: &str = "for i = 1, tonumber(ARGV[2]) do redis.call('set', ARGV[1] .. i, ARGV[3], 'ex', 60) end";
const CLEAR: &str = "for i = 1, tonumber(ARGV[2]) do redis.call('del', ARGV[1] .. i) end";

/// Fills the server with cache entries, and lowers its memory limit until it evicts the record of a lock; then waits for
/// `lasts`. `policy` is Redis's name of the policy.
pub fn evict(server: &Server, policy: &str, lasts: Duration, window: &mut Window) -> Result<(), String> {
    let entries = ENTRIES.to_string();
    server.run("CONFIG SET notify-keyspace-events Ee")?;
    let mut listener = server.connect()?;
    listener.call(&["SUBSCRIBE", "__keyevent@0__:evicted"], TIMEOUT)?;
    server.call(&["EVAL", FILL, "0", CACHE, &entries, &"x".repeat(ENTRY_BYTES)], TIMEOUT)?;
    server.run(&format!("CONFIG SET maxmemory-policy {policy}"))?;
    let outcome = squeeze(server, &mut listener, lasts, window);
    // Restores the server after an error as well: later faults need it as it was.
    server.run("CONFIG SET maxmemory 0")?;
    server.run("CONFIG SET maxmemory-policy noeviction")?;
    server.call(&["EVAL", CLEAR, "0", CACHE, &entries], TIMEOUT)?;
    server.call(&["CONFIG", "SET", "notify-keyspace-events", ""], TIMEOUT)?;
    let mut evicted = outcome?;
    evicted.extend(evicted_keys(&mut listener)?);
    // An auxiliary key, such as a reader's, has the lock's name in braces.
    let named =
        |key: &String| key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0.to_owned()));
    window.keys = evicted.iter().cloned().chain(evicted.iter().filter_map(named)).collect();
    window.evicted = evicted.into_iter().collect();
    window.loses_records = !window.evicted.is_empty();
    Ok(())
}

fn squeeze(
    server: &Server,
    listener: &mut Connection,
    lasts: Duration,
    window: &mut Window,
) -> Result<BTreeSet<String>, String> {
    let used = used_memory(server)?;
    let mut evicted: BTreeSet<String> = BTreeSet::new();
    window.begun = now();
    let until = Instant::now() + GIVES_WAY;
    let mut step = 0;
    while !evicted.iter().any(|key| is_record(key)) && Instant::now() < until {
        step += 1;
        // The last step evicts every key that has an expiry.
        let limit = if step > STEPS { 1 } else { used - step * ENTRIES * ENTRY_BYTES / STEPS };
        server.run(&format!("CONFIG SET maxmemory {limit}"))?;
        thread::sleep(SETTLES);
        evicted.extend(evicted_keys(listener)?);
    }
    thread::sleep(lasts);
    window.ending = now();
    Ok(evicted)
}

/// Whether this is the record of a lock. Auxiliary keys have its name in braces.
pub fn is_record(key: &str) -> bool {
    !key.contains('{')
}

/// Returns the keys that were evicted since the last call, without the cache entries.
fn evicted_keys(listener: &mut Connection) -> Result<Vec<String>, String> {
    // The reply to PING follows all earlier messages.
    let mut reply = listener.call(&["PING"], TIMEOUT)?;
    let mut evicted = Vec::new();
    while reply.first().is_none_or(|word| word != "pong") {
        let key = reply.pop().unwrap_or_default();
        if !key.starts_with(CACHE) {
            evicted.push(key);
        }
        reply = listener.receive(TIMEOUT)?;
    }
    Ok(evicted)
}

fn used_memory(server: &Server) -> Result<usize, String> {
    let info = server.call(&["INFO", "memory"], TIMEOUT)?.concat();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.ok_or_else(|| format!("INFO memory has no used_memory: {info}"))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_volatile_policy_evicts_locks() {
        let program = env::var_os("REDISSON_LOCK_SERVER").expect("`cargo xtask test` names it");
        let server = Server::start(Path::new(&program), &[]).unwrap();
        server.run("SET semaphore:1 3").unwrap();
        for policy in ["volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random"] {
            for number in 0..20 {
                server.run(&format!("HSET hot:{number} id:1 1")).unwrap();
                server.run(&format!("PEXPIRE hot:{number} 30000")).unwrap();
                server.run(&format!("SET {{hot:{number}}}:auxiliary 1 PX 30000")).unwrap();
            }
            let mut window = Window::default();
            evict(&server, policy, Duration::ZERO, &mut window).unwrap();
            assert!(window.evicted.iter().any(|key| is_record(key)), "{policy}: {window:?}");
            assert!(window.loses_records);
            for key in &window.evicted {
                assert!(server.query(&format!("EXISTS {key}")) == ["0"], "{policy}: {key}");
                let name = key.trim_start_matches('{').split('}').next().unwrap();
                assert!(window.affects(name), "{policy}: {window:?}");
            }
            assert_eq!(server.query("KEYS cache:*"), Vec::<String>::new());
            assert_eq!(server.query("CONFIG GET maxmemory-policy"), ["maxmemory-policy", "noeviction"]);
            assert_eq!(server.query("GET semaphore:1"), ["3"]);
        }
    }
}
