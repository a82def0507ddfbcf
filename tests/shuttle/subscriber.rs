//! Replaces `src/connection/subscriber.rs`: subscriptions at the server of these tests.

use super::SubscriptionEndpoint;
use crate::config::options::Options;
use crate::error::Result;
use crate::shuttled::server::{self, Link};
use std::sync::Arc;
use tokio::sync::mpsc;

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
        let (link, messages) = server::listen().await;
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
        self.link.subscribe(channels).await.ok_or(SubscribeError::Broken)
    }

    pub(crate) async fn unsubscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), SubscribeError> {
        self.link.unsubscribe(channels).await.ok_or(SubscribeError::Broken)
    }

    pub(crate) async fn ping(&mut self) -> std::result::Result<(), SubscribeError> {
        self.link.is_up().await.then_some(()).ok_or(SubscribeError::Broken)
    }
}

impl Messages {
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
