//! Permissions and settings of the servers: [`Client::examine`].

use crate::client::Client;
use crate::connection::{Master, sanitized};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys::{self, LockKeys};
use crate::protocol::script::{self, Reply, Request, Undecodable};
use crate::runtime::sync::time;
use crate::runtime::wakeup::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many names are tried until one belongs to a master.
const TRIES: usize = 10_000;
/// The settings that are read.
const SETTINGS: [&str; 3] = ["appendfsync", "min-replicas-to-write", "save"];

/// A server, as [`Client::examine`] saw it: what it permits, and how it is set up.
///
/// ```
/// # fn f(server: redisson_lock::ServerReport) {
/// for (command, reason) in &server.refused {
///     println!("{} refuses {command}: {reason}", server.node);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerReport {
    /// The address of the server.
    pub node: String,
    /// The fields of its `INFO`, such as `redis_version` and `maxmemory_policy`. Empty if the user may not run it.
    pub info: BTreeMap<String, String>,
    /// The settings `appendfsync`, `min-replicas-to-write` and `save`. Those that the user may not read are missing.
    pub settings: BTreeMap<String, String>,
    /// The commands of locks, semaphores and latches that the server refuses to this user, in lower case, each with the reason. It also
    /// has `role` and `wait`, which acquires that wait for replicas use, and the commands of [`Client::locks`].
    pub refused: BTreeMap<String, String>,
    /// Why the user may not use a name that was tried, if so. The user may still use the names of some locks.
    pub restricted: Option<String>,
    /// The clock of the server.
    pub clock: Option<ServerClock>,
}

/// A reading of a server's clock.
///
/// ```
/// # fn f(clock: redisson_lock::ServerClock) {
/// println!("{:?} since 1970, read within {:?}", clock.since_epoch, clock.round_trip);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerClock {
    /// The time that the server reported, since the Unix epoch.
    pub since_epoch: Duration,
    /// When the request was sent.
    pub asked: Instant,
    /// How long the request took. The server read its clock within this time.
    pub round_trip: Duration,
}

impl Client {
    /// Asks the server, or each master of the cluster, what it permits to this user, and how it is set up.
    ///
    /// It tries the commands of every kind on a key that does not exist, subscribes to a channel for a moment, and leaves nothing behind. The
    /// report lacks the values that the user may not read.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// for server in client.examine().await? {
    ///     println!("{}: eviction policy {:?}", server.node, server.info.get("maxmemory_policy"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`]; [`Error::Refused`] if the server lets the user run no scripts.
    ///
    /// # Cancel safety
    /// Cancel safe: the call changes nothing.
    pub async fn examine(&self) -> Result<Vec<ServerReport>> {
        self.session.check_readable()?;
        let masters = self.session.connection.masters();
        if masters.is_empty() {
            return Err(Error::unavailable(
                Phase::Inspect,
                self.session.connection.node(),
                "not connected yet",
            ));
        }
        let mut reports = Vec::new();
        for master in masters {
            reports.push(self.examine_one(&master).await?);
        }
        Ok(reports)
    }

    async fn examine_one(&self, master: &Master) -> Result<ServerReport> {
        let asked = Instant::now();
        let time = permitted(master, &script::question("TIME", &[]), script::time).await?;
        let round_trip = asked.elapsed();
        let info = permitted(master, &script::question("INFO", &[]), script::info).await?;
        let mut settings = BTreeMap::new();
        for name in SETTINGS {
            let question = script::question("CONFIG", &["GET", name]);
            settings.extend(shown(permitted(master, &question, script::settings).await?));
        }
        let keys = self.key_at(master)?;
        let probe = script::probe_all(keys.record(), keys.channel());
        let errors = shown(Some(master.ask(&probe, script::refused, Phase::Inspect).await?));
        let mut restricted = errors.values().find(|reason| is_of_name(reason)).cloned();
        // The other errors are those of the arguments.
        let mut refused: BTreeMap<_, _> =
            errors.into_iter().filter(|(_, reason)| is_of_command(reason)).collect();
        let questions = [("ROLE", [].as_slice()), ("WAIT", &["0", "0"]), ("SCAN", &["0", "COUNT", "1"])];
        for (name, args) in questions {
            let answered = master.ask(&script::question(name, args), any, Phase::Inspect).await;
            if let Err(Error::Refused { code, message, .. }) = answered {
                refused.insert(name.to_lowercase(), format!("{code} {message}"));
            } else {
                answered?;
            }
        }
        if let Some((name, reason)) = self.refused_subscription(keys.channel(), &master.node()).await? {
            if is_of_name(&reason) {
                restricted.get_or_insert(reason);
            } else {
                refused.insert(name.to_owned(), reason);
            }
        }
        let clock = time.and_then(|[seconds, micros]| {
            let since_epoch = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
            Some(ServerClock { since_epoch, asked, round_trip })
        });
        Ok(ServerReport { node: master.node(), info: shown(info), settings, refused, restricted, clock })
    }

    /// Subscribes to a channel for a moment. Returns the command and the reason if the server refuses it.
    async fn refused_subscription(
        &self,
        channel: &Arc<str>,
        node: &str,
    ) -> Result<Option<(&'static str, String)>> {
        let signal = Arc::<Signal>::default();
        let subscription = self.session.pubsub.subscribe(channel, &signal);
        let answered = async {
            while !subscription.is_confirmed() && subscription.refusal().is_none() {
                signal.woken().await;
            }
            subscription.refusal()
        };
        let waited = self.session.options.response_timeout;
        match time::timeout(waited, answered).await {
            Err(_) => Err(Error::TimedOut { phase: Phase::Inspect, node: node.to_owned(), waited }),
            Ok(Some(Error::Refused { code, message, .. })) => {
                let name = if message.contains("'ssubscribe'") { "ssubscribe" } else { "subscribe" };
                Ok(Some((name, sanitized(&format!("{code} {message}")))))
            }
            Ok(_) => Ok(None),
        }
    }

    /// The keys of a lock that nobody uses, whose record the master would have.
    fn key_at(&self, master: &Master) -> Result<LockKeys> {
        let node = master.node();
        for _ in 0..TRIES {
            let key = keys::probe_key();
            if *self.session.connection.node_of(&key) == *node {
                return LockKeys::new(key);
            }
        }
        Err(Error::unavailable(Phase::Inspect, node, "it has no slot of the cluster"))
    }
}

/// Asks what the user may not be permitted to ask. `None` if the server refuses.
async fn permitted<T>(
    master: &Master,
    question: &Request,
    decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
) -> Result<Option<T>> {
    match master.ask(question, decoded, Phase::Inspect).await {
        Ok(reply) => Ok(Some(reply)),
        Err(Error::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The server knows no such command, or the user may not run it.
fn is_of_command(reason: &str) -> bool {
    ["run this command", "permissions to run", "nknown"].iter().any(|words| reason.contains(words))
}

/// The user may not use the key or the channel.
fn is_of_name(reason: &str) -> bool {
    ["can't access", "permissions to access", "can't publish"].iter().any(|words| reason.contains(words))
}

fn any(_: &Reply) -> Result<(), Undecodable> {
    Ok(())
}

/// The text of a server, without what could confuse a terminal.
fn shown(pairs: Option<Vec<(String, String)>>) -> BTreeMap<String, String> {
    let pairs = pairs.unwrap_or_default().into_iter();
    pairs.map(|(name, value)| (sanitized(&name), sanitized(&value))).collect()
}
