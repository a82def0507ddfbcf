//! Where the server is and how to get in.

use super::secure::Connector;
use super::{connect_error, socket};
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

/// A server, with its credentials. Debug and Display show neither user nor password.
#[derive(Clone)]
pub(super) struct Address {
    info: ConnectionInfo,
    /// How the connection is made a secure one, if it is to be.
    secure: Option<Arc<Connector>>,
    node: String,
}

impl Address {
    /// Understands what the redis crate does of `redis://`, `rediss://` and unix-socket URLs.
    pub(super) fn parse(url: &str, tls: Option<&Tls>) -> Result<Self> {
        // Only the scheme goes into an error: the rest may hold a password.
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(Error::misuse("not a URL: use redis://[user:password@]host[:port][/database]"));
        };
        // The crate is not told of TLS, as the stream that it gets is a secure one already.
        let (secure, url) = match scheme {
            "redis" | "valkey" | "unix" | "redis+unix" | "valkey+unix" if tls.is_none() => {
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
                let connector = Connector::new(tls.unwrap_or(&Tls::default()))?;
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
        // RESP2 serves every Redis, and the supervisor sees a drop without RESP3's help.
        let redis =
            info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let node = info.addr().to_string();
        Ok(Self { info: info.set_redis_settings(redis), secure, node })
    }

    /// The server's address as text.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Another server that is got into in the same way.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        let info = self.info.clone().set_addr(ConnectionAddr::Tcp(host, port));
        Self { node: info.addr().to_string(), secure: self.secure.clone(), info }
    }

    /// As it is looked for; empty where it is a file.
    pub(super) fn host(&self) -> &str {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => host,
            _ => "",
        }
    }

    /// A new connection for commands, and the future that drives it and ends when it drops.
    pub(super) async fn open(
        &self,
        options: &Options,
    ) -> Result<(MultiplexedConnection, impl Future<Output = ()> + 'static)> {
        self.multiplexed(options, self.info.redis_settings(), AsyncConnectionConfig::new()).await
    }

    /// The same in RESP3: what the server says unasked goes to `sender`.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_pushed(
        &self,
        options: &Options,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<(MultiplexedConnection, Pin<Box<dyn Future<Output = ()> + Send>>)> {
        let settings = self.info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        let (connection, driver) = self.multiplexed(options, &settings, config).await?;
        Ok((connection, Box::pin(driver)))
    }

    async fn multiplexed(
        &self,
        options: &Options,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, impl Future<Output = ()> + 'static)> {
        self.within(options.connect_timeout, async {
            let stream = socket::open(self.info.addr(), self.secure.as_deref(), options).await?;
            // The response timeout is ours, so that a request can go on being waited for.
            let config = config.set_response_timeout(None).set_connection_timeout(None);
            MultiplexedConnection::new_with_config(settings, stream, config).await
        })
        .await
    }

    /// A new connection for subscriptions.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn open_subscriber(&self, options: &Options) -> Result<redis::aio::PubSub> {
        self.within(options.connect_timeout, async {
            let stream = socket::open(self.info.addr(), self.secure.as_deref(), options).await?;
            redis::aio::PubSub::new(self.info.redis_settings(), stream).await
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
            match Address::parse(bad, None) {
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
            let address = Address::parse(good, None).unwrap();
            assert!(!format!("{address:?} {}", address.node()).contains("canary"));
        }
    }
}
