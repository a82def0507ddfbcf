//! The kinds of lock and their differences, for suites that run for each kind. The names of keys and channels are
//! spelled out here again, so that they are not merely the library's own.
//!
//! The locks of a map entry are of these kinds, under other names. A latch is of none, because it has no holder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redisson_lock::{BackOff, Client, Codec, Kryo5, Lock};
use tokio::runtime;
use tokio::sync::Semaphore;

use super::{Server, eventually, since, versions};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Reentrant,
    Fair,
    Fenced,
    Spin,
    NonReentrant,
    NonReentrantFair,
    Read,
    Write,
    Value,
    Group,
    Multi,
    Red,
    Semaphore,
    Permit,
}

impl Kind {
    pub const ALL: [Self; 14] = [
        Self::Reentrant,
        Self::Fair,
        Self::Fenced,
        Self::Spin,
        Self::NonReentrant,
        Self::NonReentrantFair,
        Self::Read,
        Self::Write,
        Self::Value,
        Self::Group,
        Self::Multi,
        Self::Red,
        Self::Semaphore,
        Self::Permit,
    ];

    /// The kinds with one record and an owner: a [`Lock`].
    pub fn locks() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| kind.is_lock())
    }

    /// The kind of a holder, and the kind of a waiter that it excludes.
    pub fn rivals() -> impl Iterator<Item = (Self, Self)> {
        let among_equals = Self::ALL.into_iter().filter(|kind| kind.is_exclusive()).map(|kind| (kind, kind));
        among_equals.chain([(Self::Write, Self::Read), (Self::Read, Self::Write)])
    }

    /// The same among [`locks`](Self::locks).
    pub fn rival_locks() -> impl Iterator<Item = (Self, Self)> {
        Self::rivals().filter(|(holder, _)| holder.is_lock())
    }

    pub fn lock(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Reentrant => client.lock(name),
            Self::Fair => client.fair_lock(name),
            Self::Fenced => client.fenced_lock(name),
            Self::Spin => client.spin_lock(name, BackOff::new()),
            Self::NonReentrant => client.non_reentrant_lock(name),
            Self::NonReentrantFair => client.non_reentrant_fair_lock(name),
            Self::Read => client.read_write_lock(name).read().clone(),
            Self::Write => client.read_write_lock(name).write().clone(),
            Self::Value => client.value_lock(name),
            Self::Group => client.group_lock(name, ["x", "y"].map(|value| Kryo5.encode(value))),
            _ => panic!("a {self} is not a single lock"),
        }
    }

    /// A server on which a lock of that name can be taken.
    pub fn server(self, name: &str) -> Server {
        let server = Server::start();
        self.make(&server, name);
        server
    }

    /// Creates a semaphore with its one permit. It must be created again when its record is gone.
    pub fn make(self, server: &Server, name: &str) {
        if self.needs_creation() {
            redis::cmd("SET").arg(name).arg(1).exec(&mut server.cli()).expect("SET");
        }
    }

    /// Deletes its records.
    pub fn erase(self, server: &Server, name: &str) {
        let keys = self.records(name).into_iter().chain(Some(suffix(name, "timeout")));
        redis::cmd("DEL").arg(keys.collect::<Vec<_>>()).exec(&mut server.cli()).expect("DEL");
    }

    /// The name of the kind in the Java peer.
    pub fn java(self) -> &'static str {
        match self {
            Self::Reentrant => "plain",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Spin => "spin",
            Self::NonReentrant => "nonreentrant",
            Self::NonReentrantFair => "nonreentrantfair",
            Self::Read => "read",
            Self::Write => "write",
            _ => panic!("the suites with Java do not cover the {self}"),
        }
    }

    /// Whether that version of Redisson has the kind as these tests need it. 3.3.2 has none of their settings. The last
    /// kinds are created in other ways in Java, and have suites of their own.
    pub fn is_in(self, version: &str) -> bool {
        let (major, minor) = match self {
            Self::Reentrant | Self::Fair | Self::Read | Self::Write => (3, 10),
            Self::Spin => (3, 15),
            Self::Fenced => (3, 19),
            Self::NonReentrant | Self::NonReentrantFair => (4, 4),
            _ => return false,
        };
        since(version, major, minor)
    }

    fn is_lock(self) -> bool {
        !matches!(self, Self::Multi | Self::Red) && !self.needs_creation()
    }

    /// It must be created before it can be taken, and stays when nobody holds it.
    fn needs_creation(self) -> bool {
        matches!(self, Self::Semaphore | Self::Permit)
    }

    pub fn is_reentrant(self) -> bool {
        let other = matches!(self, Self::NonReentrant | Self::NonReentrantFair | Self::Value);
        !other && !self.needs_creation()
    }

    /// It excludes all others, including its own kind.
    pub fn is_exclusive(self) -> bool {
        self != Self::Read
    }

    /// Its waiters are in a queue in Redis.
    pub fn is_queued(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair)
    }

    /// A release may hand it to the next waiter of the same client by one script.
    pub fn hands_off(self) -> bool {
        self.is_lock() && !matches!(self, Self::Read | Self::Write | Self::Group)
    }

    /// Waiters of one client are served in the order of their arrival.
    pub fn is_in_order(self) -> bool {
        !matches!(self, Self::Read | Self::Group | Self::Multi | Self::Red)
    }

    /// A release publishes a message.
    pub fn publishes(self) -> bool {
        self != Self::Spin
    }

    /// The message of a release wakes a waiter.
    pub fn listens(self) -> bool {
        self.publishes() && self != Self::Red
    }

    /// A waiter attempts again and again all the same.
    pub fn polls(self) -> bool {
        matches!(self, Self::Spin | Self::Value | Self::Red)
    }

    /// A waiter probes the holder, less and less often.
    pub fn probes(self) -> bool {
        !self.polls() && !self.is_queued() && self != Self::Group
    }

    /// The number of messages of a release without waiters. A queued kind publishes to the first in its queue alone.
    pub fn messages_without_waiters(self) -> usize {
        if self.publishes() && !self.is_queued() { self.records("").len() } else { 0 }
    }

    /// The text of a release's message.
    pub fn message(self) -> &'static str {
        if self == Self::Write || self.needs_creation() { "1" } else { "0" }
    }

    /// The record has the number of levels. Otherwise it has 1.
    pub fn counts(self) -> bool {
        self != Self::Read
    }

    /// Its holds end unless they are renewed.
    pub fn has_lease(self) -> bool {
        self != Self::Semaphore
    }

    /// It can be taken at once with a lease that is longer than the server has been running.
    pub fn has_long_leases(self) -> bool {
        self.has_lease() && self != Self::Red
    }

    /// By how much a hold ends before its lease does.
    pub fn drift(self, lease: Duration) -> Duration {
        if self == Self::Red { lease / 100 + Duration::from_millis(2) } else { Duration::ZERO }
    }

    /// Its holds end when its records are deleted, and leave nothing behind. (The string of a read hold stays until the
    /// end of its lease.)
    pub fn is_lost_with_its_records(self) -> bool {
        self.has_lease() && self != Self::Read
    }

    /// The expiry of one record says how long it is held.
    pub fn expires_with_its_record(self) -> bool {
        self.is_lock() && self != Self::Group
    }

    /// If another owner made the record anew, a release reports the hold as taken. For the other kinds it is gone.
    pub fn distinguishes_taken(self) -> bool {
        self != Self::Group && !self.needs_creation()
    }

    /// The error of a lost hold names the holder that has the lock now.
    pub fn reports_the_new_holder(self) -> bool {
        !self.needs_creation()
    }

    /// A mark beside the record has the number of the last request that took effect.
    pub fn numbers_requests(self) -> bool {
        self == Self::Group || self.needs_creation()
    }

    /// Each hold has an owner id of its own, even when nothing went wrong.
    pub fn has_fresh_owner_ids(self) -> bool {
        self == Self::Value || self.needs_creation()
    }

    /// The release of one level of several also publishes a message.
    pub fn publishes_each_level(self) -> bool {
        self == Self::Group
    }

    /// A hold that was taken while a connection dropped is released and taken anew.
    pub fn reacquires_after_disconnect(self) -> bool {
        matches!(self, Self::Multi | Self::Red)
    }

    /// Other servers may make up for a lost reply.
    pub fn needs_a_majority(self) -> bool {
        self == Self::Red
    }

    /// The kind of a holder that it waits for.
    pub fn rival(self) -> Self {
        if self == Self::Read { Self::Write } else { self }
    }

    /// The channel on which a release of this kind reaches the waiter with that owner id, if there is one.
    pub fn channel(self, name: &str, waiter: &str) -> Option<String> {
        match self {
            Self::Spin => None,
            Self::Read | Self::Write => Some(prefix("redisson_rwlock", name)),
            Self::Semaphore | Self::Permit => Some(prefix("redisson_sc", name)),
            Self::Fair | Self::NonReentrantFair => {
                Some(format!("{}:{waiter}", prefix("redisson_lock__channel", name)))
            }
            _ => Some(prefix("redisson_lock__channel", name)),
        }
    }

    /// Its records. A multi lock and a red lock have several.
    pub fn records(self, name: &str) -> Vec<String> {
        let others = match self {
            Self::Multi => &["1"][..],
            Self::Red => &["1", "2"],
            _ => &[],
        };
        let others = others.iter().map(|other| format!("{name}.{other}"));
        [name.to_owned()].into_iter().chain(others).collect()
    }

    /// The holders and their counts, in all records together. A permit has an empty holder.
    pub fn holders(self, cli: &mut redis::Connection, name: &str) -> BTreeMap<String, u64> {
        let mut holders = BTreeMap::new();
        for record in self.records(name) {
            match self {
                Self::Value => {
                    let token: Option<String> = redis::cmd("GET").arg(record).query(cli).expect("GET");
                    holders.extend(token.map(|token| (token, 1)));
                }
                Self::Semaphore => {
                    let free: Option<u64> = redis::cmd("GET").arg(record).query(cli).expect("GET");
                    let taken = 1_u64.checked_sub(free.unwrap_or(1)).expect("there is one permit");
                    holders.extend((taken > 0).then(|| (String::new(), taken)));
                }
                Self::Permit => {
                    let taken = redis::cmd("ZCARD").arg(suffix(name, "timeout")).query(cli).expect("ZCARD");
                    holders.extend((taken > 0).then(|| (String::new(), taken)));
                }
                _ => {
                    let fields: BTreeMap<String, String> =
                        redis::cmd("HGETALL").arg(record).query(cli).expect("HGETALL");
                    let mut owners: BTreeMap<String, u64> = BTreeMap::new();
                    for (field, value) in fields {
                        let owner = match self {
                            // The same for each value, or they were not taken together.
                            Self::Group => {
                                field.strip_suffix(":lock_count").and_then(|it| it.split_once(':'))
                            }
                            _ => Some(("", &*field)).filter(|_| field != "mode"),
                        };
                        let Some((_, owner)) = owner else { continue };
                        let count = value.parse().expect("a count is a number");
                        let of_other_value = owners.insert(owner.to_owned(), count);
                        assert!(of_other_value.is_none_or(|other| other == count), "{owner}");
                    }
                    for (owner, count) in owners {
                        *holders.entry(owner).or_default() += count;
                    }
                }
            }
        }
        holders
    }

    /// The time in ms until the hold ends without a renewal, by the records.
    pub fn remaining_ms(self, cli: &mut redis::Connection, name: &str) -> i64 {
        if self == Self::Permit {
            let first =
                redis::cmd("ZRANGE").arg(suffix(name, "timeout")).arg(&["0", "0", "WITHSCORES"]).query(cli);
            let first: Vec<(redis::Value, f64)> = first.expect("ZRANGE");
            let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(cli).expect("TIME");
            return first.first().map_or(-2, |(_, ends)| *ends as i64 - seconds * 1000 - micros / 1000);
        }
        let mut left = |record| redis::cmd("PTTL").arg(record).query(cli).expect("PTTL");
        self.records(name).into_iter().map(&mut left).min().expect("there is a record")
    }

    /// The key of a hold with that owner id, beside the record.
    pub fn keys_of_a_hold(self, name: &str, owner: &str) -> Option<String> {
        match self {
            Self::Fenced => Some(prefix("redisson_lock_token", name)),
            Self::Read => Some(suffix(name, &format!("{owner}:rwlock_timeout:1"))),
            Self::Permit => Some(suffix(name, "timeout")),
            _ => None,
        }
    }

    /// The keys of a waiter.
    pub fn keys_of_a_waiter(self, name: &str) -> Vec<String> {
        if !self.is_queued() {
            return Vec::new();
        }
        ["redisson_lock_queue", "redisson_lock_timeout"].map(|key| prefix(key, name)).into()
    }

    /// The key that stays when nobody holds the lock any more.
    pub fn remaining_key(self, name: &str) -> Option<String> {
        match self {
            Self::Fenced => Some(prefix("redisson_lock_token", name)),
            _ => self.needs_creation().then(|| name.to_owned()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reentrant => "reentrant lock",
            Self::Fair => "fair lock",
            Self::Fenced => "fenced lock",
            Self::Spin => "spin lock",
            Self::NonReentrant => "non-reentrant lock",
            Self::NonReentrantFair => "non-reentrant fair lock",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Value => "value lock",
            Self::Group => "group lock",
            Self::Multi => "multi lock",
            Self::Red => "red lock",
            Self::Semaphore => "semaphore",
            Self::Permit => "expirable-permit semaphore",
        })
    }
}

