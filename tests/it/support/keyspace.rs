//! All keys of a server, as text that differs only where it matters.

use std::collections::BTreeMap;

use redis::{Connection, cmd};

use super::Server;

/// The longest time between a write and the look at it, on a busy machine.
const SLACK_MS: i64 = 2_000;

/// How to make keys comparable: an owner id becomes a name of the test's own, and a time is named after its parts.
pub struct KeyspaceView<'a> {
    /// Pairs of an owner id and its name.
    pub owners: &'a [(&'a str, &'a str)],
    pub lease_ms: i64,
    /// The allowance of a waiter in a fair queue.
    pub allowance_ms: i64,
}

impl KeyspaceView<'_> {
    pub fn at(&self, server: &Server) -> BTreeMap<String, String> {
        self.of("", server)
    }

    /// The keys that have `part` in their names.
    pub fn of(&self, part: &str, server: &Server) -> BTreeMap<String, String> {
        let mut cli = server.cli();
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut cli).expect("KEYS");
        // Redisson uses the latch for its own retries, and the marker that replicas wait for is deleted at once.
        let passing = ["redisson_unlock_latch", ":redisson-lock:written"];
        let lasts = |key: &String| !passing.iter().any(|part| key.contains(part));
        let keys = keys.into_iter().filter(|key| key.contains(part) && lasts(key));
        keys.filter_map(|key| Some((self.named(&key), self.named(&self.value(&mut cli, &key)?)))).collect()
    }

    /// `None` if the key is gone by now.
    fn value(&self, cli: &mut Connection, key: &str) -> Option<String> {
        let ttl: i64 = cmd("PTTL").arg(key).query(cli).expect("PTTL");
        let kind: String = cmd("TYPE").arg(key).query(cli).expect("TYPE");
        let value = match kind.as_str() {
            "none" => return None,
            "hash" => {
                let fields: BTreeMap<String, String> = cmd("HGETALL").arg(key).query(cli).expect("HGETALL");
                // Sorted by the names, because the order of the ids differs from run to run.
                let mut fields: Vec<_> =
                    fields.iter().map(|(field, value)| format!("{}={value}", self.named(field))).collect();
                fields.sort();
                fields.join(" ")
            }
            "list" => {
                cmd("LRANGE").arg(key).arg(0).arg(-1).query::<Vec<String>>(cli).expect("LRANGE").join(" ")
            }
            "zset" => self.scores(cli, key),
            "string" => cmd("GET").arg(key).query(cli).expect("GET"),
            other => panic!("{key} is a {other}"),
        };
        Some(format!("{kind} {value}, {}", self.time(ttl, &[(self.lease_ms, "a lease")])))
    }

    fn scores(&self, cli: &mut Connection, key: &str) -> String {
        let scores: Vec<(String, i64)> =
            cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").query(cli).expect("ZRANGE");
        let (seconds, micros): (i64, i64) = cmd("TIME").query(cli).expect("TIME");
        let now = seconds * 1000 + micros / 1000;
        let known = [
            (self.lease_ms + self.allowance_ms, "a lease and one allowance"),
            (self.lease_ms + 2 * self.allowance_ms, "a lease and two allowances"),
        ];
        let score = |(owner, score): (String, i64)| format!("{owner} in {}", self.time(score - now, &known));
        scores.into_iter().map(score).collect::<Vec<_>>().join(" ")
    }

    fn time(&self, ms: i64, known: &[(i64, &str)]) -> String {
        if ms == -1 {
            return "for ever".to_owned();
        }
        let about = known.iter().find(|(time, _)| (time - SLACK_MS..=*time).contains(&ms));
        about.map_or_else(|| format!("{ms} ms"), |(_, name)| (*name).to_owned())
    }

    fn named(&self, text: &str) -> String {
        self.owners.iter().fold(text.to_owned(), |text, (owner, name)| text.replace(owner, name))
    }
}
