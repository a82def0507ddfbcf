//! Where a client's servers are, as its user says it.

use super::finder::{Finder, Sentinel};
use super::{Access, Address};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sync::{Mutex, time};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How often to look whether a node that is listened to is one of them still.
const LOOK: Duration = Duration::from_secs(1);

/// The servers of a client. Debug shows neither user nor password.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    #[allow(private_interfaces)]
    One(Finder),
    #[allow(private_interfaces)]
    Cluster(Arc<Known>),
}

/// Nodes of a cluster.
#[derive(Debug)]
pub(super) struct Known {
    /// Those that its user names.
    pub seeds: Vec<Address>,
    /// Those that they named.
    found: Mutex<Vec<Address>>,
}

impl Known {
    /// Those to begin with when nothing is known: the ones that were there last, then the seeds.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.iter().chain(&self.seeds).cloned().collect()
    }

    /// As far as is known.
    fn is_master(&self, node: &str) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.is_empty() || found.iter().any(|master| master.node() == node)
    }

    pub(super) fn find(&self, nodes: Vec<Address>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }
}

/// After `redis`, or `rediss` for TLS.
const SENTINEL: &str = "-sentinel://";
const CLUSTER: &str = "-cluster://";

impl Servers {
    /// From a URL: of one server, or
    /// - `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, where user and password are the
    ///   master's;
    /// - `redis-cluster://[user:password@]host[:port][,host[:port]..]`;
    ///
    /// `rediss` where all of them are reached by TLS.
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Self> {
        let of = |kind: &str| match url.split_once(kind) {
            Some((scheme @ ("redis" | "rediss"), rest)) => Some((scheme, rest)),
            _ => None,
        };
        match (of(SENTINEL), of(CLUSTER)) {
            (Some((scheme, rest)), _) => Self::sentinel(scheme, rest, options),
            (_, Some((scheme, rest))) => Self::cluster(scheme, rest, options),
            _ => {
                Address::parse(url, Access::to_servers(options)).map(|address| Self::One(Finder::At(address)))
            }
        }
    }

    fn cluster(scheme: &str, rest: &str, options: &Options) -> Result<Self> {
        let bad = || {
            Error::misuse(format!("bad URL: use redis{CLUSTER}[user:password@]host[:port][,host[:port]..]"))
        };
        let (credentials, hosts) = credentials(rest);
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains(['/', '#', '?']) {
            return Err(bad());
        }
        let access = Access::to_servers(options);
        let seeds =
            addresses(&format!("{scheme}://{credentials}"), hosts, 6379, access).ok_or_else(bad)??;
        Ok(Self::Cluster(Arc::new(Known { seeds, found: Mutex::default() })))
    }

    fn sentinel(scheme: &str, rest: &str, options: &Options) -> Result<Self> {
        let bad = || {
            Error::misuse(format!(
                "bad URL: use redis{SENTINEL}[user:password@]host[:port][,host[:port]..][/database]#master"
            ))
        };
        let (rest, service) =
            rest.split_once('#').filter(|(_, service)| !service.is_empty()).ok_or_else(bad)?;
        let (credentials, rest) = credentials(rest);
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let master = Address::parse(
            &format!("{scheme}://{credentials}sentinel/{database}"),
            Access::to_servers(options),
        )?;
        let sentinels = addresses(&format!("{scheme}://"), hosts, 26379, Access::to_sentinels(options))
            .ok_or_else(bad)??;
        let (service, name) = (service.to_owned(), format!("{service}@{}", sentinels[0].node()));
        Ok(Self::One(Finder::Sentinel(Arc::new(Sentinel { sentinels, service, name, master }))))
    }

    /// Whether another server may take the place of one.
    pub(crate) fn fail_over(&self) -> bool {
        match self {
            Self::One(finder) => finder.may_move(),
            Self::Cluster(_) => true,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::One(finder) => finder.name(),
            Self::Cluster(known) => known.seeds[0].node(),
        }
    }

    /// Ends when another server than `node` is known to be the one. Never where that can't be.
    pub(crate) async fn moved(&self, node: &str, options: &Options) {
        match self {
            Self::One(finder) => finder.moved(node, options).await,
            // One that left the cluster is told of nothing more.
            Self::Cluster(known) => {
                while known.is_master(node) {
                    time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Where to listen for messages, the likeliest first.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn listening(&self, options: &Options) -> Result<Vec<Address>> {
        match self {
            Self::One(finder) => Ok(vec![finder.find(options).await?]),
            Self::Cluster(known) => Ok(known.nodes()),
        }
    }
}

/// What stands before the hosts, with its `@`. A password may hold any sign.
fn credentials(rest: &str) -> (&str, &str) {
    rest.split_at(rest.rfind('@').map_or(0, |at| at + 1))
}

/// `None` where one has no name. `before` is what stands before each of the hosts.
fn addresses(before: &str, hosts: &str, port: u16, access: Access<'_>) -> Option<Result<Vec<Address>>> {
    let url = |host: &str| match host.rsplit_once(':') {
        _ if host.is_empty() => None,
        Some((_, port)) if !port.ends_with(']') => Some(format!("{before}{host}")),
        _ => Some(format!("{before}{host}:{port}")),
    };
    let urls: Option<Vec<_>> = hosts.split(',').map(url).collect();
    Some(urls?.iter().map(|url| Address::parse(url, access)).collect())
}
