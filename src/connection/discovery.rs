//! Finds the master: at a fixed address, by the votes of sentinels, or among several nodes by their `ROLE`.

use super::{Address, connect_error, into_server_error, replicas, server_text};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::{select, time};
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often to check whether the master has changed.
const CHECK: Duration = Duration::from_secs(1);
/// How long to wait for more replies after the first, once a quorum has replied.
const GRACE: Duration = Duration::from_millis(200);
/// How long to wait without a quorum: the first to reply may be wrong.
const LONG_GRACE: Duration = Duration::from_secs(1);

/// How to find one master. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Discovery {
    At(Address),
    Sentinel(Arc<Sentinel>),
    Replicated(Arc<Replicated>),
}

/// Sentinels, and the master that they monitor.
#[derive(Debug)]
pub(super) struct Sentinel {
    pub sentinels: Vec<Address>,
    pub service: String,
    /// The name in errors: the service and the first sentinel.
    pub name: String,
    /// The master's settings. Its host and port are placeholders.
    pub master: Address,
    /// A sentinel that requires credentials gets the master's.
    pub shares_credentials: bool,
}

/// A master and its replicas, in any order.
#[derive(Debug)]
pub(super) struct Replicated {
    pub nodes: Vec<Address>,
}

/// The master's address as a sentinel reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MasterInfo {
    pub host: String,
    pub port: u16,
}

impl Discovery {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::At(address) => address.node(),
            Self::Sentinel(sentinel) => &sentinel.name,
            Self::Replicated(replicated) => replicated.nodes[0].node(),
        }
    }

    /// Whether another server can become the master.
    pub(super) fn may_move(&self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// The current master, within the connect timeout.
    pub(super) async fn find(&self, options: &Options) -> Result<Address> {
        self.find_until(Moment::now() + options.connect_timeout, options).await
    }

    /// The current master, before `until`.
    pub(super) async fn find_until(&self, until: Moment, options: &Options) -> Result<Address> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Sentinel(sentinel) => sentinel.master(until, options).await,
            Self::Replicated(replicated) => Ok(replicated.masters(until, options).await?.swap_remove(0)),
        }
    }

    /// Waits until `node` is known not to be the master. Never completes for a fixed address.
    pub(super) async fn until_moved(&self, node: &str, options: &Options) {
        if !self.may_move() {
            return std::future::pending().await;
        }
        loop {
            time::sleep(CHECK).await;
            let masters = match self {
                Self::Replicated(replicated) => {
                    replicated.masters(Moment::now() + options.connect_timeout, options).await
                }
                _ => self.find(options).await.map(|master| vec![master]),
            };
            if masters.is_ok_and(|masters| masters.iter().all(|master| master.node() != node)) {
                return;
            }
        }
    }
}

impl Sentinel {
    /// The master that a majority of the responding sentinels names. All are asked at once, because one may be silent, one may be
    /// partitioned and outdated, and one may lie. So no single sentinel decides, whatever failover it reports.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no majority, which is normal shortly after a failover.
    async fn master(&self, until: Moment, options: &Options) -> Result<Address> {
        let asked = self.sentinels.iter().map(|sentinel| {
            let as_master =
                if self.shares_credentials { sentinel.with_credentials_of(&self.master) } else { None };
            ask(sentinel.clone(), as_master, self.service.clone(), until, options.clone())
        });
        let named = self.sentinels.len();
        let said = all(asked, until, named / 2 + 1, |said| most(said, named).is_some()).await?;
        match most(&said, said.len()) {
            Some(MasterInfo { host, port }) => Ok(self.master.at(host, port)),
            None => {
                let places: Vec<_> =
                    said.iter().map(|master| format!("{}:{}", master.host, master.port)).collect();
                let reason = format!(
                    "the sentinels do not agree on the master: {}; compare `SENTINEL MASTER` on each",
                    places.join(", ")
                );
                Err(unavailable(&self.name, reason))
            }
        }
    }
}

impl Replicated {
    /// The nodes that report the role of master, in the order of their replies. During a failover there may be two.
    async fn masters(&self, until: Moment, options: &Options) -> Result<Vec<Address>> {
        let asked = self.nodes.iter().map(|node| is_master(node.clone(), until, options.clone()));
        // The quorum is 1, because the other nodes are usually replicas.
        all(asked, until, 1, |_| false).await
    }
}

