//! The servers of a client as the user configures them, by URL or by parts.
//!
//! A configuration that would weaken the verification of a server or expose a password is refused here, before any connection.

#[cfg(feature = "redis-interop")]
use super::address::parse_info;
use super::address::{ENCODED, Trust, parse_url};
use super::discovery::{Discovery, Replicated, Sentinel};
use super::{Access, Address};
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::runtime::mutex::Mutex;
use crate::runtime::sync::time;
#[cfg(feature = "redis-interop")]
use redis::IntoConnectionInfo;
use redis::{ConnectionAddr, ConnectionInfo};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How often to check that the subscribed node still belongs to the cluster.
const CHECK: Duration = Duration::from_secs(1);

/// The servers that a client connects to. [`ClientBuilder::connect_with`](crate::ClientBuilder::connect_with) takes them.
///
/// A string becomes the servers that its URL names (see [`Client::connect`](crate::Client::connect)). With the feature `redis-interop`,
/// there are also [`one`](Self::one), [`cluster`](Self::cluster) and [`sentinels`](Self::sentinels), which take the connection settings
/// of redis-rs clients.
///
/// Servers are checked when a client connects to them: an invalid URL is [`Error::Misuse`] then.
///
/// ```no_run
/// # async fn f() -> redisson_lock::Result<()> {
/// use redisson_lock::{Client, Servers};
/// let servers = Servers::from("redis-sentinel://10.0.0.1:26379,10.0.0.2:26379#orders");
/// let client = Client::builder().connect_with(servers).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Servers(Arc<Resolve>);

type Resolve = dyn Fn(&Options) -> Result<Topology> + Send + Sync;

impl Servers {
    fn new(resolve: impl Fn(&Options) -> Result<Topology> + Send + Sync + 'static) -> Self {
        Self(Arc::new(resolve))
    }

    /// Checks the servers.
    pub(crate) fn resolve(&self, options: &Options) -> Result<Topology> {
        (self.0)(options)
    }
}

impl<T: AsRef<str>> From<T> for Servers {
    fn from(url: T) -> Self {
        let url = url.as_ref().to_owned();
        Self::new(move |options| Topology::parse(&url, options))
    }
}

/// Servers with the connection settings of redis-rs.
///
/// User, password, database and TLS are taken from these. The protocol version, timeouts and socket settings are this crate's own. If a
/// server is configured to accept any certificate (`#insecure`), the client does the same, unless
/// [`tls`](crate::ClientBuilder::tls) is set. Certificates are [`Error::Misuse`] at connect, because the redis crate does not expose them:
/// pass them with [`tls`](crate::ClientBuilder::tls).
///
/// The redis crate parses a string, and ignores unknown parameters such as `?database=3`. `connect` rejects them.
#[cfg(feature = "redis-interop")]
impl Servers {
    /// Returns the server of an existing [`redis::Client`].
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// use redisson_lock::{Client, Servers, redis};
    /// let yours = redis::Client::open("redis://127.0.0.1/3")?;
    /// let server = Servers::one(yours.get_connection_info().clone());
    /// let client = Client::builder().connect_with(server).await?;
    /// # Ok(()) }
    /// ```
    pub fn one(server: impl IntoConnectionInfo) -> Self {
        let server = parse_info(server);
        Self::new(move |options| Topology::one(server.clone()?, options))
    }

    /// Returns the cluster that has these `nodes`.
    ///
    /// Pass the nodes from which you built your `redis::cluster::ClusterClient`, because it does not expose them. Each node must carry
    /// the same user, password and TLS setting.
    pub fn cluster(nodes: impl IntoIterator<Item = impl IntoConnectionInfo>) -> Self {
        let nodes = parse_infos(nodes);
        Self::new(move |options| Topology::cluster(nodes.clone()?, options))
    }

    /// Returns the master that `sentinels` monitor under the name `service`.
    ///
    /// Pass the values from which you built your `redis::sentinel::SentinelClient`, because it does not expose them. The client
    /// connects to the master that most of the responding sentinels name.
    ///
    /// `master` provides user, password, database and TLS for the master; its host and port are ignored. The sentinels' own users and
    /// passwords are part of `sentinels`, or come from [`sentinel_credentials`](crate::ClientBuilder::sentinel_credentials).
    ///
    /// Connecting fails with [`Error::Misuse`] if a sentinel's connection is less secure than the master's, because an attacker could then
    /// choose the master. Exception: the master's certificate is verified, and `Tls::server_name` sets the name in it.
    ///
    /// ```no_run
    /// # async fn f() -> redisson_lock::Result<()> {
    /// use redisson_lock::{Client, Servers};
    /// let sentinels = ["redis://:secret@10.0.0.1:26379", "redis://:secret@10.0.0.2:26379"];
    /// let servers = Servers::sentinels(sentinels, "orders", "redis://app:other@master/3");
    /// let client = Client::builder().connect_with(servers).await?;
    /// # Ok(()) }
    /// ```
    pub fn sentinels(
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        service: impl Into<String>,
        master: impl IntoConnectionInfo,
    ) -> Self {
        let (sentinels, master, service) = (parse_infos(sentinels), parse_info(master), service.into());
        Self::new(move |options| {
            Topology::by_sentinels(sentinels.clone()?, &service, master.clone()?, options)
        })
    }
}

