//! A connection for subscriptions only. No command that changes a lock is sent on it, because the redis crate may take the
//! confirmation of a subscription for the reply to a command.

use super::endpoints::{At, Shard, SubscriptionEndpoint};
use super::sharded::{self, ShardSink, ShardStream};
use super::{ErrorClass, classify, into_server_error};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::runtime::sync::time;
use redis::aio::{PubSubSink, PubSubStream};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;

/// The sending half. The server confirms subscriptions in the order of the requests.
#[derive(Clone)]
pub(crate) struct Subscriber {
    node: Arc<str>,
    sink: Sink,
    timeout: Duration,
}

#[derive(Clone)]
enum Sink {
    Plain(PubSubSink),
    Sharded(Box<(ShardSink, Shard)>),
}

/// The receiving half. Dropping it closes the connection.
pub(crate) struct Messages(Stream);

enum Stream {
    Plain(PubSubStream),
    Sharded(ShardStream),
}

/// Why a subscription failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeError {
    /// The server refuses it, because the user lacks a permission.
    Refused { code: String, message: String },
    /// Another master owns the slot of the channel now.
    Elsewhere,
    /// The connection broke or timed out, or the server cannot subscribe for now. The connection has to be replaced.
    Broken,
}

impl Subscriber {
    pub(crate) async fn open(endpoint: &SubscriptionEndpoint, options: &Options) -> Result<(Self, Messages)> {
        let timeout = options.response_timeout;
        match &endpoint.at {
            At::Anywhere(servers) => {
                let mut problem = Error::unavailable(Phase::Connect, &*endpoint.name, "no server replied");
                let addresses = servers.listening(options).await?;
                for address in &addresses {
                    let (mut subscriber, messages) = match address.open_subscriber(options).await {
                        Ok(connection) => Self::split(connection, address.node(), timeout),
                        Err(error) => {
                            problem = error;
                            continue;
                        }
                    };
                    // A frozen or busy node accepts a connection, too. If there is only one address, the first SUBSCRIBE finds out.
                    if addresses.len() == 1 || subscriber.serves().await {
                        return Ok((subscriber, messages));
                    }
                    problem = Error::unavailable(
                        Phase::Connect,
                        address.node(),
                        "it does not serve subscriptions now",
                    );
                }
                Err(problem)
            }
            At::Master(shard) => {
                let address = shard.node.discovery.find(options).await?;
                let (sink, stream) = sharded::open(&address, options).await?;
                let (node, sink) = (endpoint.name.clone(), Sink::Sharded(Box::new((sink, shard.clone()))));
                Ok((Self { node, sink, timeout }, Messages(Stream::Sharded(stream))))
            }
        }
    }

    pub(super) fn split(connection: redis::aio::PubSub, node: &str, timeout: Duration) -> (Self, Messages) {
        let (sink, stream) = connection.split();
        (Self { node: node.into(), sink: Sink::Plain(sink), timeout }, Messages(Stream::Plain(stream)))
    }

    /// Whether the server replies, and is not busy.
    async fn serves(&mut self) -> bool {
        let Sink::Plain(sink) = &mut self.sink else { return true };
        let asked = async { into_server_error(sink.ping().await) };
        !matches!(within(self.timeout, asked, None).await, Err(SubscribeError::Broken))
    }

    pub(crate) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Whether this connection can subscribe to `channel`, by the current layout.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        match &self.sink {
            Sink::Plain(_) => true,
            Sink::Sharded(sharded) => sharded.1.has(channel),
        }
    }

    /// Whether the connection ended because a slot of its channels migrated.
    pub(crate) fn has_moved(&self) -> bool {
        match &self.sink {
            Sink::Plain(_) => false,
            Sink::Sharded(sharded) => sharded.0.has_moved(),
        }
    }

    /// Subscribes, and waits until the server has confirmed every channel.
    pub(crate) async fn subscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), SubscribeError> {
        let names: Vec<&str> = channels.iter().map(|c| &**c).collect();
        match &mut self.sink {
            Sink::Plain(sink) => within(self.timeout, sink.subscribe(names), None).await,
            Sink::Sharded(sharded) => {
                let (sink, shard) = &mut **sharded;
                within(self.timeout, sink.subscribe(channels), Some(shard)).await
            }
        }
    }

    pub(crate) async fn unsubscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), SubscribeError> {
        let names: Vec<&str> = channels.iter().map(|c| &**c).collect();
        match &mut self.sink {
            Sink::Plain(sink) => within(self.timeout, sink.unsubscribe(names), None).await,
            Sink::Sharded(sharded) => {
                let (sink, shard) = &mut **sharded;
                within(self.timeout, sink.unsubscribe(channels), Some(shard)).await
            }
        }
    }

    /// Checks the connection. Nothing else detects a half-open one.
    pub(crate) async fn ping(&mut self) -> std::result::Result<(), SubscribeError> {
        match &mut self.sink {
            Sink::Plain(sink) => within(self.timeout, sink.ping::<redis::Value>(), None).await.map(drop),
            Sink::Sharded(sharded) => {
                let (sink, shard) = &mut **sharded;
                within(self.timeout, sink.ping(), Some(shard)).await
            }
        }
    }
}

impl Messages {
    /// The channel of the next message; `None` once the connection has dropped.
    pub(crate) async fn next(&mut self) -> Option<String> {
        match &mut self.0 {
            Stream::Plain(stream) => stream.next().await.map(|message| message.get_channel_name().to_owned()),
            Stream::Sharded(stream) => stream.next().await,
        }
    }
}

/// Runs a request within `limit`, and reports a redirect of `shard` to the topology manager.
async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = redis::RedisResult<T>>,
    shard: Option<&Shard>,
) -> std::result::Result<T, SubscribeError> {
    let error = match time::timeout(limit, asked).await {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(_) => return Err(SubscribeError::Broken),
    };
    match (classify(&error), shard) {
        (ErrorClass::Refused { code, message }, _) => Err(SubscribeError::Refused { code, message }),
        (ErrorClass::Elsewhere(redirect), Some(shard)) => {
            let (host, _) = shard.node.name.rsplit_once(':').unwrap_or((&shard.node.name, ""));
            shard.cluster.redirects.report(redirect.seen_at(host));
            Err(SubscribeError::Elsewhere)
        }
        _ => Err(SubscribeError::Broken),
    }
}
