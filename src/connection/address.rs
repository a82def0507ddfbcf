//! The address of a server, and the one place that opens and authenticates connections to it.
//!
//! ARCHITECTURE invariant 9: neither `Debug`, nor `node()`, nor any error of this file shows a user or a password.

use super::coalesced::{Coalesced, Load};
use super::connect_error;
use super::socket::{self, Stream};
use super::tls::Connector;
use crate::config::credentials::{Credentials, Source};
use crate::config::options::Options;
use crate::config::tls::Tls;
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult,
};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// The future that drives a connection. It completes when the connection drops.
pub(super) type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of requests that a connection queues before it writes them. Further callers wait, and a task that waits is woken and polled once
/// more. No memory is reserved for the queue.
const QUEUED_REQUESTS: usize = 1024;

/// How to authenticate to servers, in addition to their addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Access<'a> {
    pub tls: Option<&'a Tls>,
    pub credentials: Option<&'a Source>,
}

impl<'a> Access<'a> {
    pub(super) fn to_servers(options: &'a Options) -> Self {
        Self { tls: options.tls.as_ref(), credentials: options.credentials.as_ref() }
    }

    pub(super) fn to_sentinels(options: &'a Options) -> Self {
        Self { credentials: options.sentinel_credentials.as_ref(), ..Self::to_servers(options) }
    }
}

/// How well the server's identity is verified, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// No TLS: neither identity nor secrecy.
    Plain,
    /// TLS with any certificate: no identity.
    AnyCertificate,
    /// TLS with a certificate of a trusted authority, for any name.
    AnyName,
    /// TLS with a certificate for the host of the address, or for the configured name.
    Verified,
}

impl Trust {
    fn of(tls: &Tls) -> Self {
        match tls {
            Tls { unverified: true, .. } => Self::AnyCertificate,
            Tls { unnamed: true, .. } => Self::AnyName,
            _ => Self::Verified,
        }
    }
}

/// A server and its credentials.
#[derive(Clone)]
pub(super) struct Address {
    info: Arc<ConnectionInfo>,
    /// Replace the credentials in `info`.
    credentials: Option<Source>,
    /// Adds TLS to the socket.
    tls: Option<Arc<Connector>>,
    trust: Trust,
    node: String,
}

impl Address {
    /// Parses a URL; see [`parse_url`].
    #[cfg(any(test, fuzzing))]
    pub(super) fn parse(url: &str, access: Access<'_>) -> Result<Self> {
        Self::new(parse_url(url)?, access)
    }

    pub(super) fn new(info: ConnectionInfo, access: Access<'_>) -> Result<Self> {
        // The redis crate gets a stream that has TLS already, so its own TLS is left off.
        let (addr, tls, trust) = match (info.addr().clone(), access.tls) {
            (ConnectionAddr::TcpTls { host, port, insecure, tls_params }, tls) => {
                let said = Tls { unverified: insecure, ..Tls::new() };
                let tls = match tls {
                    Some(tls) => tls,
                    None if tls_params.is_none() => &said,
                    None => {
                        return Err(Error::misuse(
                            "certificates cannot be read from a `ConnectionInfo`: pass them with `ClientBuilder::tls`",
                        ));
                    }
                };
                (ConnectionAddr::Tcp(host, port), Some(Arc::new(Connector::new(tls)?)), Trust::of(tls))
            }
            (addr, None) => (addr, None, Trust::Plain),
            (_, Some(_)) => {
                return Err(Error::misuse(
                    "TLS settings for an address without TLS: use rediss:// instead of redis://, or omit the TLS settings",
                ));
            }
        };
        let (credentials, named) = (access.credentials.cloned(), info.redis_settings());
        if credentials.is_some() && (named.username().is_some() || named.password().is_some()) {
            return Err(Error::misuse(
                "both the address and a credentials callback give credentials: omit one of them (keep the callback if the \
                 password can change)",
            ));
        }
        // Every Redis speaks RESP2, and the supervisor notices a drop without RESP3.
        let redis = named.clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let node = addr.to_string();
        let info = Arc::new(info.set_addr(addr).set_redis_settings(redis));
        Ok(Self { info, credentials, tls, trust, node })
    }

