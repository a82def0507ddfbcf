//! Where a client's servers are, as its user says it.

use super::address::{Trust, read, understood};
use super::discovery::{Discovery, Replicated, Sentinel};
use super::{Access, Address};
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::runtime::sync::{Mutex, time};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How often to look whether a node that is listened to is one of them still.
const LOOK: Duration = Duration::from_secs(1);

/// The servers of a client. Debug shows neither user nor password.
#[derive(Clone, Debug)]
pub(crate) enum Servers {
    #[allow(private_interfaces)]
    One(Discovery),
    #[allow(private_interfaces)]
    Cluster(Arc<SeedNodes>),
}

/// Nodes of a cluster.
#[derive(Debug)]
pub(super) struct SeedNodes {
    /// Those that its user names.
    pub seeds: Vec<Address>,
    /// Those that they named.
    found: Mutex<Vec<Address>>,
}

impl SeedNodes {
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
const REPLICATED: &str = "-replicated://";

impl Servers {
    /// From a URL: of one server, or
    /// - `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, where user and password are the
    ///   master's;
    /// - `redis-cluster://[user:password@]host[:port][,host[:port]..]`;
    /// - `redis-replicated://[user:password@]host[:port][,host[:port]..][/database]`;
    ///
    /// `rediss` where all of them are reached by TLS.
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Self> {
        let of = |kind: &str| match url.split_once(kind) {
            Some((scheme @ ("redis" | "rediss"), rest)) => Some((scheme, rest)),
            _ => None,
        };
        let bad = |kind: &str, rest: &str| {
            let host = "[user:password@]host[:port][,host[:port]..]";
            Error::misuse(format!("bad URL: use redis{kind}{host}{rest}"))
        };
        if let Some((scheme, rest)) = of(SENTINEL) {
            let bad = || bad(SENTINEL, "[/database]#master");
            let (rest, service) =
                rest.split_once('#').filter(|(_, service)| !service.is_empty()).ok_or_else(bad)?;
            let (credentials, rest) = credentials(rest);
            let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
            let master = read(&format!("{scheme}://{credentials}sentinel/{database}"))?;
            let sentinels = infos(&format!("{scheme}://"), hosts, "", 26379).ok_or_else(bad)??;
            return Self::by_sentinels(sentinels, service, master, options);
        }
        if let Some((scheme, rest)) = of(CLUSTER) {
            let bad = || bad(CLUSTER, "");
            let (credentials, hosts) = credentials(rest);
            let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
            if hosts.contains(['/', '#', '?']) {
                return Err(bad());
            }
            let nodes = infos(&format!("{scheme}://{credentials}"), hosts, "", 6379).ok_or_else(bad)??;
            return Self::cluster(nodes, options);
        }
        if let Some((scheme, rest)) = of(REPLICATED) {
            let bad = || bad(REPLICATED, "[/database]");
            let (credentials, rest) = credentials(rest);
            let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
            let before = format!("{scheme}://{credentials}");
            let nodes = infos(&before, hosts, &format!("/{database}"), 6379).ok_or_else(bad)??;
            let nodes = addresses(nodes, Access::to_servers(options))?;
            return Ok(Self::One(Discovery::Replicated(Arc::new(Replicated { nodes }))));
        }
        Self::one(read(url)?, options)
    }

    /// One that does not move.
    pub(crate) fn one(server: impl IntoConnectionInfo, options: &Options) -> Result<Self> {
        let address = Address::new(understood(server)?, Access::to_servers(options))?;
        Ok(Self::One(Discovery::At(address)))
    }