#[cfg(feature = "redis-interop")]
fn parse_infos(servers: impl IntoIterator<Item = impl IntoConnectionInfo>) -> Result<Vec<ConnectionInfo>> {
    servers.into_iter().map(parse_info).collect()
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").finish_non_exhaustive()
    }
}

/// The checked servers of a client. `Debug` shows neither user nor password.
#[derive(Clone, Debug)]
pub(crate) enum Topology {
    #[allow(private_interfaces)]
    One(Discovery),
    #[allow(private_interfaces)]
    Cluster(Arc<SeedNodes>),
}

/// The known nodes of a cluster.
#[derive(Debug)]
pub(super) struct SeedNodes {
    /// The nodes that the user configured.
    pub seeds: Vec<Address>,
    /// The masters of the latest layout.
    masters: Mutex<Vec<Address>>,
}

impl SeedNodes {
    /// The nodes to ask for the layout, each once: the latest masters, then the seeds.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let masters = self.masters.lock();
        let is_new = |seed: &&Address| !masters.iter().any(|master| master.node() == seed.node());
        masters.iter().chain(self.seeds.iter().filter(is_new)).cloned().collect()
    }

    /// Whether `node` is a master of the latest layout; true while no layout is known.
    fn is_master(&self, node: &str) -> bool {
        let masters = self.masters.lock();
        masters.is_empty() || masters.iter().any(|master| master.node() == node)
    }

    /// Sets the masters of the latest layout, each once.
    pub(super) fn set_masters(&self, masters: Vec<Address>) {
        *self.masters.lock() = masters;
    }
}

// The rest of a scheme, after `redis` or (with TLS) `rediss`.
const SENTINEL: &str = "-sentinel://";
const CLUSTER: &str = "-cluster://";
const REPLICATED: &str = "-replicated://";

