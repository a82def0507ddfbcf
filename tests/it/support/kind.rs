//! The kinds of lock that have an owner, and in what they differ: what a suite that is run for each of them goes by.
//! The names of keys and channels are spelled here anew, so that they are not merely the library's own.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use redisson_lock::{BackOff, Client, Lock};

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
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Reentrant,
        Self::Fair,
        Self::Fenced,
        Self::Spin,
        Self::NonReentrant,
        Self::NonReentrantFair,
        Self::Read,
        Self::Write,
    ];

    /// Who holds, and who has to wait for him.
    pub const RIVALS: [(Self, Self); 9] = [
        (Self::Reentrant, Self::Reentrant),
        (Self::Fair, Self::Fair),
        (Self::Fenced, Self::Fenced),
        (Self::Spin, Self::Spin),
        (Self::NonReentrant, Self::NonReentrant),
        (Self::NonReentrantFair, Self::NonReentrantFair),
        (Self::Write, Self::Write),
        (Self::Write, Self::Read),
        (Self::Read, Self::Write),
    ];

    pub fn lock(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Reentrant => client.lock(name),
            Self::Fair => client.fair_lock(name),
            Self::Fenced => client.fenced_lock(name),
            Self::Spin => client.spin_lock(name, BackOff::default()),
            Self::NonReentrant => client.non_reentrant_lock(name),
            Self::NonReentrantFair => client.non_reentrant_fair_lock(name),
            Self::Read => client.read_write_lock(name).read().clone(),
            Self::Write => client.read_write_lock(name).write().clone(),
        }
    }

    /// As the Java peer calls it.
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
        }
    }

    /// Whether that version of Redisson has it, as those have it that these tests are about: 3.3.2 has none of their
    /// settings.
    pub fn is_in(self, version: &str) -> bool {
        let (major, minor) = match self {
            Self::Reentrant | Self::Fair | Self::Read | Self::Write => (3, 10),
            Self::Spin => (3, 15),
            Self::Fenced => (3, 52),
            Self::NonReentrant | Self::NonReentrantFair => (4, 7),
        };
        since(version, major, minor)
    }

    pub fn is_reentrant(self) -> bool {
        !matches!(self, Self::NonReentrant | Self::NonReentrantFair)
    }

    /// It excludes everyone else, also of its own kind.
    pub fn is_exclusive(self) -> bool {
        self != Self::Read
    }

    /// Its waiters stand in a queue in Redis.
    pub fn is_queued(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair)
    }

    /// A release is told by a message.
    pub fn publishes(self) -> bool {
        self != Self::Spin
    }

    /// The messages of a release for which nobody waits: a queue's go to the first in it alone.
    pub fn messages_to_nobody(self) -> usize {
        usize::from(self.publishes() && !self.is_queued())
    }

    /// What a release says.
    pub fn message(self) -> &'static str {
        if self == Self::Write { "1" } else { "0" }
    }

    /// The record has the number of levels; else it says 1.
    pub fn counts(self) -> bool {
        self != Self::Read
    }

    /// Of which kind whoever makes it wait has to be.
    pub fn rival(self) -> Self {
        if self == Self::Read { Self::Write } else { self }
    }

    /// Where the release of one of this kind is told to the waiter of that text, if anywhere.
    pub fn channel(self, name: &str, waiter: &str) -> Option<String> {
        match self {
            Self::Spin => None,
            Self::Read | Self::Write => Some(prefix("redisson_rwlock", name)),
            Self::Fair | Self::NonReentrantFair => {
                Some(format!("{}:{waiter}", prefix("redisson_lock__channel", name)))
            }
            _ => Some(prefix("redisson_lock__channel", name)),
        }
    }

    /// The keys of a hold of that text, beside the record.
    pub fn keys_of_a_hold(self, name: &str, owner: &str) -> Option<String> {
        match self {
            Self::Fenced => Some(prefix("redisson_lock_token", name)),
            Self::Read => Some(suffix(name, &format!("{owner}:rwlock_timeout:1"))),
            _ => None,
        }
    }

    /// The keys of one who waits.
    pub fn keys_of_a_waiter(self, name: &str) -> Vec<String> {
        if !self.is_queued() {
            return Vec::new();
        }
        ["redisson_lock_queue", "redisson_lock_timeout"].map(|key| prefix(key, name)).into()
    }

    /// What stays when nobody holds it any more.
    pub fn remains(self, name: &str) -> Option<String> {
        (self == Self::Fenced).then(|| prefix("redisson_lock_token", name))
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
        })
    }
}

pub fn prefix(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

fn suffix(name: &str, suffix: &str) -> String {
    if name.contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// Runs `test` for each of `what` at once, each in a task and so as an owner of its own.
pub async fn each<T: Copy + fmt::Debug, F>(what: impl IntoIterator<Item = T>, test: impl Fn(T) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let running: Vec<_> = what.into_iter().map(|one| (one, tokio::spawn(test(one)))).collect();
    let mut failed = Vec::new();
    for (one, running) in running {
        if running.await.is_err() {
            failed.push(one);
        }
    }
    assert!(failed.is_empty(), "it fails for {failed:?}");
}

pub fn channels(server: &Server) -> Vec<String> {
    redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).expect("CHANNELS")
}

/// Ends when so many channels are subscribed to. Asks on one connection, so that it costs little to ask often.
pub async fn subscribed(server: &Server, count: usize) {
    let mut cli = server.cli();
    let mut ask =
        || -> Vec<String> { redis::cmd("PUBSUB").arg("CHANNELS").query(&mut cli).expect("CHANNELS") };
    eventually(|| ask().len() == count).await;
}

/// Ends when so many scripts were called.
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

pub fn keys(server: &Server) -> BTreeSet<String> {
    redis::cmd("KEYS").arg("*").query(&mut server.cli()).expect("KEYS")
}

/// Nothing is left of the lock of that name: no record, no hold, no queue, no subscription, and no work of `clients`.
pub async fn nothing_is_left(kind: Kind, name: &str, server: &Server, clients: &[&Client]) {
    eventually(|| keys(server).into_iter().eq(kind.remains(name))).await;
    eventually(|| channels(server).is_empty()).await;
    for client in clients {
        eventually(|| format!("{client:?}").contains("lanes: 0 ")).await;
    }
}

/// What has to come of a message, and would come of a lease's end much later.
pub async fn in_time<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, coming).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// The versions of Redisson that are tested beside all kinds: 3.3.2 has none of their settings, and does not know a writer's
/// message.
pub fn of_kinds() -> Vec<String> {
    versions().into_iter().filter(|version| since(version, 3, 10)).collect()
}

/// Each version of Redisson that is tested, with each of `what` that it has.
pub fn in_versions<T: Copy>(
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
