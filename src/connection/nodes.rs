//! Chooses the node that a request goes to: the only one, or the master of the key's slot.

use super::Topology;
use super::cluster::{Cluster, TopologyManager};
use super::endpoints::{Senders, SubscriptionEndpoints};
use super::node::{Live, Node, Outage, Shared};
use super::redirects::Redirect;
use crate::config::options::Options;
use crate::error::{Error, Result};
use crate::protocol::keys;
use crate::runtime::sync::task::{self, JoinHandle};
use std::sync::Arc;
use tokio::sync::watch;

/// How many other slots of a master are tried until the master accepts a write to one of them.
const OTHER_SLOTS: usize = 8;

/// The nodes of a client, each kept connected. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Nodes {
    One(Node),
    Cluster(Cluster),
}

/// The destination of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// The master of this slot. Without a cluster, the slot does not count.
    Slot(u16),
    /// The node that a redirect named.
    Redirected(&'a Redirect),
}

/// A missing connection: to which node, and why.
pub(super) struct Absent {
    pub node: Arc<str>,
    pub outage: Outage,
}

impl Nodes {
    /// Connects, and starts the task that keeps the nodes connected on the current runtime.
    pub(super) async fn connect(
        servers: &Topology,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, JoinHandle<()>)> {
        match servers {
            Topology::One(discovery) => {
                let options = Arc::new(Options { sharded: None, ..options.clone() });
                let (node, supervisor) = Node::connect(discovery.clone(), &options, shared).await?;
                Ok((Self::One(node), supervisor))
            }
            Topology::Cluster(known) => {
                let (manager, cluster) = TopologyManager::connect(known.clone(), options, shared).await?;
                Ok((Self::Cluster(cluster), task::spawn(manager.run())))
            }
        }
    }

    /// The same nodes, connected in the background by the task, which is started on the current runtime.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a cluster whose mode of messages is not configured, because only the cluster itself reports it.
    pub(super) fn start(
        servers: &Topology,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, JoinHandle<()>)> {
        match servers {
            Topology::One(discovery) => {
                let options = Arc::new(Options { sharded: None, ..options.clone() });
                let (node, supervisor) = Node::start(discovery.clone(), &options, shared, false);
                Ok((Self::One(node), supervisor))
            }
            Topology::Cluster(known) => {
                let sharded = options.sharded.ok_or_else(|| {
                    Error::misuse(
                        "only a connected cluster reports whether its messages are sharded: set `sharded_messages`, or use `connect_with`",
                    )
                })?;
                let (manager, cluster) = TopologyManager::start(known.clone(), options, shared, sharded);
                Ok((Self::Cluster(cluster), task::spawn(manager.run())))
            }
        }
    }

    /// The masters that are known, each connected or not.
    pub(super) fn masters(&self) -> Vec<Node> {
        match self {
            Self::One(node) => vec![node.clone()],
            Self::Cluster(cluster) => cluster.layout.borrow().masters().cloned().collect(),
        }
    }

    /// The connection to `target`, unless it is the one with the id `dead`.
    pub(super) fn usable(&self, target: Target<'_>, dead: u64) -> std::result::Result<Arc<Live>, Absent> {
        fn at(node: &Node, dead: u64) -> std::result::Result<Arc<Live>, Absent> {
            node.usable(dead).map_err(|outage| Absent { node: node.name.clone(), outage })
        }
        match (self, target) {
            (Self::One(node), _) => at(node, dead),
            (Self::Cluster(cluster), target) => {
                let layout = cluster.layout.borrow();
                let (node, missing) = match target {
                    Target::Slot(slot) => {
                        (layout.master_of(slot), format!("no master has slot {slot}, the slot of the key"))
                    }
                    Target::Redirected(Redirect { host, port, .. }) => {
                        (layout.at(host, *port), format!("{host}:{port} is not connected yet"))
                    }
                };
                match (node, target) {
                    (Some(node), Target::Slot(slot)) => at(node, dead).map_err(|absent| {
                        let explain =
                            |reason: &str| format!("{reason} (it has slot {slot}, the slot of the key)");
                        Absent { outage: absent.outage.explained(explain), ..absent }
                    }),
                    (Some(node), _) => at(node, dead),
                    (None, _) => Err(Absent { node: "the cluster".into(), outage: missing.into() }),
                }
            }
        }
    }

    /// The connection whose server is in the data epoch `data_epoch`.
    pub(super) fn in_epoch(&self, data_epoch: u64) -> Option<Arc<Live>> {
        let alive = |node: &Node| node.usable(0).ok().filter(|live| live.data_epoch == data_epoch);
        match self {
            Self::One(node) => alive(node),
            Self::Cluster(cluster) => cluster.layout.borrow().masters().find_map(alive),
        }
    }

    /// Slots with the same master as `key`, by the current layout, without its own slot. They are far apart, because slots that
    /// migrate at the same time are mostly neighbours.
    pub(super) fn other_slots(&self, live: &Live, key: &str) -> Vec<u16> {
        let Self::Cluster(cluster) = self else { return Vec::new() };
        let (layout, own) = (cluster.layout.borrow(), keys::slot(key));
        let its = |slot: &u16| layout.master_of(*slot).is_some_and(|node| node.name == live.node);
        let others: Vec<_> = (0..keys::SLOTS).filter(|slot| *slot != own).filter(its).collect();
        others.iter().step_by(others.len().div_ceil(OTHER_SLOTS).max(1)).copied().collect()
    }

    /// Reports that the server behind the connection with the id `id` may no longer be the master.
    pub(super) fn doubt(&self, id: u64) {
        match self {
            Self::One(node) => node.doubt(id),
            Self::Cluster(cluster) => cluster.redirects.doubt(),
        }
    }

    /// Reports a redirect. Returns false if the client does not know the server as a cluster node.
    pub(super) fn redirect(&self, reported: Redirect) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => {
                cluster.redirects.report(reported);
                true
            }
        }
    }

    /// The endpoints to subscribe at, for messages from the nodes of `servers`.
    pub(super) fn endpoints(
        &self,
        servers: &Topology,
        changes: watch::Receiver<()>,
    ) -> SubscriptionEndpoints {
        match self {
            Self::One(_) => SubscriptionEndpoints::of(servers.clone()),
            Self::Cluster(cluster) if cluster.sharded => SubscriptionEndpoints::Masters(cluster.clone()),
            Self::Cluster(cluster) => SubscriptionEndpoints::Anywhere(
                servers.clone(),
                Some(Senders { cluster: cluster.clone(), changes }),
            ),
        }
    }

    /// Whether the node that sends a message knows every subscriber.
    pub(super) fn counts_every_subscriber(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.sharded,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}