pub fn prefix(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

fn suffix(name: &str, suffix: &str) -> String {
    if name.contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// How many tests of one suite run at once: few enough to be on time on a small machine.
const AT_ONCE: usize = 6;

/// Runs `test` for each of `what`, several at once. Each is a task, and so an owner of its own, on a separate runtime.
/// A test that blocks a thread, as the start of a server does, delays no other.
pub async fn each<T: Copy + fmt::Debug, F>(what: impl IntoIterator<Item = T>, test: impl Fn(T) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let run = |one| {
        let (test, room) = (test(one), room.clone());
        let running = tokio::spawn(async move {
            let _room = room.acquire().await.expect("it stays open");
            let alone = move || {
                let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                let runtime = runtime.expect("a runtime");
                runtime.block_on(runtime.spawn(test))
            };
            tokio::task::spawn_blocking(alone).await.expect("it catches the panics of its test")
        });
        (one, running)
    };
    let running: Vec<_> = what.into_iter().map(run).collect();
    let mut failed = Vec::new();
    for (one, running) in running {
        if running.await.expect("it catches the panics of its test").is_err() {
            failed.push(one);
        }
    }
    assert!(failed.is_empty(), "failed for {failed:?}");
}

pub fn channels(server: &Server) -> Vec<String> {
    redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).expect("CHANNELS")
}

/// Waits until that many channels have subscribers. It asks on one connection, so that frequent queries cost little.
pub async fn subscribed(server: &Server, count: usize) {
    let mut cli = server.cli();
    let mut ask =
        || -> Vec<String> { redis::cmd("PUBSUB").arg("CHANNELS").query(&mut cli).expect("CHANNELS") };
    eventually(|| ask().len() == count).await;
}

/// Waits until that many scripts were called.
pub async fn scripts_reach(server: &Server, count: u64) {
    let mut cli = server.cli();
    eventually(|| calls_of_scripts(&mut cli) >= count).await;
}

fn calls_of_scripts(cli: &mut redis::Connection) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(cli).expect("INFO");
    let calls = |line: &str| {
        let rest = line.strip_prefix("cmdstat_eval:calls=").or(line.strip_prefix("cmdstat_evalsha:calls="))?;
        rest.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// All keys except for the marks that tell a repeat from a new request. Those expire within an hour.
pub fn keys(server: &Server) -> BTreeSet<String> {
    let mut cli = server.cli();
    let mut keys: BTreeSet<String> = redis::cmd("KEYS").arg("*").query(&mut cli).expect("KEYS");
    keys.retain(|key| {
        let is_mark = key.contains(":redisson-lock:");
        if is_mark {
            let left: i64 = redis::cmd("PTTL").arg(key).query(&mut cli).expect("PTTL");
            assert!(left == -2 || (0..=3_600_000).contains(&left), "{key} is left for {left} ms");
        }
        !is_mark
    });
    keys
}

/// Waits until nothing is left of the lock of that name: no record, hold, queue or subscription, and no work of `clients`.
pub async fn assert_nothing_left(kind: Kind, name: &str, server: &Server, clients: &[&impl fmt::Debug]) {
    eventually(|| keys(server).into_iter().eq(kind.remaining_key(name))).await;
    eventually(|| channels(server).is_empty()).await;
    for client in clients {
        eventually(|| is_idle(client)).await;
    }
    if kind.needs_creation() {
        let free: Option<i64> = redis::cmd("GET").arg(name).query(&mut server.cli()).expect("GET");
        assert_eq!(free, Some(1), "the permit of the {kind}");
    }
}

/// Whether a client, or each of several clients, has no work.
pub fn is_idle(client: &impl fmt::Debug) -> bool {
    let shown = format!("{client:?}");
    shown.contains("queues: ")
        && shown.matches("queues: ").count() == shown.matches("readers: 0, queues: 0 ").count()
}

/// Waits for an event that a message brings at once, and the end of a lease would bring much later.
pub async fn in_time<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, coming).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// The versions of Redisson with which all kinds are tested. 3.3.2 has none of their settings, and does not understand
/// the message of a write lock.
pub fn versions_for_all_kinds() -> Vec<String> {
    versions().into_iter().filter(|version| since(version, 3, 10)).collect()
}

/// Each version of Redisson that is tested, with each of `what` that it has.
pub fn with_versions<T: Copy>(
    what: impl IntoIterator<Item = T>,
    kind_of: impl Fn(T) -> Kind,
) -> Vec<(&'static str, T)> {
    let what: Vec<_> = what.into_iter().collect();
    let versions = versions().into_iter().map(|version| &*version.leak());
    let of = |version: &'static str| {
        let known = what.iter().filter(|&&one| kind_of(one).is_in(version));
        known.map(|&one| (version, one)).collect::<Vec<_>>()
    };
    versions.flat_map(of).collect()
}