impl Topology {
    /// Parses the URL of one server, or one of these:
    /// - `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, with the user and password of the
    ///   master;
    /// - `redis-cluster://[user:password@]host[:port][,host[:port]..]`;
    /// - `redis-replicated://[user:password@]host[:port][,host[:port]..][/database]`.
    ///
    /// The prefix `rediss` selects TLS for all of the hosts.
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
            if service.contains(['@', '/', '#']) {
                // The `#` before it is probably part of a password, which the error must not show.
                return Err(Error::misuse(format!(
                    "bad URL: the name of the master contains @, / or # {ENCODED}"
                )));
            }
            let (credentials, rest) = credentials(rest);
            let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
            let master = parse_url(&format!("{scheme}://{credentials}sentinel/{database}"))?;
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
        Self::one(parse_url(url)?, options)
    }

    /// One server with a fixed address.
    fn one(server: ConnectionInfo, options: &Options) -> Result<Self> {
        let address = Address::new(server, Access::to_servers(options))?;
        Ok(Self::One(Discovery::At(address)))
    }

    /// A cluster, by some of its nodes.
    fn cluster(nodes: Vec<ConnectionInfo>, options: &Options) -> Result<Self> {
        let way_in = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
            (tls, settings.username().map(str::to_owned), settings.password().map(str::to_owned))
        };
        if nodes.iter().any(|node| way_in(node) != way_in(&nodes[0])) {
            return Err(Error::misuse(
                "the nodes of a cluster need the same user and password, and TLS for all of them or none: correct the addresses",
            ));
        }
        if nodes.iter().any(|node| node.redis_settings().db() != 0) {
            return Err(Error::misuse("a cluster has database 0 only: omit the database"));
        }
        let seeds = addresses(nodes, Access::to_servers(options))?;
        if seeds.is_empty() {
            return Err(Error::misuse("the list of cluster nodes is empty: name at least one"));
        }
        Ok(Self::Cluster(Arc::new(SeedNodes { seeds, masters: Mutex::default() })))
    }

    /// The master that `sentinels` monitor under the name `service`. `master` has the master's credentials, TLS and database; its
    /// host and port are ignored.
    fn by_sentinels(
        sentinels: Vec<ConnectionInfo>,
        service: &str,
        master: ConnectionInfo,
        options: &Options,
    ) -> Result<Self> {
        let tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        // The TLS settings apply to the addresses that use TLS; if none does, `Address::new` refuses the settings.
        let some = tls(&master) || sentinels.iter().any(tls);
        let address = |info: ConnectionInfo, access: Access<'_>| {
            let tls = access.tls.filter(|_| tls(&info) || !some);
            Address::new(info, Access { tls, ..access })
        };
        let master = address(master, Access::to_servers(options))?;
        let sentinels = sentinels.into_iter().map(|info| address(info, Access::to_sentinels(options)));
        let sentinels = sentinels.collect::<Result<Vec<_>>>()?;
        let Some(first) = sentinels.first() else {
            return Err(Error::misuse("the list of sentinels is empty: name at least one"));
        };
        let weakest = sentinels.iter().map(Address::trust).min().unwrap_or(Trust::Plain);
        let named = options.tls.as_ref().is_some_and(|tls| tls.server_name.is_some());
        let verified = master.trust() == Trust::Verified;
        if !verified && weakest < master.trust() {
            return Err(Error::misuse(
                "a sentinel's connection is less secure than the master's, so an attacker on the path could name another server, which \
                 would then get the master's password: use rediss:// for the sentinels, too",
            ));
        }
        if verified && weakest < Trust::Verified && !named {
            return Err(Error::misuse(
                "the master uses verified TLS, but a sentinel uses no TLS or is not verified, so an attacker on the path could choose \
                 the name for which the master's certificate is checked: use rediss:// for the sentinels, too, or set that name \
                 with `Tls::server_name`",
            ));
        }
        let shares_credentials = options.share_credentials;
        if shares_credentials && weakest < master.trust() {
            return Err(Error::misuse(
                "`share_credentials_with_sentinels` would send the master's password to a sentinel over a weaker transport than \
                 the master's: use rediss:// for the sentinels, too, or give them credentials of their own with \
                 `sentinel_credentials`",
            ));
        }
        if shares_credentials && options.sentinel_credentials.is_some() {
            return Err(Error::misuse(
                "both `share_credentials_with_sentinels` and `sentinel_credentials` are set: omit one of them",
            ));
        }
        let (service, name) = (service.to_owned(), format!("{service}@{}", first.node()));
        let sentinel = Sentinel { sentinels, service, name, master, shares_credentials };
        Ok(Self::One(Discovery::Sentinel(Arc::new(sentinel))))
    }

    /// Whether another server may replace one of these.
    pub(crate) fn can_fail_over(&self) -> bool {
        match self {
            Self::One(discovery) => discovery.may_move(),
            Self::Cluster(_) => true,
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::One(discovery) => discovery.name(),
            Self::Cluster(known) => known.seeds[0].node(),
        }
    }

    /// Waits until `node` is known to be replaced by another server. Never completes if it cannot be replaced.
    pub(crate) async fn until_moved(&self, node: &str, options: &Options) {
        match self {
            Self::One(discovery) => discovery.until_moved(node, options).await,
            // A node that has left the cluster receives no more messages.
            Self::Cluster(known) => {
                while known.is_master(node) {
                    time::sleep(CHECK).await;
                }
            }
        }
    }

    /// The servers to subscribe at, in order of preference.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn listening(&self, options: &Options) -> Result<Vec<Address>> {
        match self {
            Self::One(discovery) => Ok(vec![discovery.find(options).await?]),
            Self::Cluster(known) => Ok(known.nodes()),
        }
    }
}

/// Splits off the credentials with their `@`. It is the last one, because a password may contain `@`.
fn credentials(rest: &str) -> (&str, &str) {
    rest.split_at(rest.rfind('@').map_or(0, |at| at + 1))
}

/// Parses each of the `hosts`, with `before` and `after` around it. `None` if a host is empty.
fn infos(before: &str, hosts: &str, after: &str, port: u16) -> Option<Result<Vec<ConnectionInfo>>> {
    let url = |host: &str| match host.rsplit_once(':') {
        _ if host.is_empty() => None,
        Some((_, port)) if !port.ends_with(']') => Some(format!("{before}{host}{after}")),
        _ => Some(format!("{before}{host}:{port}{after}")),
    };
    let urls: Option<Vec<_>> = hosts.split(',').map(url).collect();
    Some(urls?.iter().map(|url| parse_url(url)).collect())
}

fn addresses(infos: Vec<ConnectionInfo>, access: Access<'_>) -> Result<Vec<Address>> {
    infos.into_iter().map(|info| Address::new(info, access)).collect()
}
