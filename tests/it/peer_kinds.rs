//! The records, messages and replies of real Redissons, for each kind of lock and synchronizer. This project's own
//! client is built on these facts.

mod combined;
mod entries;
mod fair;
mod latch;
mod lock;
mod permits;
mod rwlock;
mod semaphore;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use redis::FromRedisValue;
use tokio_stream::StreamExt;

use crate::support::java::{JavaClient, JavaThread};
use crate::support::{Java, Server, since, versions};

/// Longer than any wait that must not end by itself.
const LONG: Duration = Duration::from_secs(20);
const WATCHDOG_MS: i64 = 30_000;

/// The versions to test that are `major.minor` or later.
fn versions_since(major: u32, minor: u32) -> impl Iterator<Item = String> {
    versions().into_iter().filter(move |version| since(version, major, minor))
}

/// A server with one Redisson client, and a subscription to all messages.
struct Stage {
    version: String,
    server: Server,
    client: JavaClient,
    messages: redis::aio::PubSub,
}

impl Stage {
    async fn new(version: &str) -> Self {
        Self::with(version, &[]).await
    }

    async fn with(version: &str, settings: &[&str]) -> Self {
        let server = Server::start();
        let client = Java::get(version).client_with(&server, 0, settings).await.unwrap();
        let url = redis::Client::open(server.url()).unwrap();
        let mut messages = url.get_async_pubsub().await.unwrap();
        messages.psubscribe("*").await.unwrap();
        Self { version: version.to_owned(), server, client, messages }
    }

    fn thread(&self, name: &str) -> JavaThread {
        self.client.thread(name)
    }

    fn since(&self, major: u32, minor: u32) -> bool {
        since(&self.version, major, minor)
    }

    /// Runs a command, given as words with spaces between them.
    fn run<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.server.cli()).unwrap()
    }

    fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.run(&format!("HGETALL {key}"))
    }

    fn list(&self, key: &str) -> Vec<String> {
        self.run(&format!("LRANGE {key} 0 -1"))
    }

    /// The members and their scores, which fit into integers.
    fn zset(&self, key: &str) -> Vec<(Vec<u8>, i64)> {
        let scored: Vec<(Vec<u8>, f64)> = self.run(&format!("ZRANGE {key} 0 -1 WITHSCORES"));
        #[allow(clippy::cast_possible_truncation)]
        scored.into_iter().map(|(member, score)| (member, score as i64)).collect()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.run(&format!("GET {key}"))
    }

    fn ttl(&self, key: &str) -> i64 {
        self.run(&format!("PTTL {key}"))
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run("KEYS *");
        // These keys are random. A test of their own covers them.
        keys.retain(|key| !key.starts_with("redisson_unlock_latch:"));
        keys.sort();
        keys
    }

    /// Asserts that the key expires `lease_ms` after a moment between `asked` and now.
    #[track_caller]
    fn assert_ends(&self, key: &str, lease_ms: i64, asked: Instant) {
        let ttl = self.ttl(key);
        let passed = millis(asked.elapsed()) + 1;
        assert!(
            (lease_ms - passed..=lease_ms).contains(&ttl),
            "{}: {key} has {ttl} ms left, {passed} ms after a lease of {lease_ms} ms",
            self.version
        );
    }

    /// All that was published since the last call, as `channel=message`.
    async fn published(&mut self) -> Vec<String> {
        self.run::<()>("PUBLISH end-of-messages -");
        let mut published = Vec::new();
        let mut messages = self.messages.on_message();
        loop {
            let message = messages.next().await.expect("the server lives");
            if message.get_channel_name() == "end-of-messages" {
                return published;
            }
            let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            published.push(format!("{}={text}", message.get_channel_name()));
        }
    }

    #[track_caller]
    fn assert_record<const N: usize>(&self, key: &str, expected: [(&str, &str); N]) {
        let expected = expected.map(|(field, value)| (field.to_owned(), value.to_owned()));
        assert_eq!(self.hash(key), BTreeMap::from(expected), "{}", self.version);
    }
}

fn millis(time: Duration) -> i64 {
    time.as_millis().try_into().expect("the time fits into an i64")
}

/// The clock of the scores that Java clients on this machine write.
fn wall_ms() -> i64 {
    millis(SystemTime::UNIX_EPOCH.elapsed().expect("it is later"))
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}
