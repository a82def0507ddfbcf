//! In the place of `src/connection/subscriber.rs`: subscriptions at the server of these tests.

use super::Servers;
use crate::error::Result;
use crate::options::Options;
use crate::shuttled::server::{self, Link};
use std::sync::Arc;
use tokio::sync::mpsc;

#[derive(Clone)]
pub(crate) struct Subscriber(Arc<Link>);

pub(crate) struct Messages(mpsc::UnboundedReceiver<String>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsubscribed {
    #[allow(dead_code)]
    Refused,
    Broken,
}

impl Subscriber {
    pub(crate) async fn open(_servers: &Servers, _options: &Options) -> Result<(Self, Messages)> {
        let (link, messages) = server::listen().await;
        Ok((Self(Arc::new(link)), Messages(messages)))
    }

    pub(crate) fn node(&self) -> &str {
        "server"
    }

    pub(crate) async fn subscribe(&mut self, channels: &[Arc<str>]) -> std::result::Result<(), Unsubscribed> {
        self.0.subscribe(channels).await.ok_or(Unsubscribed::Broken)
    }

    pub(crate) async fn unsubscribe(
        &mut self,
        channels: &[Arc<str>],
    ) -> std::result::Result<(), Unsubscribed> {
        self.0.unsubscribe(channels).await.ok_or(Unsubscribed::Broken)
    }

    pub(crate) async fn ping(&mut self) -> std::result::Result<(), Unsubscribed> {
        self.0.is_up().await.then_some(()).ok_or(Unsubscribed::Broken)
    }
}

impl Messages {
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