    /// The address as text, without credentials.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust
    }

    /// The address of another server with the same credentials and TLS settings.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        let info = ConnectionInfo::clone(&self.info).set_addr(ConnectionAddr::Tcp(host, port));
        Self { node: info.addr().to_string(), info: Arc::new(info), ..self.clone() }
    }

    /// This address with the credentials of `other`; `None` if `other` has none.
    pub(super) fn with_credentials_of(&self, other: &Self) -> Option<Self> {
        let settings = other.info.redis_settings().clone().set_db(0);
        let any = other.credentials.is_some() || settings.password().is_some();
        let info = Arc::new(ConnectionInfo::clone(&self.info).set_redis_settings(settings));
        any.then(|| Self { info, credentials: other.credentials.clone(), ..self.clone() })
    }

    /// The host to connect to; empty for a unix socket.
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => "",
        }
    }

    /// The handshake settings for one connection, with the current credentials.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the credentials callback panics. The panic must not end the connecting task, because nothing else
    /// would reconnect.
    fn settings(&self) -> Result<RedisConnectionInfo> {
        let settings = self.info.redis_settings().clone();
        let Some(Source(provide)) = &self.credentials else { return Ok(settings) };
        // The panic message is omitted, because it may contain the password.
        let Credentials { user, password } =
            catch_unwind(AssertUnwindSafe(|| provide())).map_err(|_| {
                Error::misuse(format!(
                    "the callback of `ClientBuilder::credentials` or `sentinel_credentials` panicked on a connection to {}: \
                     make it return the last known credentials",
                    self.node
                ))
            })?;
        let settings = settings.set_password(password);
        Ok(match user {
            Some(user) => settings.set_username(user),
            None => settings,
        })
    }

    /// Opens a connection for commands, before `until`.
    pub(super) async fn open(
        &self,
        until: Moment,
        options: &Options,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        self.open_loaded(until, options, Load::default()).await
    }

    /// [`open`](Self::open), for a connection whose requests are counted by `load`.
    pub(super) async fn open_loaded(
        &self,
        until: Moment,
        options: &Options,
        load: Load,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        self.multiplexed(until, options, self.settings()?, AsyncConnectionConfig::new(), load).await
    }

    /// Opens a RESP3 connection, whose push messages go to `sender`.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_pushed(
        &self,
        options: &Options,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        let settings = self.settings()?.set_protocol(ProtocolVersion::RESP3);
        let until = Moment::now() + options.connect_timeout;
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        self.multiplexed(until, options, settings, config, Load::default()).await
    }

    async fn multiplexed(
        &self,
        until: Moment,
        options: &Options,
        settings: RedisConnectionInfo,
        config: AsyncConnectionConfig,
        load: Load,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        // The response timeout is applied by the caller, so that it can keep waiting for a request.
        let config = config.set_response_timeout(None).set_connection_timeout(None);
        let config = config.set_pipeline_buffer_size(QUEUED_REQUESTS);
        let (connection, driver) = self
            .connect_with(until, options, |stream| {
                MultiplexedConnection::new_with_config(&settings, Coalesced::new(stream, load), config)
            })
            .await?;
        let driver: ConnectionTask = Box::pin(driver);
        Ok((connection, driver))
    }

    /// Opens a connection for subscriptions.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_subscriber(&self, options: &Options) -> Result<redis::aio::PubSub> {
        let (settings, until) = (self.settings()?, Moment::now() + options.connect_timeout);
        self.connect_with(until, options, |stream| redis::aio::PubSub::new(&settings, stream)).await
    }

    /// Opens a stream to the server and runs `begin` on it, both before `until`. Callers set no timer of their own, because only
    /// this function knows which step hangs.
    async fn connect_with<T, F: Future<Output = RedisResult<T>>>(
        &self,
        until: Moment,
        options: &Options,
        begin: impl FnOnce(Box<dyn Stream>) -> F,
    ) -> Result<T> {
        let limit = options.connect_timeout;
        let failed = |error: RedisError| connect_error(&error, &self.node);
        let late = || Error::TimedOut { phase: Phase::Connect, node: self.node.clone(), waited: limit };
        let opening = time::timeout(until.remaining(), socket::open(self.info.addr(), until, options));
        let mut stream = opening.await.map_err(|_| late())?.map_err(|error| failed(error.into()))?;
        if let Some(connector) = &self.tls {
            let securing = time::timeout(until.remaining(), connector.tls(self.host(), stream));
            stream = securing.await.map_err(|_| self.no_tls_reply(limit))?.map_err(|e| failed(e.into()))?;
        }
        let beginning = time::timeout(until.remaining(), begin(stream));
        beginning.await.map_err(|_| late())?.map_err(failed)
    }

    /// A server without TLS takes the TLS handshake for an unfinished line of its own protocol, and waits for the rest.
    fn no_tls_reply(&self, limit: Duration) -> Error {
        let reason = format!(
            "no answer to the TLS handshake within {limit:?}: if the server does not speak TLS at this port, use redis://"
        );
        Error::unavailable(Phase::Connect, &self.node, reason)
    }
}

