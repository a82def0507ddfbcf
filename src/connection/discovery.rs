//! Where the server is to be looked for: at an address, where sentinels say, or among several of which one is the master.

use super::{Address, connect_error, replicas, server_text, told};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::{select, time};
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often sentinels are asked whether the master is still the one.
const LOOK: Duration = Duration::from_secs(1);
/// How much later than the first of them the others may answer, where most have answered.
const LATER: Duration = Duration::from_millis(200);
/// The same where most have not: who answers first may not be who is right.
const LATEST: Duration = Duration::from_secs(1);

/// How one master is found. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Discovery {
    At(Address),
    Sentinel(Arc<Sentinel>),
    Replicated(Arc<Replicated>),
}

/// Sentinels, and the master that they watch over.
#[derive(Debug)]
pub(super) struct Sentinel {
    pub sentinels: Vec<Address>,
    pub service: String,
    /// The group: its service and the first of its sentinels.
    pub name: String,
    /// Credentials and all else but the place of the master.
    pub master: Address,
    /// The master's credentials are for sentinels that ask for some, too.
    pub shares_credentials: bool,
}

/// A master and its replicas, whichever that is.
#[derive(Debug)]
pub(super) struct Replicated {
    pub nodes: Vec<Address>,
}

/// The master as a sentinel knows it.
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

    /// Whether another server may be the master by now.
    pub(super) fn may_move(&self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// Where the master is now.
    pub(super) async fn find(&self, options: &Options) -> Result<Address> {
        self.find_until(Moment::now() + options.connect_timeout, options).await
    }

    /// The same within a time that others have used a part of.
    pub(super) async fn find_until(&self, until: Moment, options: &Options) -> Result<Address> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Sentinel(sentinel) => sentinel.master(until, options).await,
            Self::Replicated(replicated) => Ok(replicated.masters(until, options).await?.swap_remove(0)),
        }
    }

    /// Ends when the master is known to be another than `node`.
    pub(super) async fn moved(&self, node: &str, options: &Options) {
        if !self.may_move() {
            return std::future::pending().await;
        }
        loop {
            time::sleep(LOOK).await;
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
    /// The master by the word of most of the sentinels that answer. All are asked at once: one may be silent, one that is cut
    /// off from the others tells what was, and one may lie. So no single one decides, whatever failover it claims to know of.
    ///
    /// # Errors
    /// Where they do not agree, which ends soon after a failover.
    async fn master(&self, until: Moment, options: &Options) -> Result<Address> {
        let asked = self.sentinels.iter().map(|sentinel| {
            let known = if self.shares_credentials { sentinel.known_as(&self.master) } else { None };
            ask(sentinel.clone(), known, self.service.clone(), until, options.clone())
        });
        let named = self.sentinels.len();
        let said = all(asked, until, named / 2 + 1, |said| most(said, named).is_some()).await?;
        match most(&said, said.len()) {
            Some(MasterInfo { host, port }) => Ok(self.master.at(host, port)),
            None => {
                let places: Vec<_> = said.iter().map(|told| format!("{}:{}", told.host, told.port)).collect();
                let reason = format!("the sentinels do not agree on the master: {}", places.join(", "));
                Err(unknown(&self.name, reason))
            }
        }
    }
}

impl Replicated {
    /// Those who say that they are: one, but while another takes its place. The first that said so comes first.
    async fn masters(&self, until: Moment, options: &Options) -> Result<Vec<Address>> {
        let asked = self.nodes.iter().map(|node| is_master(node.clone(), until, options.clone()));
        // The others are replicas, most often.
        all(asked, until, 1, |_| false).await
    }
}

/// What those who answer say, all asked at once, until that is `enough`. What comes shortly after the first of them counts, too,
/// and less shortly where fewer than `quorum` have answered by then. Each of them ends by `until`.
///
/// # Errors
/// The last of them, if there is nothing else.
async fn all<T: Send + 'static>(
    asked: impl Iterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
    until: Moment,
    quorum: usize,
    enough: impl Fn(&[T]) -> bool,
) -> Result<Vec<T>> {
    let (mut asking, mut said) = (JoinSet::new(), Vec::new());
    asked.for_each(|one| _ = asking.spawn(one));
    let mut problem = Error::misuse("no server is named");
    while said.is_empty() {
        match asking.join_next().await {
            Some(Ok(Ok(told))) => said.push(told),
            Some(Ok(Err(error))) => problem = error,
            Some(Err(_)) => {}
            None => return Err(problem),
        }
    }
    let first = Moment::now();
    let (soon, late) = (first + LATER, first + LATEST.min(until.remaining() / 2));
    while !enough(&said) {
        let patience = if said.len() < quorum { late } else { soon };
        match time::timeout(patience.remaining(), asking.join_next()).await {
            Ok(Some(answer)) => said.extend(answer.ok().and_then(Result::ok)),
            Ok(None) | Err(_) => break,
        }
    }
    Ok(said)
}

