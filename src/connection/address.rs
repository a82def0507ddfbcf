//! Where the server is and how to get in.

use super::secure::Connector;
use super::{connect_error, socket};
use crate::credentials::{Credentials, Source};
use crate::error::{Error, Phase, Result};
use crate::options::Options;
use crate::sync::time;
use crate::tls::Tls;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
    RedisConnectionInfo,
};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// What keeps a connection going, and ends when it drops.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

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

/// A server, with its credentials. Debug and Display show neither user nor password.
#[derive(Clone)]
pub(super) struct Address {
    info: ConnectionInfo,
    /// In the place of those in `info`.
    credentials: Option<Source>,
    /// How the connection is made a secure one, if it is to be.
    secure: Option<Arc<Connector>>,
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
        let (addr, secure) = match (info.addr().clone(), access.tls) {
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
                (ConnectionAddr::Tcp(host, port), Some(Arc::new(Connector::new(tls)?)))
            }
            (addr, None) => (addr, None),
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
        Ok(Self { info: info.set_addr(addr).set_redis_settings(redis), credentials, secure, node })
    }

    /// The server's address as text.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Another server that is got into in the same way.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        let info = self.info.clone().set_addr(ConnectionAddr::Tcp(host, port));
        Self { node: info.addr().to_string(), info, ..self.clone() }
    }

    /// The same server, got into with the credentials of `other`, if that has any.
    pub(super) fn known_as(&self, other: &Self) -> Option<Self> {
        let settings = other.info.redis_settings().clone().set_db(0);
        let any = other.credentials.is_some() || settings.password().is_some();
        let info = self.info.clone().set_redis_settings(settings);
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
    fn settings(&self) -> RedisConnectionInfo {
        let settings = self.info.redis_settings().clone();
        let Some(Source(provide)) = &self.credentials else { return settings };
        let Credentials { user, password } = provide();
        let settings = settings.set_password(password);
        match user {
            Some(user) => settings.set_username(user),
            None => settings,
        }
    }

    /// A new connection for commands, and the future that drives it and ends when it drops.
    pub(super) async fn open(&self, options: &Options) -> Result<(MultiplexedConnection, Driver)> {
        self.multiplexed(options, self.settings(), AsyncConnectionConfig::new()).await
    }

    /// The same in RESP3: what the server says unasked goes to `sender`.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_pushed(
        &self,
        options: &Options,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, Driver)> {
        let settings = self.settings().set_protocol(ProtocolVersion::RESP3);
        self.multiplexed(options, settings, AsyncConnectionConfig::new().set_push_sender(sender)).await
    }

    async fn multiplexed(
        &self,
        options: &Options,
        settings: RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Driver)> {
        self.within(options.connect_timeout, async {
            let stream = socket::open(self.info.addr(), self.secure.as_deref(), options).await?;
            // The response timeout is ours, so that a request can go on being waited for.
            let config = config.set_response_timeout(None).set_connection_timeout(None);
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&settings, stream, config).await?;
            let driver: Driver = Box::pin(driver);
            Ok((connection, driver))
        })
        .await
    }

    /// A new connection for subscriptions.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_subscriber(&self, options: &Options) -> Result<redis::aio::PubSub> {
        self.within(options.connect_timeout, async {
            let stream = socket::open(self.info.addr(), self.secure.as_deref(), options).await?;
            redis::aio::PubSub::new(&self.settings(), stream).await
        })
        .await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        connecting: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Result<T> {
        match time::timeout(limit, connecting).await {
            Ok(done) => done.map_err(|e| connect_error(&e, &self.node)),
            Err(_) => Err(Error::TimedOut { phase: Phase::Connect, node: self.node.clone(), waited: limit }),
        }
    }
}

/// Understands what the redis crate does of `redis://`, `rediss://` and unix-socket URLs.
pub(super) fn read(url: &str) -> Result<ConnectionInfo> {
    // Only the scheme goes into an error: the rest may hold a password.
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Error::misuse("not a URL: use redis://[user:password@]host[:port][/database]"));
    };
    let info = match scheme {
        "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" => understood(url)?,
        "rediss" | "valkeys" if rest.contains('#') => {
            return Err(Error::misuse(
                "nothing may follow a `#` here: what `#insecure` means elsewhere is `Tls::danger_accept_any_certificate`",
            ));
        }
        // Without TLS of its own the crate does not take these.
        "rediss" | "valkeys" => {
            let info = understood(format!("redis://{rest}"))?;
            match info.addr().clone() {
                ConnectionAddr::Tcp(host, port) => {
                    info.set_addr(ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None })
                }
                _ => info,
            }
        }
        other => {
            return Err(Error::misuse(format!(
                "unknown URL scheme `{}`: use redis://, rediss:// or redis+unix://",
                other.escape_debug()
            )));
        }
    };
    Ok(info)
}

/// The same of whatever the redis crate takes.
pub(super) fn understood(server: impl IntoConnectionInfo) -> Result<ConnectionInfo> {
    server
        .into_connection_info()
        .map_err(|e| Error::misuse(format!("bad URL: {}", e.detail().unwrap_or(e.category()))))
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
