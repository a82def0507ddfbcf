//! Watches the records of the locks that Redisson shares. Redisson repeats a request whose answer is late, so a lock may name
//! a Java thread that does not know of its hold. Only the record shows this.

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::now;
use super::word::{Word, intern};
use crate::server::Connection;

/// How often each record is read.
const INTERVAL: Duration = Duration::from_millis(20);
/// Shorter periods explain nothing, and there are many.
const SHORTEST_NS: u64 = 100_000_000;
/// A server may be stopped for some seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A period in which the record of a key named Redisson.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedJava {
    pub key: Word,
    pub from: u64,
    pub to: u64,
}

pub struct Witness {
    stop: Sender<()>,
    thread: JoinHandle<Periods>,
}

impl Witness {
    /// `java` is the id of the Redisson. `port` is that of a single server, which keeps it through all faults.
    pub fn start(port: u16, java: &str, kinds: &[&str]) -> Self {
        let java = java.to_owned();
        let keys: Vec<Word> = kinds.iter().flat_map(|kind| keys_of(kind)).collect();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut periods = Periods::default();
            let mut connection = None;
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for key in &keys {
                    let before = now();
                    let owners = owners(&mut connection, port, key);
                    let named = owners.iter().any(|owner| owner.starts_with(&java));
                    periods.sample(key, named, before, now());
                }
            }
            periods
        });
        Self { stop, thread }
    }

    pub fn stop(self) -> Vec<NamedJava> {
        drop(self.stop);
        self.thread.join().expect("the witness does not panic").end()
    }
}

/// The exclusive locks with one record that Java shares.
fn keys_of(kind: &str) -> Vec<Word> {
    match kind {
        "reentrant" => vec!["hot:0", "hot:1"],
        "multi" => vec!["multi:0", "multi:1"],
        "fenced" | "spin" | "nonreentrant" => vec![intern(&format!("{kind}:hot"))],
        _ => Vec::new(),
    }
}

/// The owners in a record; none if the server does not answer or if the key has another type.
fn owners(connection: &mut Option<Connection>, port: u16, key: &str) -> Vec<String> {
    if connection.is_none() {
        *connection = Connection::open(port).ok();
    }
    let Some(open) = connection else { return Vec::new() };
    open.call(&["HKEYS", key], TIMEOUT).unwrap_or_else(|_| {
        *connection = None;
        Vec::new()
    })
}

#[derive(Default)]
struct Periods {
    open: HashMap<Word, NamedJava>,
    ended: Vec<NamedJava>,
}

impl Periods {
    /// Takes the result of a request that was sent at `from` and answered at `to`.
    fn sample(&mut self, key: Word, named: bool, from: u64, to: u64) {
        if named {
            self.open.entry(key).or_insert(NamedJava { key, from, to }).to = to;
        } else if let Some(period) = self.open.remove(key) {
            // The record changed at some time before this answer.
            self.ended.push(NamedJava { to, ..period });
        }
    }

    fn end(mut self) -> Vec<NamedJava> {
        self.ended.extend(self.open.into_values());
        self.ended.retain(|period| period.to - period.from >= SHORTEST_NS);
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;

    use super::*;
    use crate::server::Server;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_period_lasts_from_the_first_request_to_the_first_other_answer() {
        let mut periods = Periods::default();
        for (key, named, from, to) in [
            ("hot:0", false, 1, 2),
            ("hot:0", true, 20, 21),
            ("hot:1", true, 22, 23),
            ("hot:0", true, 40, 130),
            ("hot:1", false, 42, 43),
            ("hot:0", false, 150, 151),
            ("hot:1", true, 160, 161),
            ("hot:1", true, 300, 301),
        ] {
            periods.sample(key, named, from * MS, to * MS);
        }
        let period = |key, from: u64, to: u64| NamedJava { key, from: from * MS, to: to * MS };
        assert_eq!(periods.end(), [period("hot:0", 20, 151), period("hot:1", 160, 301)]);
    }

    #[test]
    fn the_owners_are_those_of_the_record() {
        let program = env::var_os("REDISSON_LOCK_SERVER").expect("`cargo xtask test` names it");
        let server = Server::start(Path::new(&program), &[]).unwrap();
        server.run("HSET hot:0 java:1 1").unwrap();
        server.run("SET hot:1 text").unwrap();
        let connection = &mut None;
        assert_eq!(owners(connection, server.port, "hot:0"), ["java:1"]);
        assert_eq!(owners(connection, server.port, "hot:1"), Vec::<String>::new());
        assert_eq!(owners(connection, server.port, "hot:0"), ["java:1"], "after an error");
        let port = server.port;
        drop(server);
        assert_eq!(owners(connection, port, "hot:0"), Vec::<String>::new());
    }
}
