//! A connection for subscriptions only. No command that changes a lock ever travels on it, because confirmations of
//! subscriptions and replies to commands could be taken for each other.

use super::places::{At, Shard, SubscriptionEndpoint};
use super::sharded::{self, ShardSink, ShardStream};
use super::{Meaning, meaning};
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::runtime::sync::time;
use redis::aio::{PubSubSink, PubSubStream};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;

/// The side that subscribes. What it sends is confirmed in order.
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

/// The side that listens. Dropping it closes the connection.
pub(crate) struct Messages(Stream);

enum Stream {
    Plain(PubSubStream),
    Sharded(ShardStream),
}

/// Why a subscription was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unsubscribed {
    /// The server refuses: the user may not.
    Refused { code: String, message: String },
    /// Its messages are heard at another place by now.
    Elsewhere,
    /// The connection broke, or did not answer in time, or the server can't for now: all is made anew.
    Broken,
}

impl Subscriber {
    pub(crate) async fn open(place: &SubscriptionEndpoint, options: &Options) -> Result<(Self, Messages)> {
        let timeout = options.response_timeout;
        match &place.at {
            At::Anywhere(servers) => {
                let mut problem = Error::misuse("no server is named");
                for address in servers.listening(options).await? {
                    match address.open_subscriber(options).await {
                        Ok(connection) => return Ok(Self::split(connection, address.node(), timeout)),
                        Err(error) => problem = error,
                    }
                }
                Err(problem)
            }
            At::Master(shard) => {
                let address = shard.node.finder.find(options).await?;
                let (sink, stream) = sharded::open(&address, options).await?;
                let (node, sink) = (place.name.clone(), Sink::Sharded(Box::new((sink, shard.clone()))));
                Ok((Self { node, sink, timeout }, Messages(Stream::Sharded(stream))))
            }
        }
    }

    pub(super) fn split(connection: redis::aio::PubSub, node: &str, timeout: Duration) -> (Self, Messages) {
        let (sink, stream) = connection.split();
        (Self { node: node.into(), sink: Sink::Plain(sink), timeout }, Messages(Stream::Plain(stream)))
    }

    pub(crate) fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Whether messages of that channel are heard here, as far as is known.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        match &self.sink {
            Sink::Plain(_) => true,
            Sink::Sharded(sharded) => sharded.1.has(channel),
        }
    }

    /// Whether the connection ended because a channel is another server's now.
    pub(crate) fn has_moved(&self) -> bool {
        match &self.sink {
            Sink::Plain(_) => false,
            Sink::Sharded(sharded) => sharded.0.has_moved(),
        }
    }

    /// Ends once the server has confirmed every channel.
    pub(crate) async fn subscribe(&mut self, channels: &[Arc<str>]) -> std::result::Result<(), Unsubscribed> {
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
    ) -> std::result::Result<(), Unsubscribed> {
        let names: Vec<&str> = channels.iter().map(|c| &**c).collect();
        match &mut self.sink {
            Sink::Plain(sink) => within(self.timeout, sink.unsubscribe(names), None).await,
            Sink::Sharded(sharded) => {
                let (sink, shard) = &mut **sharded;
                within(self.timeout, sink.unsubscribe(channels), Some(shard)).await
            }
        }
    }

    /// A half-open link is found by nothing else.
    pub(crate) async fn ping(&mut self) -> std::result::Result<(), Unsubscribed> {
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

async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = redis::RedisResult<T>>,
    shard: Option<&Shard>,
) -> std::result::Result<T, Unsubscribed> {
    let error = match time::timeout(limit, asked).await {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(_) => return Err(Unsubscribed::Broken),
    };
    match (meaning(&error), shard) {
        (Meaning::Refused { code, message }, _) => Err(Unsubscribed::Refused { code, message }),
        (Meaning::Elsewhere(redirect), Some(shard)) => {
            let (host, _) = shard.node.name.rsplit_once(':').unwrap_or((&shard.node.name, ""));
            shard.cluster.redirects.meet(redirect.met_at(host));
            Err(Unsubscribed::Elsewhere)
        }
        _ => Err(Unsubscribed::Broken),
    }
}
