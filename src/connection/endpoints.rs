//! The endpoints to subscribe at. Without sharded messages, any one node delivers every message. With sharded messages, only
//! the master of the channel's slot does, so there is an endpoint for each master.
//!
//! In a cluster without sharded messages, the node that sends a message may not be the subscribed one. `Senders` watches the
//! sending nodes.

use super::Topology;
use super::cluster::Cluster;
use super::node::Node;
use crate::config::options::Options;
use crate::protocol::keys;
use std::sync::Arc;
use tokio::sync::watch;

/// The endpoints that together deliver every message.
pub(crate) enum SubscriptionEndpoints {
    #[allow(private_interfaces)]
    Anywhere(Topology, Option<Senders>),
    #[allow(private_interfaces)]
    Masters(Cluster),
}

/// The masters of a cluster, which send the messages.
pub(super) struct Senders {
    pub cluster: Cluster,
    /// A master went down, came up, or has other slots.
    pub changes: watch::Receiver<()>,
}

/// One endpoint to subscribe at.
pub(crate) struct SubscriptionEndpoint {
    pub name: Arc<str>,
    pub(super) at: At,
}

#[cfg_attr(all(test, shuttle), allow(dead_code))]
pub(super) enum At {
    Anywhere(Topology),
    Master(Shard),
}

/// One master, and the cluster's layout.
#[derive(Clone)]
#[cfg_attr(all(test, shuttle), allow(dead_code))]
pub(super) struct Shard {
    pub node: Node,
    pub cluster: Cluster,
}

impl SubscriptionEndpoints {
    /// Servers whose subscribed node sends the messages itself.
    pub(crate) fn of(servers: Topology) -> Self {
        Self::Anywhere(servers, None)
    }

    /// The endpoint, if there is only ever one.
    pub(crate) fn only(&self) -> Option<SubscriptionEndpoint> {
        match self {
            Self::Anywhere(servers, _) => {
                Some(SubscriptionEndpoint { name: servers.name().into(), at: At::Anywhere(servers.clone()) })
            }
            Self::Masters(_) => None,
        }
    }

    /// The current endpoints.
    pub(crate) fn now(&mut self) -> Vec<SubscriptionEndpoint> {
        let Self::Masters(cluster) = self else { return self.only().into_iter().collect() };
        let layout = cluster.layout.borrow_and_update().clone();
        let endpoint = |node: &Node| SubscriptionEndpoint {
            name: node.name.clone(),
            at: At::Master(Shard { node: node.clone(), cluster: cluster.clone() }),
        };
        layout.masters().map(endpoint).collect()
    }

    /// Waits until the endpoints, or the senders of their messages, may have changed.
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

    /// The id of the connection to the node that sends the messages of `channel`, if that may be another node than the
    /// subscribed one. If the id changes, messages may have been lost on the way.
    pub(crate) fn sender(&self, channel: &str) -> Option<u64> {
        let Self::Anywhere(_, Some(senders)) = self else { return None };
        let layout = senders.cluster.layout.borrow();
        Some(layout.master_of(keys::slot(channel))?.usable(0).ok()?.id)
    }
}

impl SubscriptionEndpoint {
    /// Waits until `node` no longer delivers all messages of this endpoint.
    pub(crate) async fn until_moved(&self, node: &str, options: &Options) {
        match &self.at {
            At::Anywhere(servers) => servers.until_moved(node, options).await,
            At::Master(_) => std::future::pending().await,
        }
    }
}

impl Shard {
    /// Whether this master owns the slot of `channel`, by the current layout.
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) fn has(&self, channel: &str) -> bool {
        let layout = self.cluster.layout.borrow();
        layout.master_of(keys::slot(channel)).is_some_and(|node| node.name == self.node.name)
    }
}
