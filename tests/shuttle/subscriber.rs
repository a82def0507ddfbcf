//! Replaces `src/connection/subscriber.rs`: subscriptions at the server of these tests.

use super::SubscriptionEndpoint;
use crate::config::options::Options;
use crate::error::Result;
use crate::shuttled::{explore, server};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The client's end of a connection.
enum Link {
    Random(server::Link),
    Explored(explore::Link),
}

#[derive(Clone)]
pub(crate) struct Subscriber {
    node: Arc<str>,
    link: Arc<Link>,
}

pub(crate) struct Messages(mpsc::UnboundedReceiver<String>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeError {
    #[allow(dead_code)]
    Refused {
        code: String,
        message: String,
    },
    #[allow(dead_code)]
    Elsewhere,
    Broken,
}

impl Subscriber {
    pub(crate) async fn open(_place: &SubscriptionEndpoint, _options: &Options) -> Result<(Self, Messages)> {
        let (link, messages) = if explore::is_running() {
            let (link, messages) = explore::listen();
            (Link::Explored(link), messages)
        } else {
            let (link, messages) = server::listen().await;
            (Link::Random(link), messages)
        };
        Ok((Self { node: "server".into(), link: Arc::new(link) }, Messages(messages)))
    }

    pub(crate) fn node(&self) -> &Arc<str> {
        &self.node
    }

    pub(crate) fn has_moved(&self) -> bool {
        false
    }

    pub(crate) fn hears(&self, _channel: &str) -> bool {
        true
    }

    pub(crate) async fn subscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), SubscribeError> {
        let done = match &*self.link {
            Link::Random(link) => link.subscribe(channels).await,
            Link::Explored(link) => link.subscribe(channels).await,
        };
        done.ok_or(SubscribeError::Broken)
    }

    pub(crate) async fn unsubscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), SubscribeError> {
        let done = match &*self.link {
            Link::Random(link) => link.unsubscribe(channels).await,
            Link::Explored(link) => link.unsubscribe(channels).await,
        };
        done.ok_or(SubscribeError::Broken)
    }

    pub(crate) async fn ping(&mut self) -> std::result::Result<(), SubscribeError> {
        let up = match &*self.link {
            Link::Random(link) => link.is_up().await,
            Link::Explored(link) => link.is_up(),
        };
        up.then_some(()).ok_or(SubscribeError::Broken)
    }
}

impl Messages {
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
