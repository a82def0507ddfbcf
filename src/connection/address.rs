//! Where the server is and how to get in.

use super::connect_error;
use super::secure::Connector;
use super::socket::{self, Stream};
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

/// What keeps a connection going, and ends when it drops.
pub(super) type ConnectionTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How servers are got into, besides what stands in their addresses.
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

/// How sure a client is who the server is, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    /// It may be anybody, and anybody may listen.
    Plain,
    /// It may be anybody.
    AnyCertificate,
    /// It may be anybody who has a certificate of the authority.
    AnyName,
    /// It is the host of its address, or has the name that is set.
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

/// A server, with its credentials. Debug and Display show neither user nor password.
#[derive(Clone)]
pub(super) struct Address {
    info: Arc<ConnectionInfo>,
    /// In the place of those in `info`.
    credentials: Option<Source>,
    /// How the connection is made a secure one, if it is to be.
    secure: Option<Arc<Connector>>,
    trust: Trust,
    node: String,
}

impl Address {
    /// From a URL: see [`read`].
    #[cfg(any(test, fuzzing))]
    pub(super) fn parse(url: &str, access: Access<'_>) -> Result<Self> {
        Self::new(read(url)?, access)
    }

    pub(super) fn new(info: ConnectionInfo, access: Access<'_>) -> Result<Self> {
        // The crate is not told of TLS, as the stream that it gets is a secure one already.
        let (addr, secure, trust) = match (info.addr().clone(), access.tls) {
            (ConnectionAddr::TcpTls { host, port, insecure, tls_params }, tls) => {
                let said = Tls { unverified: insecure, ..Tls::new() };
                let tls = match tls {
                    Some(tls) => tls,
                    None if tls_params.is_none() => &said,
                    None => {
                        return Err(Error::misuse(
                            "certificates in a `ConnectionInfo` can't be read from it: give them by `ClientBuilder::tls`",
                        ));
                    }
                };
                (ConnectionAddr::Tcp(host, port), Some(Arc::new(Connector::new(tls)?)), Trust::of(tls))
            }
            (addr, None) => (addr, None, Trust::Plain),
            (_, Some(_)) => {
                return Err(Error::misuse(
                    "settings for TLS, and an address that is without it: use rediss:// in the place of redis://",
                ));
            }
        };
        let (credentials, named) = (access.credentials.cloned(), info.redis_settings());
        if credentials.is_some() && (named.username().is_some() || named.password().is_some()) {
            return Err(Error::misuse(
                "credentials beside the address, and in the settings: leave one of them away, the former if they change",
            ));
        }
        // RESP2 serves every Redis, and the supervisor sees a drop without RESP3's help.
        let redis = named.clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let node = addr.to_string();
        let info = Arc::new(info.set_addr(addr).set_redis_settings(redis));
        Ok(Self { info, credentials, secure, trust, node })
    }

    /// The server's address as text.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn trust(&self) -> Trust {
        self.trust
    }

    /// Another server that is got into in the same way.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        let info = ConnectionInfo::clone(&self.info).set_addr(ConnectionAddr::Tcp(host, port));
        Self { node: info.addr().to_string(), info: Arc::new(info), ..self.clone() }
    }

    /// The same server, got into with the credentials of `other`, if that has any.
    pub(super) fn known_as(&self, other: &Self) -> Option<Self> {
        let settings = other.info.redis_settings().clone().set_db(0);
        let any = other.credentials.is_some() || settings.password().is_some();
        let info = Arc::new(ConnectionInfo::clone(&self.info).set_redis_settings(settings));
        any.then(|| Self { info, credentials: other.credentials.clone(), ..self.clone() })
    }

    /// As it is looked for; empty where it is a file.
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => "",
        }
    }

    /// How to begin a connection, with the credentials of this moment.
    ///
    /// # Errors
    /// A panic of the callback ends this attempt and not the task that connects: nobody would connect again.
    fn settings(&self) -> Result<RedisConnectionInfo> {
        let settings = self.info.redis_settings().clone();
        let Some(Source(provide)) = &self.credentials else { return Ok(settings) };
        // The text of the panic is left out, because it may contain the password.
        let Credentials { user, password } =
            catch_unwind(AssertUnwindSafe(|| provide())).map_err(|_| {
                Error::misuse(format!(
                    "the callback of `ClientBuilder::credentials` or `sentinel_credentials` panicked on a connection to {}: \
                     let it return the last credentials that it has",
                    self.node
                ))
            })?;
        let settings = settings.set_password(password);
        Ok(match user {
            Some(user) => settings.set_username(user),
            None => settings,
        })
    }

    /// A new connection for commands, and the future that drives it and ends when it drops. The caller has used a part of the
    /// time until then.
    pub(super) async fn open(
        &self,
        until: Moment,
        options: &Options,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        self.multiplexed(until, options, self.settings()?, AsyncConnectionConfig::new()).await
    }

    /// The same in RESP3: what the server says unasked goes to `sender`.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_pushed(
        &self,
        options: &Options,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        let settings = self.settings()?.set_protocol(ProtocolVersion::RESP3);
        let until = Moment::now() + options.connect_timeout;
        self.multiplexed(until, options, settings, AsyncConnectionConfig::new().set_push_sender(sender)).await
    }

    async fn multiplexed(
        &self,
        until: Moment,
        options: &Options,
        settings: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, ConnectionTask)> {
        // The response timeout is ours, so that a request can go on being waited for.
        let config = config.set_response_timeout(None).set_connection_timeout(None);
        let (connection, driver) = self
            .begun(until, options, |stream| MultiplexedConnection::new_with_config(&settings, stream, config))
            .await?;
        let driver: ConnectionTask = Box::pin(driver);
        Ok((connection, driver))
    }

    /// A new connection for subscriptions.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_subscriber(&self, options: &Options) -> Result<redis::aio::PubSub> {
        let (settings, until) = (self.settings()?, Moment::now() + options.connect_timeout);
        self.begun(until, options, |stream| redis::aio::PubSub::new(&settings, stream)).await
    }

    /// Runs `begin` on a stream to the server, in time. No caller has a timer of its own: the step that hangs is known here.
    async fn begun<T, F: Future<Output = RedisResult<T>>>(
        &self,
        until: Moment,
        options: &Options,
        begin: impl FnOnce(Box<dyn Stream>) -> F,
    ) -> Result<T> {
        let limit = options.connect_timeout;
        let failed = |error: RedisError| connect_error(&error, &self.node);
        let late = || Error::TimedOut { phase: Phase::Connect, node: self.node.clone(), waited: limit };
        let opening = time::timeout(until.remaining(), socket::open(self.info.addr(), options));
        let mut stream = opening.await.map_err(|_| late())?.map_err(|error| failed(error.into()))?;
        if let Some(connector) = &self.secure {
            let securing = time::timeout(until.remaining(), connector.secure(self.host(), stream));
            stream = securing.await.map_err(|_| self.no_greeting(limit))?.map_err(|e| failed(e.into()))?;
        }
        let begun = time::timeout(until.remaining(), begin(stream));
        begun.await.map_err(|_| late())?.map_err(failed)
    }

    /// A server without TLS waits for a line of its own protocol to end.
    fn no_greeting(&self, limit: Duration) -> Error {
        let reason = format!(
            "no answer to TLS's greeting within {limit:?}: does the server speak TLS at this port? Else use redis://"
        );
        Error::Unavailable { phase: Phase::Connect, node: self.node.clone(), reason }
    }
}

