//! A server that evicts the records of locks, as a cache beside them makes it do. Every `volatile-` policy does: the record
//! of a lock has an expiry as the keys of the cache have.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use super::history::Window;
use super::now;
use crate::server::{Server, Talk};

/// How long the server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long evictions take that begin with a lower limit.
const SETTLES: Duration = Duration::from_millis(20);
/// A server alone evicts all that it may in less.
const GIVES_WAY: Duration = Duration::from_secs(2);
/// The cache: so many keys of so many bytes.
const ENTRIES: usize = 400;
const ENTRY_BYTES: usize = 1024;
const CACHE: &str = "cache:";
/// In so many steps the cache gives way before everything does.
const STEPS: usize = 8;

const FILL: &str = "for i = 1, tonumber(ARGV[2]) do redis.call('set', ARGV[1] .. i, ARGV[3], 'ex', 60) end";
const CLEAR: &str = "for i = 1, tonumber(ARGV[2]) do redis.call('del', ARGV[1] .. i) end";

/// Fills the server with a cache and lowers its limit of memory until the record of a lock was evicted, then for so long.
/// `policy` is Redis's name for it.
pub fn evict(server: &Server, policy: &str, lasts: Duration, window: &mut Window) -> Result<(), String> {
    let entries = ENTRIES.to_string();
    server.tell("CONFIG SET notify-keyspace-events Ee")?;
    let mut listener = server.talk()?;
    listener.ask(&["SUBSCRIBE", "__keyevent@0__:evicted"], PATIENCE)?;
    server.ask(&["EVAL", FILL, "0", CACHE, &entries, &"x".repeat(ENTRY_BYTES)], PATIENCE)?;
    server.tell(&format!("CONFIG SET maxmemory-policy {policy}"))?;
    let outcome = squeeze(server, &mut listener, lasts, window);
    // Also where that went wrong: what follows needs the server as it was.
    server.tell("CONFIG SET maxmemory 0")?;
    server.tell("CONFIG SET maxmemory-policy noeviction")?;
    server.ask(&["EVAL", CLEAR, "0", CACHE, &entries], PATIENCE)?;
    server.ask(&["CONFIG", "SET", "notify-keyspace-events", ""], PATIENCE)?;
    let mut evicted = outcome?;
    evicted.extend(heard(&mut listener)?);
    // A record beside that of a lock, such as a reader's, has the lock's name in braces.
    let named =
        |key: &String| key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0.to_owned()));
    window.keys = evicted.iter().cloned().chain(evicted.iter().filter_map(named)).collect();
    window.evicted = evicted.into_iter().collect();
    window.resets = !window.evicted.is_empty();
    Ok(())
}

fn squeeze(
    server: &Server,
    listener: &mut Talk,
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
        // In the end nothing that has an expiry stays.
        let limit = if step > STEPS { 1 } else { used - step * ENTRIES * ENTRY_BYTES / STEPS };
        server.tell(&format!("CONFIG SET maxmemory {limit}"))?;
        thread::sleep(SETTLES);
        evicted.extend(heard(listener)?);
    }
    thread::sleep(lasts);
    window.ending = now();
    Ok(evicted)
}

/// Of a lock itself: what stands beside one has its name in braces.
pub fn is_record(key: &str) -> bool {
    !key.contains('{')
}

/// What was evicted since the last time, but for the cache.
fn heard(listener: &mut Talk) -> Result<Vec<String>, String> {
    // Its answer comes behind all messages from before it.
    let mut reply = listener.ask(&["PING"], PATIENCE)?;
    let mut evicted = Vec::new();
    while reply.first().is_none_or(|word| word != "pong") {
        let key = reply.pop().unwrap_or_default();
        if !key.starts_with(CACHE) {
            evicted.push(key);
        }
        reply = listener.hear(PATIENCE)?;
    }
    Ok(evicted)
}

fn used_memory(server: &Server) -> Result<usize, String> {
    let info = server.ask(&["INFO", "memory"], PATIENCE)?.concat();
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.ok_or_else(|| format!("the server does not say how much memory it uses: {info}"))
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_policy_that_spares_keys_without_expiry_evicts_locks() {
        let program = env::var_os("REDISSON_LOCK_SERVER").expect("`cargo xtask test` names it");
        let server = Server::start(Path::new(&program), &[]).unwrap();
        server.tell("SET semaphore:1 3").unwrap();
        for policy in ["volatile-ttl", "volatile-lru", "volatile-lfu", "volatile-random"] {
            for number in 0..20 {
                server.tell(&format!("HSET hot:{number} id:1 1")).unwrap();
                server.tell(&format!("PEXPIRE hot:{number} 30000")).unwrap();
                server.tell(&format!("SET {{hot:{number}}}:beside 1 PX 30000")).unwrap();
            }
            let mut window = Window::default();
            evict(&server, policy, Duration::ZERO, &mut window).unwrap();
            assert!(window.evicted.iter().any(|key| is_record(key)), "{policy}: {window:?}");
            assert!(window.resets);
            for key in &window.evicted {
                assert!(server.told(&format!("EXISTS {key}")) == ["0"], "{policy}: {key}");
                let name = key.trim_start_matches('{').split('}').next().unwrap();
                assert!(window.is_about(name), "{policy}: {window:?}");
            }
            assert_eq!(server.told("KEYS cache:*"), Vec::<String>::new());
            assert_eq!(server.told("CONFIG GET maxmemory-policy"), ["maxmemory-policy", "noeviction"]);
            assert_eq!(server.told("GET semaphore:1"), ["3"]);
        }
    }
}