/// Runs all requests at once, and collects the successful replies until they are `enough`. After the first reply it waits
/// [`GRACE`] for more, or up to [`LONG_GRACE`] while there are fewer than `quorum`. Each request must end by `until` by itself.
///
/// # Errors
/// The last error, if no request succeeded.
async fn all<T: Send + 'static>(
    asked: impl Iterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
    until: Moment,
    quorum: usize,
    enough: impl Fn(&[T]) -> bool,
) -> Result<Vec<T>> {
    let (mut asking, mut said) = (JoinSet::new(), Vec::new());
    asked.for_each(|one| _ = asking.spawn(one));
    let mut problem = unavailable("the master", "no server replied".into());
    while said.is_empty() {
        match asking.join_next().await {
            Some(Ok(Ok(reply))) => said.push(reply),
            Some(Ok(Err(error))) => problem = error,
            Some(Err(_)) => {}
            None => return Err(problem),
        }
    }
    let first = Moment::now();
    let (soon, late) = (first + GRACE, first + LONG_GRACE.min(until.remaining() / 2));
    while !enough(&said) {
        let patience = if said.len() < quorum { late } else { soon };
        match time::timeout(patience.remaining(), asking.join_next()).await {
            Ok(Some(answer)) => said.extend(answer.ok().and_then(Result::ok)),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(said)
}

/// Asks one sentinel. If it requires a password, asks again at `as_master`, which has the master's credentials.
async fn ask(
    sentinel: Address,
    as_master: Option<Address>,
    service: String,
    until: Moment,
    options: Options,
) -> Result<MasterInfo> {
    match (ask_once(&sentinel, &service, until, &options).await, as_master) {
        (Err(error), Some(as_master)) if error.code() == Some("NOAUTH") => {
            ask_once(&as_master, &service, until, &options).await
        }
        (answer, _) => answer,
    }
}

async fn ask_once(sentinel: &Address, service: &str, until: Moment, options: &Options) -> Result<MasterInfo> {
    let (mut connection, driver) = sentinel.open(until, options).await?;
    let limit = options.response_timeout.min(until.remaining());
    let asking = async {
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(service);
        let answer = time::timeout(limit, connection.send_packed_command(&command)).await;
        let node = sentinel.node();
        match answer.map(into_server_error) {
            Ok(Ok(value)) => parse_master(value).ok_or_else(|| {
                unavailable(
                    node,
                    format!("its reply about the master `{}` is not understood", service.escape_debug()),
                )
            }),
            Ok(Err(error))
                if server_text::detail(&error).is_some_and(|text| text.contains("No such master")) =>
            {
                Err(unavailable(
                    node,
                    format!(
                        "the sentinel knows no master named `{}`: correct the name of the master",
                        service.escape_debug()
                    ),
                ))
            }
            Ok(Err(error)) => Err(connect_error(&error, node)),
            Err(_) => Err(Error::TimedOut { phase: Phase::Connect, node: node.to_owned(), waited: limit }),
        }
    };
    select! {
        answer = asking => answer,
        () = driver => Err(unavailable(sentinel.node(), "the connection dropped".into())),
    }
}

/// The master that more than half of `of` sentinels named.
pub(super) fn most(said: &[MasterInfo], of: usize) -> Option<MasterInfo> {
    let votes = |master: &MasterInfo| said.iter().filter(|other| *other == master).count();
    said.iter().find(|master| votes(master) * 2 > of).cloned()
}

/// Returns the node if its `ROLE` is master.
async fn is_master(node: Address, until: Moment, options: Options) -> Result<Address> {
    let (mut connection, driver) = node.open(until, &options).await?;
    let limit = options.response_timeout.min(until.remaining());
    let role = redis::cmd("ROLE");
    let asking = async {
        match time::timeout(limit, connection.send_packed_command(&role)).await.map(into_server_error) {
            Ok(Ok(role)) if replicas::replica_count(&role).is_some() => Ok(()),
            Ok(Ok(_)) => Err(unavailable(
                node.node(),
                "it is a replica, and no other configured node is a master: add the master".into(),
            )),
            Ok(Err(error)) => Err(connect_error(&error, node.node())),
            Err(_) => {
                Err(Error::TimedOut { phase: Phase::Connect, node: node.node().to_owned(), waited: limit })
            }
        }
    };
    select! {
        answer = asking => answer?,
        () = driver => return Err(unavailable(node.node(), "the connection dropped".into())),
    }
    Ok(node)
}

fn unavailable(node: &str, reason: String) -> Error {
    Error::unavailable(Phase::Connect, node, reason)
}

/// Parses the reply to `SENTINEL MASTER`: names and values alternate.
pub(super) fn parse_master(value: Value) -> Option<MasterInfo> {
    let fields: HashMap<String, String> = redis::from_redis_value(value).ok()?;
    Some(MasterInfo {
        host: fields.get("ip").and_then(|host| server_text::host(host)).filter(|host| !host.is_empty())?,
        port: fields.get("port")?.parse().ok()?,
    })
}