/// What one sentinel says; `known` as the master is, where it wants a password and its user wants it to have that.
async fn ask(
    sentinel: Address,
    known: Option<Address>,
    service: String,
    until: Moment,
    options: Options,
) -> Result<MasterInfo> {
    match (ask_once(&sentinel, &service, until, &options).await, known) {
        (Err(error), Some(known)) if error.code() == Some("NOAUTH") => {
            ask_once(&known, &service, until, &options).await
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
        match answer.map(told) {
            Ok(Ok(value)) => read(value).ok_or_else(|| {
                unknown(
                    node,
                    format!("its answer about the master `{}` is not understood", service.escape_debug()),
                )
            }),
            Ok(Err(error))
                if server_text::detail(&error).is_some_and(|text| text.contains("No such master")) =>
            {
                Err(unknown(node, format!("the sentinel knows no master named `{}`", service.escape_debug())))
            }
            Ok(Err(error)) => Err(connect_error(&error, node)),
            Err(_) => Err(Error::TimedOut { phase: Phase::Connect, node: node.to_owned(), waited: limit }),
        }
    };
    select! {
        answer = asking => answer,
        () = driver => Err(unknown(sentinel.node(), "the connection dropped".into())),
    }
}

/// The master that more than half of `of` sentinels name.
pub(super) fn most(said: &[MasterInfo], of: usize) -> Option<MasterInfo> {
    let voices = |told: &MasterInfo| said.iter().filter(|other| *other == told).count();
    said.iter().find(|told| voices(told) * 2 > of).cloned()
}

/// The node, if it says that it is a master.
async fn is_master(node: Address, until: Moment, options: Options) -> Result<Address> {
    let (mut connection, driver) = node.open(until, &options).await?;
    let limit = options.response_timeout.min(until.remaining());
    let role = redis::cmd("ROLE");
    let asking = async {
        match time::timeout(limit, connection.send_packed_command(&role)).await.map(told) {
            Ok(Ok(role)) if replicas::connected(&role).is_some() => Ok(()),
            Ok(Ok(_)) => Err(unknown(
                node.node(),
                "it is a replica, and no other server says that it is the master".into(),
            )),
            Ok(Err(error)) => Err(connect_error(&error, node.node())),
            Err(_) => {
                Err(Error::TimedOut { phase: Phase::Connect, node: node.node().to_owned(), waited: limit })
            }
        }
    };
    select! {
        answer = asking => answer?,
        () = driver => return Err(unknown(node.node(), "the connection dropped".into())),
    }
    Ok(node)
}

fn unknown(node: &str, reason: String) -> Error {
    Error::Unavailable { phase: Phase::Connect, node: node.to_owned(), reason }
}

/// Names and values in turn.
pub(super) fn read(value: Value) -> Option<MasterInfo> {
    let fields: HashMap<String, String> = redis::from_redis_value(value).ok()?;
    Some(MasterInfo {
        host: fields.get("ip").and_then(|host| server_text::host(host)).filter(|host| !host.is_empty())?,
        port: fields.get("port")?.parse().ok()?,
    })
}