    /// Some of the nodes of a cluster.
    pub(crate) fn cluster(
        nodes: impl IntoIterator<Item = impl IntoConnectionInfo>,
        options: &Options,
    ) -> Result<Self> {
        let nodes = nodes.into_iter().map(understood).collect::<Result<Vec<_>>>()?;
        let way_in = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
            (tls, settings.username().map(str::to_owned), settings.password().map(str::to_owned))
        };
        if nodes.iter().any(|node| way_in(node) != way_in(&nodes[0])) {
            return Err(Error::misuse(
                "the nodes of a cluster have the same user and password, and all of them TLS or none",
            ));
        }
        if nodes.iter().any(|node| node.redis_settings().db() != 0) {
            return Err(Error::misuse("a cluster has no other database than 0"));
        }
        let seeds = addresses(nodes, Access::to_servers(options))?;
        if seeds.is_empty() {
            return Err(Error::misuse("no node of the cluster is named"));
        }
        Ok(Self::Cluster(Arc::new(SeedNodes { seeds, found: Mutex::default() })))
    }

    /// The master that sentinels watch over by the name of `service`, reached as `master` is but for its address.
    pub(crate) fn by_sentinels(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        service: &str,
        master: impl IntoConnectionInfo,
        options: &Options,
    ) -> Result<Self> {
        let sentinels = sentinels.into_iter().map(understood).collect::<Result<Vec<_>>>()?;
        let master = understood(master)?;
        let secure = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        // Settings for TLS are for those of them that are reached by it.
        let some = secure(&master) || sentinels.iter().any(secure);
        let address = |info: ConnectionInfo, access: Access<'_>| {
            let tls = access.tls.filter(|_| secure(&info) || !some);
            Address::new(info, Access { tls, ..access })
        };
        let master = address(master, Access::to_servers(options))?;
        let sentinels = sentinels.into_iter().map(|info| address(info, Access::to_sentinels(options)));
        let sentinels = sentinels.collect::<Result<Vec<_>>>()?;
        let Some(first) = sentinels.first() else { return Err(Error::misuse("no sentinel is named")) };
        let weakest = sentinels.iter().map(Address::trust).min().unwrap_or(Trust::Plain);
        let named = options.tls.as_ref().is_some_and(|tls| tls.server_name.is_some());
        if master.trust() == Trust::Verified && weakest < Trust::Verified && !named {
            return Err(Error::misuse(
                "the master is reached by TLS, and a sentinel without it or unverified: whoever is between would choose the name \
                 that the master's certificate is verified for: reach the sentinels by rediss://, too, or give that name by \
                 `Tls::server_name`",
            ));
        }
        let shares_credentials = options.share_credentials;
        if shares_credentials && weakest < master.trust() {
            return Err(Error::misuse(
                "`share_credentials_with_sentinels` would send the master's password to a sentinel over a weaker transport than \
                 the master's: reach the sentinels by rediss://, too, or give them credentials of their own by \
                 `sentinel_credentials`",
            ));
        }
        if shares_credentials && options.sentinel_credentials.is_some() {
            return Err(Error::misuse(
                "`share_credentials_with_sentinels` beside `sentinel_credentials`: leave one of them away",
            ));
        }
        let (service, name) = (service.to_owned(), format!("{service}@{}", first.node()));
        let sentinel = Sentinel { sentinels, service, name, master, shares_credentials };
        Ok(Self::One(Discovery::Sentinel(Arc::new(sentinel))))
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

/// `None` where one has no name. `before` is what stands before each of the hosts, and `after` what stands behind.
fn infos(before: &str, hosts: &str, after: &str, port: u16) -> Option<Result<Vec<ConnectionInfo>>> {
    let url = |host: &str| match host.rsplit_once(':') {
        _ if host.is_empty() => None,
        Some((_, port)) if !port.ends_with(']') => Some(format!("{before}{host}{after}")),
        _ => Some(format!("{before}{host}:{port}{after}")),
    };
    let urls: Option<Vec<_>> = hosts.split(',').map(url).collect();
    Some(urls?.iter().map(|url| read(url)).collect())
}

fn addresses(infos: Vec<ConnectionInfo>, access: Access<'_>) -> Result<Vec<Address>> {
    infos.into_iter().map(|info| Address::new(info, access)).collect()
}
