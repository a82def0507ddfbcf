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
    /// Understands what the redis crate does of `redis://`, `rediss://` and unix-socket URLs.
    pub(super) fn parse(url: &str, access: Access<'_>) -> Result<Self> {
        // Only the scheme goes into an error: the rest may hold a password.
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(Error::misuse("not a URL: use redis://[user:password@]host[:port][/database]"));
        };
        // The crate is not told of TLS, as the stream that it gets is a secure one already.
        let (secure, url) = match scheme {
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" if access.tls.is_none() => {
                (None, url.to_owned())
            }
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" => {
                return Err(Error::misuse(format!(
                    "settings for TLS, and a URL that is without it: use rediss:// in the place of {scheme}://"
                )));
            }
            "rediss" | "valkeys" if rest.contains('#') => {
                return Err(Error::misuse(
                    "nothing may follow a `#` here: what `#insecure` means elsewhere is `Tls::danger_accept_any_certificate`",
                ));
            }
            "rediss" | "valkeys" => {
                let connector = Connector::new(access.tls.unwrap_or(&Tls::default()))?;
                (Some(Arc::new(connector)), format!("redis://{rest}"))
            }
            other => {
                return Err(Error::misuse(format!(
                    "unknown URL scheme `{}`: use redis://, rediss:// or redis+unix://",
                    other.escape_debug()
                )));
            }
        };
        let info = url
            .into_connection_info()
            .map_err(|e| Error::misuse(format!("bad URL: {}", e.detail().unwrap_or(e.category()))))?;
        let credentials = access.credentials.cloned();
        let named = info.redis_settings();
        if credentials.is_some() && (named.username().is_some() || named.password().is_some()) {
            return Err(Error::misuse(
                "credentials in the URL, and in the settings: leave one of them away, that in the URL if they change",
            ));
        }
        // RESP2 serves every Redis from 3.2 on, and the supervisor sees a drop without RESP3's help.
        let redis =
            info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let node = info.addr().to_string();
        Ok(Self { info: info.set_redis_settings(redis), credentials, secure, node })
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
