//! Which node a request goes to.

use super::Servers;
use super::cluster::{Cluster, TopologyManager};
use super::node::{Live, Node, Shared};
use super::places::{Senders, SubscriptionEndpoints};
use super::redirects::Redirect;
use crate::config::options::Options;
use crate::error::Result;
use crate::protocol::keys;
use crate::runtime::sync::task::{self, JoinHandle};
use std::sync::Arc;
use tokio::sync::watch;

/// How many slots of a master are tried, one of which it has for certain.
const BESIDE: usize = 8;

/// The nodes of a client, each kept connected to. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Nodes {
    One(Node),
    Cluster(Cluster),
}

/// Where to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// To the master of that key.
    Key(&'a str),
    /// To where a master sent us.
    Asked(&'a Redirect),
}

/// Why there is no connection, and to whom.
pub(super) struct Absent {
    pub node: Arc<str>,
    pub reason: Arc<str>,
}

impl Nodes {
    /// Connects, and starts the task that stays connected on the current runtime.
    pub(super) async fn connect(
        servers: &Servers,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, JoinHandle<()>)> {
        match servers {
            Servers::One(finder) => {
                let options = Options { sharded: None, ..options.clone() };
                let (node, supervisor) = Node::connect(finder.clone(), &options, shared).await?;
                Ok((Self::One(node), supervisor))
            }
            Servers::Cluster(known) => {
                let (keeper, cluster) = TopologyManager::connect(known.clone(), options, shared).await?;
                Ok((Self::Cluster(cluster), task::spawn(keeper.run())))
            }
        }
    }

    /// The connection there, if it is another than the one of epoch `dead`.
    pub(super) fn usable(&self, target: Target<'_>, dead: u64) -> std::result::Result<Live, Absent> {
        fn at(node: &Node, dead: u64) -> std::result::Result<Live, Absent> {
            node.usable(dead).map_err(|reason| Absent { node: node.name.clone(), reason })
        }
        match (self, target) {
            (Self::One(node), _) => at(node, dead),
            (Self::Cluster(cluster), target) => {
                let layout = cluster.layout.borrow();
                let (node, nobody) = match target {
                    Target::Key(key) => {
                        let slot = keys::slot(key);
                        (layout.master_of(slot), format!("no master has slot {slot}, that of the key"))
                    }
                    Target::Asked(Redirect { host, port, .. }) => {
                        (layout.at(host, *port), format!("{host}:{port} is not connected to yet"))
                    }
                };
                match (node, target) {
                    (Some(node), Target::Key(key)) => at(node, dead).map_err(|absent| {
                        let reason =
                            format!("{} (it has slot {}, that of the key)", absent.reason, keys::slot(key));
                        Absent { reason: reason.into(), ..absent }
                    }),
                    (Some(node), _) => at(node, dead),
                    (None, _) => Err(Absent { node: "the cluster".into(), reason: nobody.into() }),
                }
            }
        }
    }

    /// The connection with that life of its server's data.
    pub(super) fn living(&self, life: u64) -> Option<Live> {
        let alive = |node: &Node| node.usable(0).ok().filter(|live| live.life == life);
        match self {
            Self::One(node) => alive(node),
            Self::Cluster(cluster) => cluster.layout.borrow().masters().find_map(alive),
        }
    }

    /// Other slots than that of `key` which that master has as far as is known, far from each other: those that are on their
    /// way at one time are neighbours most often.
    pub(super) fn slots_beside(&self, live: &Live, key: &str) -> Vec<u16> {
        let Self::Cluster(cluster) = self else { return Vec::new() };
        let (layout, own) = (cluster.layout.borrow(), keys::slot(key));
        let its = |slot: &u16| layout.master_of(*slot).is_some_and(|node| node.name == live.node);
        let beside: Vec<_> = (0..keys::SLOTS).filter(|slot| *slot != own).filter(its).collect();
        beside.iter().step_by(beside.len().div_ceil(BESIDE).max(1)).copied().collect()
    }

    /// The server at the other end of the connection of `epoch` may not be the master any more.
    pub(super) fn doubt(&self, epoch: u64) {
        match self {
            Self::One(node) => node.doubt(epoch),
            Self::Cluster(cluster) => cluster.redirects.doubt(),
        }
    }

    /// False where a redirect makes no sense.
    pub(super) fn redirect(&self, met: Redirect) -> bool {
        match self {
            Self::One(_) => false,
            Self::Cluster(cluster) => {
                cluster.redirects.meet(met);
                true
            }
        }
    }

    /// Where the messages are heard of the nodes that `servers` leads to.
    pub(super) fn places(&self, servers: &Servers, changes: watch::Receiver<()>) -> SubscriptionEndpoints {
        match self {
            Self::One(_) => SubscriptionEndpoints::of(servers.clone()),
            Self::Cluster(cluster) if cluster.sharded => SubscriptionEndpoints::Masters(cluster.clone()),
            Self::Cluster(cluster) => SubscriptionEndpoints::Anywhere(
                servers.clone(),
                Some(Senders { cluster: cluster.clone(), changes }),
            ),
        }
    }

    /// Whether the node that sends a message knows everyone who hears it.
    pub(super) fn know_listeners(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.sharded,
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}