/// Parses a `redis://`, `rediss://` or unix-socket URL. Parts that the redis crate would ignore are refused: a URL whose database
/// is ignored would lead to other locks.
pub(super) fn parse_url(url: &str) -> Result<ConnectionInfo> {
    // Errors quote the scheme only, because the rest may contain a password.
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Error::misuse("not a URL: use redis://[user:password@]host[:port][/database]"));
    };
    let (known, instead) = match scheme {
        "redis" | "valkey" | "rediss" | "valkeys" => (
            &["protocol"][..],
            "write the database after the host, as in redis://host:6379/3, and user and password before the host",
        ),
        "unix" | "redis+unix" | "valkey+unix" => (
            &["protocol", "db", "user", "pass"][..],
            "write the database, user and password of a unix socket as ?db=3&user=u&pass=p",
        ),
        other => {
            return Err(Error::misuse(format!(
                "unknown URL scheme `{}`: use redis://, redis-sentinel://, redis-cluster:// or redis-replicated:// (each also with \
                 rediss for TLS), or redis+unix://",
                other.escape_debug()
            )));
        }
    };
    if !known.contains(&"user")
        && let Some(part) = wrong_part(rest)
    {
        return Err(Error::misuse(format!("bad URL: {part} {ENCODED}")));
    }
    if let Some(parsed) = redis::parse_redis_url(url) {
        let before_path = !parsed.username().is_empty() || parsed.password().is_some();
        if before_path && known.contains(&"user")
            || parsed.query_pairs().any(|(name, _)| !known.contains(&&*name))
        {
            return Err(Error::misuse(format!(
                "bad URL: {instead}; no other parameter is allowed after a `?` {ENCODED}"
            )));
        }
        if parsed.fragment().is_some() {
            return Err(Error::misuse(format!(
                "bad URL: a `#` is not allowed here: to name a master, use redis-sentinel://; in place of `#insecure`, use \
                 `Tls::danger_accept_any_certificate` {ENCODED}"
            )));
        }
    }
    parse_info(url)
}

pub(super) const ENCODED: &str =
    "(in a user and a password, write @ : / # ? and % as %40 %3A %2F %23 %3F and %25)";

/// Parses every form of address that the redis crate accepts.
pub(super) fn parse_info(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    server.into_connection_info().map_err(|error| {
        // The message begins with the redis crate's own words. The rest may quote the URL.
        let text = error.to_string();
        let why = text.split(" - ").next().unwrap_or_default();
        match cfg!(not(feature = "tls")) && why.contains("TLS") {
            true => Error::misuse("TLS needs this crate's feature `tls`: enable it in Cargo.toml"),
            false => Error::misuse(format!("bad URL: {why} {ENCODED}")),
        }
    })
}

