//! Where the server is to be looked for: at an address, or where sentinels say.

use super::{Address, connect_error, told};
use crate::error::{Error, Phase, Result};
use crate::options::Options;
use crate::sync::{select, time};
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often sentinels are asked whether the master is still the one.
const LOOK: Duration = Duration::from_secs(1);
/// How much later than the first of the sentinels the others may answer.
const LATER: Duration = Duration::from_millis(200);

/// How one master is found. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Finder {
    At(Address),
    Sentinel(Arc<Sentinel>),
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
}

/// The master as a sentinel knows it.
#[derive(Debug)]
struct Told {
    host: String,
    port: u16,
    /// Grows with each failover.
    epoch: u64,
}

impl Finder {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::At(address) => address.node(),
            Self::Sentinel(sentinel) => &sentinel.name,
        }
    }

    /// Whether another server may be the master by now.
    pub(super) fn may_move(&self) -> bool {
        !matches!(self, Self::At(_))
    }

    /// Where the master is now.
    pub(super) async fn find(&self, options: &Options) -> Result<Address> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Sentinel(sentinel) => sentinel.master(options).await,
        }
    }

    /// Ends when the master is known to be another than `node`.
    pub(super) async fn moved(&self, node: &str, options: &Options) {
        let Self::Sentinel(sentinel) = self else { return std::future::pending().await };
        loop {
            time::sleep(LOOK).await;
            if sentinel.master(options).await.is_ok_and(|master| master.node() != node) {
                return;
            }
        }
    }
}

impl Sentinel {
    /// The master by the word of the sentinel that knows of the last failover. All are asked at once: one may be silent, and
    /// one that is cut off from the others tells what was.
    async fn master(&self, options: &Options) -> Result<Address> {
        let mut asking = JoinSet::new();
        for sentinel in &self.sentinels {
            asking.spawn(ask(sentinel.clone(), self.service.clone(), options.clone()));
        }
        let mut problem = Error::misuse("no sentinel is named");
        let mut newest = loop {
            match asking.join_next().await {
                Some(Ok(Ok(told))) => break told,
                Some(Ok(Err(error))) => problem = error,
                Some(Err(_)) => {}
                None => return Err(problem),
            }
        };
        let others = async {
            while let Some(answer) = asking.join_next().await {
                if let Ok(Ok(told)) = answer
                    && told.epoch > newest.epoch
                {
                    newest = told;
                }
            }
        };
        let _ = time::timeout(LATER, others).await;
        Ok(self.master.at(newest.host, newest.port))
    }
}

/// What one sentinel says.
async fn ask(sentinel: Address, service: String, options: Options) -> Result<Told> {
    let (mut connection, driver) = sentinel.open(&options).await?;
    let asking = async {
        let mut command = redis::cmd("SENTINEL");
        command.arg("MASTER").arg(&service);
        let answer = time::timeout(options.response_timeout, connection.send_packed_command(&command)).await;
        let node = sentinel.node();
        match answer.map(told) {
            Ok(Ok(value)) => read(value).ok_or_else(|| {
                unknown(
                    node,
                    format!("its answer about the master `{}` is not understood", service.escape_debug()),
                )
            }),
            Ok(Err(error)) if error.detail().is_some_and(|text| text.contains("No such master")) => {
                Err(unknown(node, format!("the sentinel knows no master named `{}`", service.escape_debug())))
            }
            Ok(Err(error)) => Err(connect_error(&error, node)),
            Err(_) => {
                let (phase, node, waited) = (Phase::Connect, node.to_owned(), options.response_timeout);
                Err(Error::TimedOut { phase, node, waited })
            }
        }
    };
    select! {
        answer = asking => answer,
        () = driver => Err(unknown(sentinel.node(), "the connection dropped".into())),
    }
}

fn unknown(node: &str, reason: String) -> Error {
    Error::Unavailable { phase: Phase::Connect, node: node.to_owned(), reason }
}

/// Names and values in turn.
fn read(value: Value) -> Option<Told> {
    let fields: HashMap<String, String> = redis::from_redis_value(value).ok()?;
    Some(Told {
        host: fields.get("ip")?.clone(),
        port: fields.get("port")?.parse().ok()?,
        epoch: fields.get("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or_default(),
    })
}
