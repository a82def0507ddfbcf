//! All keys of a server, as text in which only what matters differs.

use std::collections::BTreeMap;

use redis::{Connection, cmd};

use super::Server;

/// From when something is written to when it is looked at, on a busy machine.
const SLACK_MS: i64 = 2_000;

/// What is compared: owners by a name of the test's own, times by what they were made of.
pub struct Look<'a> {
    /// (text, name)
    pub owners: &'a [(&'a str, &'a str)],
    pub lease_ms: i64,
    /// Of a waiter in a queue.
    pub allowance_ms: i64,
}

impl Look<'_> {
    pub fn at(&self, server: &Server) -> BTreeMap<String, String> {
        self.of("", server)
    }

    /// Of those keys alone that have `part` in their names.
    pub fn of(&self, part: &str, server: &Server) -> BTreeMap<String, String> {
        let mut cli = server.cli();
        let keys: Vec<String> = cmd("KEYS").arg("*").query(&mut cli).expect("KEYS");
        // The latch is Redisson's own device for its retries, and what was written for replicas goes at once.
        let passing = ["redisson_unlock_latch", ":redisson-lock:written"];
        let lasts = |key: &String| !passing.iter().any(|part| key.contains(part));
        let keys = keys.into_iter().filter(|key| key.contains(part) && lasts(key));
        keys.filter_map(|key| Some((self.named(&key), self.named(&self.value(&mut cli, &key)?)))).collect()
    }

    /// `None` if it has gone meanwhile.
    fn value(&self, cli: &mut Connection, key: &str) -> Option<String> {
        let ttl: i64 = cmd("PTTL").arg(key).query(cli).expect("PTTL");
        let kind: String = cmd("TYPE").arg(key).query(cli).expect("TYPE");
        let value = match kind.as_str() {
            "none" => return None,
            "hash" => {
                let fields: BTreeMap<String, String> = cmd("HGETALL").arg(key).query(cli).expect("HGETALL");
                // By their names, because those that differ decide on the order.
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
