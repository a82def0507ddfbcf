//! A connection for subscriptions only. No command that changes a lock ever travels on it, because confirmations of
//! subscriptions and replies to commands could be taken for each other.

use super::{Meaning, Servers, meaning};
use crate::error::Result;
use crate::options::Options;
use crate::sync::time;
use redis::aio::{PubSubSink, PubSubStream};
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::StreamExt;

/// The side that subscribes. What it sends is confirmed in order.
#[derive(Clone)]
pub(crate) struct Subscriber {
    node: Arc<str>,
    sink: PubSubSink,
    timeout: Duration,
}

/// The side that listens. Dropping it closes the connection.
pub(crate) struct Messages(PubSubStream);

/// Why a subscription was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsubscribed {
    /// The server refuses: the user may not.
    Refused,
    /// The connection broke, or did not answer in time, or the server can't for now: all is made anew.
    Broken,
}

impl Subscriber {
    pub(crate) async fn open(servers: &Servers, options: &Options) -> Result<(Self, Messages)> {
        let address = servers.finder().find(options).await?;
        Ok(Self::split(address.open_subscriber(options).await?, address.node(), options.response_timeout))
    }

    pub(super) fn split(connection: redis::aio::PubSub, node: &str, timeout: Duration) -> (Self, Messages) {
        let (sink, stream) = connection.split();
        (Self { node: node.into(), sink, timeout }, Messages(stream))
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// Ends once the server has confirmed every channel.
    pub(crate) async fn subscribe(&mut self, channels: &[Arc<str>]) -> std::result::Result<(), Unsubscribed> {
        let names: Vec<&str> = channels.iter().map(|c| &**c).collect();
        within(self.timeout, self.sink.subscribe(names)).await
    }

    pub(crate) async fn unsubscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), Unsubscribed> {
        let names: Vec<&str> = channels.iter().map(|c| &**c).collect();
        within(self.timeout, self.sink.unsubscribe(names)).await
    }

    /// A half-open link is found by nothing else.
    pub(crate) async fn ping(&mut self) -> std::result::Result<(), Unsubscribed> {
        within(self.timeout, self.sink.ping::<redis::Value>()).await.map(drop)
    }
}

impl Messages {
    /// The channel of the next message; `None` once the connection has dropped.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.next().await.map(|message| message.get_channel_name().to_owned())
    }
}

async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = redis::RedisResult<T>>,
) -> std::result::Result<T, Unsubscribed> {
    match time::timeout(limit, asked).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if matches!(meaning(&error), Meaning::Refused { .. }) => Err(Unsubscribed::Refused),
        _ => Err(Unsubscribed::Broken),
    }
}
