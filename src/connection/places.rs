//! Where messages are heard: all of them at any node; or, in a cluster that sends each to the nodes of its slot alone, at the
//! master of that slot. And where they come from, which in a cluster may be another node.

use super::Servers;
use super::cluster::Cluster;
use super::node::Node;
use crate::config::options::Options;
use crate::protocol::keys;
use std::sync::Arc;
use tokio::sync::watch;

/// The places at which all messages together are heard.
pub(crate) enum SubscriptionEndpoints {
    #[allow(private_interfaces)]
    Anywhere(Servers, Option<Senders>),
    #[allow(private_interfaces)]
    Masters(Cluster),
}

/// The masters of a cluster, from one of which a message comes.
pub(super) struct Senders {
    pub cluster: Cluster,
    /// That one of them went down or came up, or has other slots.
    pub changes: watch::Receiver<()>,
}

/// One of them.
pub(crate) struct SubscriptionEndpoint {
    pub name: Arc<str>,
    pub(super) at: At,
}

#[cfg_attr(all(test, shuttle), allow(dead_code))]
pub(super) enum At {
    Anywhere(Servers),
    Master(Shard),
}

/// One master, and what the others have.
#[derive(Clone)]
#[cfg_attr(all(test, shuttle), allow(dead_code))]
pub(super) struct Shard {
    pub node: Node,
    pub cluster: Cluster,
}

impl SubscriptionEndpoints {
    /// Where all come from whom they are heard from.
    pub(crate) fn of(servers: Servers) -> Self {
        Self::Anywhere(servers, None)
    }

    /// The one that there is ever.
    pub(crate) fn only(&self) -> Option<SubscriptionEndpoint> {
        match self {
            Self::Anywhere(servers, _) => {
                Some(SubscriptionEndpoint { name: servers.name().into(), at: At::Anywhere(servers.clone()) })
            }
            Self::Masters(_) => None,
        }
    }

    pub(crate) fn now(&mut self) -> Vec<SubscriptionEndpoint> {
        let Self::Masters(cluster) = self else { return self.only().into_iter().collect() };
        let layout = cluster.layout.borrow_and_update().clone();
        let place = |node: &Node| SubscriptionEndpoint {
            name: node.name.clone(),
            at: At::Master(Shard { node: node.clone(), cluster: cluster.clone() }),
        };
        layout.masters().map(place).collect()
    }

    /// Ends when there may be others, or others of them have a channel, or send its messages.
    pub(crate) async fn changed(&mut self) {
        let changed = match self {
            Self::Masters(cluster) => cluster.layout.changed().await,
            Self::Anywhere(_, Some(senders)) => senders.changes.changed().await,
            Self::Anywhere(_, None) => std::future::pending().await,
        };
        if changed.is_err() {
            std::future::pending().await
        }
    }

    /// Which connection there is to who sends the messages of `channel`, if that is not who they are heard from: while it is
    /// another, or none, some may not have been sent at all.
    pub(crate) fn sender(&self, channel: &str) -> Option<u64> {
        let Self::Anywhere(_, Some(senders)) = self else { return None };
        let layout = senders.cluster.layout.borrow();
        Some(layout.master_of(keys::slot(channel))?.usable(0).ok()?.epoch)
    }
}

impl SubscriptionEndpoint {
    /// Ends when what `node` says is not all that is to be heard here any more.
    pub(crate) async fn moved(&self, node: &str, options: &Options) {
        match &self.at {
            At::Anywhere(servers) => servers.moved(node, options).await,
            At::Master(_) => std::future::pending().await,
        }
    }
}

impl Shard {
    /// Whether messages of that channel are heard here, as far as is known.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) fn has(&self, channel: &str) -> bool {
        let layout = self.cluster.layout.borrow();
        layout.master_of(keys::slot(channel)).is_some_and(|node| node.name == self.node.name)
    }
}