/// Names the part of a URL that is wrong, from `rest`, which follows the scheme. Quotes nothing, because a part may be a password that
/// was not encoded.
fn wrong_part(rest: &str) -> Option<&'static str> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let database = path.strip_prefix('/').unwrap_or_default();
    if name.is_empty() {
        Some("the host is missing")
    } else if port.is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err()) {
        Some("the port is not a number from 0 to 65535")
    } else if database.split(['?', '#']).next().is_some_and(|it| !it.is_empty() && it.parse::<u32>().is_err())
    {
        Some("the database, after the host, is not a number")
    } else {
        None
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.node).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_urls_are_misuse_and_show_no_password() {
        for bad in [
            "",
            "localhost:6379",
            "http://user:canary@localhost",
            "redis://:canary@",
            "redis://user:canary@host:99999",
            "redis://user:canary@host/notanumber",
            "rediss://user:canary@host#insecure",
        ] {
            match Address::parse(bad, Access::default()) {
                Err(error @ Error::Misuse { .. }) => {
                    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
                }
                other => panic!("{bad}: {other:?}"),
            }
        }
    }

    /// Ignoring such a part would use the locks of database 0.
    #[test]
    fn url_parts_that_the_redis_crate_ignores_are_refused_with_advice() {
        for (url, what) in [
            ("redis://h:6379?db=3", "redis://host:6379/3"),
            ("rediss://h?database=canary", "redis://host:6379/3"),
            ("redis+unix:///s?database=3", "?db=3"),
            ("unix:///s?db=3&password=canary", "pass=p"),
            ("redis://h:1/0#canary", "redis-sentinel://"),
            ("unix://user:canary@localhost/s", "pass=p"),
            ("redis+unix:///s#canary", "redis-sentinel://"),
            ("redis://user:12?canary@h", "%3F"),
            ("redis://user:12#canary@h", "%23"),
            ("redis://user:can/ary@h", "%2F"),
            ("redis://h/canary", "the database, after the host, is not a number"),
            ("redis://user:canary@h:99999/1", "the port is not a number"),
            ("redis://user:canary@h:canary", "the port is not a number"),
            ("redis://user:canary@/1", "the host is missing"),
            ("redis://user:canary@:6379", "the host is missing"),
            ("redis://user:canary@a b", "bad URL"),
            ("redis://h?protocol=canary", "protocol"),
            ("redis-cluster+x://canary", "redis-sentinel://, redis-cluster:// or redis-replicated://"),
        ] {
            match Address::parse(url, Access::default()) {
                Err(Error::Misuse { message }) => {
                    assert!(message.contains(what) && !message.contains("canary"), "{url}: {message}");
                    assert!(!message.contains("invalid client config"), "{message}");
                }
                other => panic!("{url}: {other:?}"),
            }
        }
        for fine in ["redis://h/3?protocol=resp3", "redis+unix:///s?db=3&user=u&pass=p&protocol=2"] {
            assert_eq!(parse_url(fine).unwrap().redis_settings().db(), 3);
        }
        for url in ["rediss://h", "valkeys://h:7"] {
            let addr = parse_url(url).map(|info| info.addr().clone());
            match cfg!(feature = "tls") {
                true => {
                    assert!(matches!(addr, Ok(ConnectionAddr::TcpTls { insecure: false, .. })), "{addr:?}")
                }
                false => assert!(addr.unwrap_err().to_string().contains("feature `tls`")),
            }
        }
    }

    #[test]
    fn good_urls_show_no_password() {
        for good in [
            "redis://127.0.0.1",
            "redis://user:canary@127.0.0.1:7000/3",
            "redis+unix:///tmp/x.sock",
            "unix:///tmp/x.sock?db=1&pass=canary",
        ] {
            let address = Address::parse(good, Access::default()).unwrap();
            assert!(!format!("{address:?} {}", address.node()).contains("canary"));
        }
    }
}
