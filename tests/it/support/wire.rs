//! What a server says of itself while clients use it, and a client behind a proxy.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use redis::FromRedisValue;
use redisson_lock::{Client, ClientBuilder};

use super::proxy::{Link, Words};
use super::{Proxy, Server, scripts};

/// What is tried in all of these tests goes by this name.
pub const NAME: &str = "n";

/// The server's own word on keys, values and messages.
pub struct Wire {
    cli: RefCell<redis::Connection>,
    messages: RefCell<redis::Connection>,
}

impl Wire {
    /// Hears every message from now on. (It subscribes to a pattern, so that channels are told of no subscriber.)
    pub fn of(server: &Server) -> Self {
        // Without a time limit of its own: that would be interrupted by signals, and what is waited for always comes.
        let mut messages = server.cli();
        let listen = redis::cmd("PSUBSCRIBE").arg("*").get_packed_command();
        // By hand, because `as_pubsub` would end the subscription when it is dropped.
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

    /// The number under [`NAME`].
    pub fn value(&self) -> Option<i64> {
        self.run(&["GET", NAME])
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.run(&["KEYS", "*"])
    }

    pub fn ttl(&self, key: &str) -> i64 {
        self.run(&["PTTL", key])
    }

    pub fn out_of_memory(&self, full: bool) {
        self.run::<()>(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]);
    }

    /// A server whose last snapshot failed refuses all that writes, until it is told not to mind.
    pub fn disk_fails(&self, fails: bool) {
        if fails {
            self.run::<()>(&["CONFIG", "SET", "save", "3600 1"]);
            self.run::<()>(&["CONFIG", "SET", "rdb-key-save-delay", "100000000"]);
            self.run::<()>(&["BGSAVE"]);
            let server: String = self.run(&["INFO", "server"]);
            let pid = server.lines().find_map(|line| line.strip_prefix("process_id:")).expect("it has one");
            let saving = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it is there");
            for child in saving.split_whitespace() {
                let killed = std::process::Command::new("kill").args(["-KILL", child]).status();
                assert!(killed.expect("kill runs").success());
            }
            while !self.run::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {}
        }
        let minds = if fails { "yes" } else { "no" };
        self.run::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", minds]);
    }

    /// How often a command was refused with that code.
    pub fn refusals(&self, code: &str) -> u64 {
        let stats: String = self.run(&["INFO", "errorstats"]);
        let prefix = format!("errorstat_{code}:count=");
        stats.lines().find_map(|line| line.strip_prefix(&prefix)?.parse().ok()).unwrap_or(0)
    }

    /// The messages since the last call, with their channels. One of our own tells where to stop: all channels of a
    /// subscriber come in the order in which they were published.
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
    pub fn told(&self, channel: &str) -> Vec<String> {
        let told = self.messages();
        assert!(told.iter().all(|(on, _)| on == channel), "{told:?}");
        told.into_iter().map(|(_, text)| text).collect()
    }

    fn next_message(&self) -> (String, String) {
        let push = self.messages.borrow_mut().recv_response().expect("the channels are silent");
        let (kind, _, channel, text): (String, String, String, String) =
            redis::from_redis_value(push).expect("a message of a pattern has four parts");
        assert_eq!(kind, "pmessage");
        (channel, text)
    }

    /// All that is left is the record, if it is `there`, and marks of clients, which go within an hour; nobody
    /// subscribes to anything.
    pub async fn nothing_else_is_left(&self, there: &[&str]) {
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

/// A client behind a proxy, whose first link is the one for commands.
pub struct Faulty {
    pub server: Server,
    pub wire: Wire,
    pub proxy: Proxy,
    pub link: Link,
    pub client: Client,
}

impl Faulty {
    /// So long an answer is waited for: short, so that what is found by that is found soon.
    pub const RESPONSE: Duration = Duration::from_millis(300);

    pub async fn start() -> Self {
        Self::with(Client::builder()).await
    }

    pub async fn with(builder: ClientBuilder) -> Self {
        let server = Server::start();
        let wire = Wire::of(&server);
        scripts::load(&server);
        let proxy = Proxy::start(server.port()).await;
        let builder = builder.response_timeout(Self::RESPONSE);
        let client = builder.connect(proxy.url()).await.expect("the server is there");
        // The second link is that of the subscriptions, so that the third is the second for commands.
        let link = proxy.link(0).await;
        proxy.link(1).await;
        wire.messages();
        Self { server, wire, proxy, link, client }
    }

    /// Loses the reply to the next request that may change the record: with its connection, or the connection is silent
    /// from then on.
    pub fn lose_reply(&self, cut: bool) {
        if cut {
            self.link.cut_at_reply_to(changes);
        } else {
            self.link.lose_reply_to(changes);
        }
    }
}

/// Whether a request names the record, other than to look at it.
pub fn changes(words: &Words) -> bool {
    const LOOKS: [&[u8]; 3] = [b"GET", b"PTTL", b"EXISTS"];
    words.iter().any(|word| word == NAME.as_bytes()) && !LOOKS.contains(&words[0].as_slice())
}