/// Understands what the redis crate does of `redis://`, `rediss://` and unix-socket URLs; what it would pass over is refused,
/// because locks of another database are other locks.
pub(super) fn read(url: &str) -> Result<ConnectionInfo> {
    // Only the scheme goes into an error: the rest may hold a password.
    let Some((scheme, _)) = url.split_once("://") else {
        return Err(Error::misuse("not a URL: use redis://[user:password@]host[:port][/database]"));
    };
    let (known, instead) = match scheme {
        "redis" | "valkey" | "rediss" | "valkeys" => (
            &["protocol"][..],
            "the database stands behind the host as in redis://host:6379/3, user and password before it",
        ),
        "unix" | "redis+unix" | "valkey+unix" => (
            &["protocol", "db", "user", "pass"][..],
            "a unix socket's database, user and password are ?db=3&user=u&pass=p",
        ),
        other => {
            return Err(Error::misuse(format!(
                "unknown URL scheme `{}`: use redis:// or rediss://, redis+unix://, or, with TLS as rediss-.., \
                 redis-sentinel://, redis-cluster:// or redis-replicated://",
                other.escape_debug()
            )));
        }
    };
    if let Some(parsed) = redis::parse_redis_url(url) {
        let before_path = !parsed.username().is_empty() || parsed.password().is_some();
        if before_path && known.contains(&"user")
            || parsed.query_pairs().any(|(name, _)| !known.contains(&&*name))
        {
            return Err(Error::misuse(format!(
                "bad URL: {instead}; nothing else may stand behind a `?`. {ENCODED}"
            )));
        }
        if parsed.fragment().is_some() {
            return Err(Error::misuse(format!(
                "bad URL: nothing may stand behind a `#` here: for a master by its name use redis-sentinel://, and in the place \
                 of `#insecure` `Tls::danger_accept_any_certificate`. {ENCODED}"
            )));
        }
    }
    understood(url)
}

const ENCODED: &str = "(In a user and a password @ : / # ? and % are written %40 %3A %2F %23 %3F and %25.)";

/// The same of whatever the redis crate takes.
pub(super) fn understood(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    server.into_connection_info().map_err(|error| {
        // Its text begins with words of the crate's own. What may follow is from the URL.
        let text = error.to_string();
        let why = text.split(" - ").next().unwrap_or_default();
        match cfg!(not(feature = "tls")) && why.contains("TLS") {
            true => Error::misuse("TLS needs this crate's feature `tls`, which is off"),
            false => Error::misuse(format!("bad URL: {why}. {ENCODED}")),
        }
    })
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

    /// It would be locks of database 0, which are others.
    #[test]
    fn what_the_redis_crate_passes_over_is_misuse_with_what_to_write() {
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
            ("redis://h/notanumber", "Invalid database number"),
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
            assert_eq!(read(fine).unwrap().redis_settings().db(), 3);
        }
        for url in ["rediss://h", "valkeys://h:7"] {
            let addr = read(url).map(|info| info.addr().clone());
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
