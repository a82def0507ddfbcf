//! The ways to set up servers, for tests that run on each of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Connection, cmd, pipe};

use super::Server;
use super::cluster::Cluster;
use super::group::Group;
use super::keyspace::KeyspaceView;

pub enum Topology {
    One(Server),
    Group(Arc<Group>, MasterDiscovery),
    Cluster(Cluster),
}

/// How a client finds the master of a group.
#[derive(Clone, Copy, Debug)]
pub enum MasterDiscovery {
    Sentinels,
    /// The client asks each server.
    Replicated,
    /// The caller names the master.
    MasterSlave,
}

impl Topology {
    pub fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Group(group, MasterDiscovery::Sentinels) => group.url(),
            Self::Group(group, MasterDiscovery::Replicated) => {
                format!("redis-replicated://{},{}", group.replica.address(), group.master.address())
            }
            Self::Group(group, MasterDiscovery::MasterSlave) => group.master.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The address for a Java client.
    pub fn for_java(&self) -> String {
        match self {
            Self::One(server) => server.address(),
            Self::Group(group, MasterDiscovery::Sentinels) => group.for_java(),
            Self::Group(group, MasterDiscovery::Replicated) => {
                format!("replicated/{},{}", group.replica.address(), group.master.address())
            }
            Self::Group(group, MasterDiscovery::MasterSlave) => {
                format!("masterslave/{},{}", group.master.address(), group.replica.address())
            }
            Self::Cluster(cluster) => cluster.for_java(),
        }
    }

    pub fn masters(&self) -> Vec<&Server> {
        match self {
            Self::One(server) => vec![server],
            Self::Group(group, _) => vec![&group.master],
            Self::Cluster(cluster) => cluster.masters.iter().collect(),
        }
    }

    /// The master that has the key.
    pub fn at(&self, key: &str) -> &Server {
        match self {
            Self::One(server) => server,
            Self::Group(group, _) => &group.master,
            Self::Cluster(cluster) => cluster.at(key),
        }
    }

    /// A name that begins with `base`, at the master with that number. Numbers beyond the last master start over. No
    /// name for one base is the beginning of another.
    pub fn name_at(&self, base: &str, number: usize) -> String {
        let names = (0..).map(|n| format!("{base}/{number}/{n}."));
        let masters = self.masters();
        let wanted = masters[number % masters.len()].port();
        names.into_iter().find(|name| self.at(name).port() == wanted).expect("each master has names")
    }

    /// Counts subscriptions at all nodes.
    pub fn subscriptions(&self) -> SubscriptionCounter {
        let replicas = match self {
            Self::One(_) => Vec::new(),
            Self::Group(group, _) => vec![&group.replica],
            Self::Cluster(cluster) => cluster.replicas.iter().collect(),
        };
        SubscriptionCounter(self.masters().into_iter().chain(replicas).map(Server::cli).collect())
    }

    /// The keys at all masters that have `name` in them, as text. Marks are left out, because they expire by themselves.
    pub fn look(&self, look: &KeyspaceView, name: &str) -> BTreeMap<String, String> {
        let all = self.masters().into_iter().flat_map(|master| look.of(name, master));
        all.filter(|(key, _)| !key.contains(":redisson-lock:")).collect()
    }

    /// All keys of all masters, except for marks and for keys that Redisson leaves behind for a while.
    pub fn keys(&self) -> Vec<String> {
        let of =
            |master: &Server| -> Vec<String> { cmd("KEYS").arg("*").query(&mut master.cli()).expect("KEYS") };
        let all = self.masters().into_iter().flat_map(of);
        all.filter(|key| !key.contains(":redisson-lock:") && !key.contains("redisson_unlock_latch")).collect()
    }
}

/// Connections to all nodes.
pub struct SubscriptionCounter(Vec<Connection>);

impl SubscriptionCounter {
    /// The number of channels with `name` in them that have subscribers, sharded or not, once for each node.
    pub fn count(&mut self, name: &str) -> usize {
        let pattern = format!("redisson*{name}*");
        let mut both = pipe();
        both.cmd("PUBSUB").arg("CHANNELS").arg(&pattern).cmd("PUBSUB").arg("SHARDCHANNELS").arg(&pattern);
        let at = |cli: &mut Connection| {
            let (all, sharded): (Vec<String>, Vec<String>) = both.query(cli).expect("CHANNELS");
            all.len() + sharded.len()
        };
        self.0.iter_mut().map(at).sum()
    }
}
