//! Direct access to a server while clients use it, and a client behind a proxy.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use redis::FromRedisValue;
use redisson_lock::{Client, ClientBuilder};

use super::proxy::{ProxyLink, Words};
use super::{Proxy, Server, scripts};

/// The name of the object under test.
pub const NAME: &str = "n";

/// Direct access to the keys, values and messages of a server.
pub struct RawRedis {
    cli: RefCell<redis::Connection>,
    messages: RefCell<redis::Connection>,
}

impl RawRedis {
    /// Gets every message from now on. (It subscribes to a pattern, which does not count as a subscriber of a channel.)
    pub fn of(server: &Server) -> Self {
        // No read timeout: signals would interrupt it, and an awaited message always comes.
        let mut messages = server.cli();
        let listen = redis::cmd("PSUBSCRIBE").arg("*").get_packed_command();
        // Subscribes by hand, because `as_pubsub` would end the subscription when it is dropped.
        messages.send_packed_command(&listen).expect("the socket is open");
        messages.recv_response().expect("the subscription is confirmed");
        Self { cli: server.cli().into(), messages: messages.into() }
    }

    /// Runs a command, given as its words.
    #[track_caller]
    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = redis::cmd(words[0]).arg(&words[1..]).query(&mut self.cli.borrow_mut());
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The number at the key [`NAME`].
    pub fn value(&self) -> Option<i64> {
        self.run(&["GET", NAME])
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.run(&["KEYS", "*"])
    }

    pub fn ttl(&self, key: &str) -> i64 {
        self.run(&["PTTL", key])
    }

    pub fn set_out_of_memory(&self, full: bool) {
        self.run::<()>(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]);
    }

    /// Breaks the server's disk, or repairs it. A server whose last snapshot failed refuses all writes, unless its
    /// settings allow them.
    pub fn set_disk_failing(&self, fails: bool) {
        if fails {
            self.run::<()>(&["CONFIG", "SET", "save", "3600 1"]);
            self.run::<()>(&["CONFIG", "SET", "rdb-key-save-delay", "100000000"]);
            self.run::<()>(&["BGSAVE"]);
            let server: String = self.run(&["INFO", "server"]);
            let pid = server
                .lines()
                .find_map(|line| line.strip_prefix("process_id:"))
                .expect("INFO has the process id");
            let saving = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it exists");
            for child in saving.split_whitespace() {
                let killed = std::process::Command::new("kill").args(["-KILL", child]).status();
                assert!(killed.expect("kill runs").success());
            }
            while !self.run::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {}
        }
        let minds = if fails { "yes" } else { "no" };
        self.run::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", minds]);
    }

    /// The number of commands that were refused with that code.
    pub fn refusals(&self, code: &str) -> u64 {
        let stats: String = self.run(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        stats.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }

    /// The messages since the last call, with their channels. A message of our own marks the end: a subscriber gets the
    /// messages of all channels in the order in which they were published.
    pub fn messages(&self) -> Vec<(String, String)> {
        self.run::<()>(&["PUBLISH", "that was all", ""]);
        let mut messages = Vec::new();
        loop {
            let (channel, text) = self.next_message();
            if channel == "that was all" {
                return messages;
            }
            messages.push((channel, text));
        }
    }

    /// The texts of the messages since the last call, which must all be on `channel`.
    #[track_caller]
    pub fn messages_on(&self, channel: &str) -> Vec<String> {
        let published = self.messages();
        assert!(published.iter().all(|(on, _)| on == channel), "{published:?}");
        published.into_iter().map(|(_, text)| text).collect()
    }

    fn next_message(&self) -> (String, String) {
        let push = self.messages.borrow_mut().recv_response().expect("a message arrives");
        let (kind, _, channel, text): (String, String, String, String) =
            redis::from_redis_value(push).expect("a message of a pattern has four parts");
        assert_eq!(kind, "pmessage");
        (channel, text)
    }

    /// Asserts that nothing is left but the keys in `there`, and marks of clients, which expire within an hour. Waits
    /// until nobody subscribes to anything.
    pub async fn assert_nothing_else_left(&self, there: &[&str]) {
        let mark = format!("{{{NAME}}}:redisson-lock:");
        let (marks, keys): (Vec<_>, Vec<_>) = self.keys().into_iter().partition(|key| key.starts_with(&mark));
        assert_eq!(keys, there);
        for key in marks {
            let left = self.ttl(&key);
            assert!((3_500_000..=3_600_000).contains(&left), "{key} is left for {left} ms");
            assert_eq!(key.len(), mark.len() + 36, "{key} is no client's mark");
        }
        super::eventually(|| self.run::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty()).await;
    }
}

/// A client behind a proxy. `link` is its first link for commands.
pub struct FaultyClient {
    pub server: Server,
    pub raw: RawRedis,
    pub proxy: Proxy,
    pub link: ProxyLink,
    pub client: Client,
}

impl FaultyClient {
    /// The response timeout. Short, because the tests wait for it, and longer than this machine stalls for a moment.
    pub const RESPONSE: Duration = Duration::from_millis(600);

    /// The response timeout of a client that meets no silent connection: the machine may stall for that long.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    pub async fn start() -> Self {
        Self::with(Client::builder()).await
    }

    /// For [`lose_reply`](Self::lose_reply) with the same `cut`.
    pub async fn losing(cut: bool) -> Self {
        if cut { Self::patient().await } else { Self::start().await }
    }

    /// For a test in which every connection either replies or ends.
    pub async fn patient() -> Self {
        Self::patient_with(Client::builder()).await
    }

    pub async fn patient_with(builder: ClientBuilder) -> Self {
        Self::with_response(builder, Self::PATIENCE).await
    }

    pub async fn with(builder: ClientBuilder) -> Self {
        Self::with_response(builder, Self::RESPONSE).await
    }

    async fn with_response(builder: ClientBuilder, response: Duration) -> Self {
        Self::of(builder.response_timeout(response)).await
    }

    /// Keeps the response timeout of `builder`. For tests that wait for no timeout, so that no reply comes too late.
    pub async fn of(builder: ClientBuilder) -> Self {
        let server = Server::start();
        let raw = RawRedis::of(&server);
        scripts::load(&server);
        let proxy = Proxy::start(server.port()).await;
        let client = builder.connect(proxy.url()).await.expect("the server is up");
        // The second link carries the subscriptions, so the third is the second one for commands.
        let link = proxy.link(0).await;
        proxy.link(1).await;
        raw.messages();
        Self { server, raw, proxy, link, client }
    }

    /// Loses the reply to the next request that may change the record. With `cut` the connection ends, and without it
    /// the connection is silent from then on.
    pub fn lose_reply(&self, cut: bool) {
        if cut {
            self.link.cut_at_reply_to(changes);
        } else {
            self.link.lose_reply_to(changes);
        }
    }
}

/// Whether a request names the record and may change it.
pub fn changes(words: &Words) -> bool {
    const LOOKS: [&[u8]; 3] = [b"GET", b"PTTL", b"EXISTS"];
    words.iter().any(|word| word == NAME.as_bytes()) && !LOOKS.contains(&words[0].as_slice())
}
