//! The ways in which servers are set up, for tests that are run on each.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Connection, cmd, pipe};

use super::Server;
use super::cluster::Cluster;
use super::group::Group;
use super::keyspace::Look;

pub enum Topology {
    One(Server),
    Group(Arc<Group>, Way),
    Cluster(Cluster),
}

/// How the master of a group is told from its replica.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Sentinels,
    /// Each of them is asked.
    Replicated,
    /// By the word of whoever connects.
    MasterSlave,
}

impl Topology {
    pub fn url(&self) -> String {
        match self {
            Self::One(server) => server.url(),
            Self::Group(group, Way::Sentinels) => group.url(),
            Self::Group(group, Way::Replicated) => {
                format!("redis-replicated://{},{}", group.replica.address(), group.master.address())
            }
            Self::Group(group, Way::MasterSlave) => group.master.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The address for a Java client.
    pub fn for_java(&self) -> String {
        match self {
            Self::One(server) => server.address(),
            Self::Group(group, Way::Sentinels) => group.for_java(),
            Self::Group(group, Way::Replicated) => {
                format!("replicated/{},{}", group.replica.address(), group.master.address())
            }
            Self::Group(group, Way::MasterSlave) => {
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

    /// The master that has that key.
    pub fn at(&self, key: &str) -> &Server {
        match self {
            Self::One(server) => server,
            Self::Group(group, _) => &group.master,
            Self::Cluster(cluster) => cluster.at(key),
        }
    }

    /// A name that begins with `base` and is at the master of that number, which counts on and on. None that is told for the
    /// same base is the beginning of another.
    pub fn name_at(&self, base: &str, number: usize) -> String {
        let names = (0..).map(|n| format!("{base}/{number}/{n}."));
        let masters = self.masters();
        let wanted = masters[number % masters.len()].port();
        names.into_iter().find(|name| self.at(name).port() == wanted).expect("each master has names")
    }

    /// To hear with what is heard at any node.
    pub fn ears(&self) -> Ears {
        let replicas = match self {
            Self::One(_) => Vec::new(),
            Self::Group(group, _) => vec![&group.replica],
            Self::Cluster(cluster) => cluster.replicas.iter().collect(),
        };
        Ears(self.masters().into_iter().chain(replicas).map(Server::cli).collect())
    }

    /// What there is of what has `name` in its key, at whichever master, but for marks, which go by themselves.
    pub fn look(&self, look: &Look, name: &str) -> BTreeMap<String, String> {
        let all = self.masters().into_iter().flat_map(|master| look.of(name, master));
        all.filter(|(key, _)| !key.contains(":redisson-lock:")).collect()
    }

    /// All keys of all masters but for marks, and for what Redisson leaves behind for a while.
    pub fn keys(&self) -> Vec<String> {
        let of =
            |master: &Server| -> Vec<String> { cmd("KEYS").arg("*").query(&mut master.cli()).expect("KEYS") };
        let all = self.masters().into_iter().flat_map(of);
        all.filter(|key| !key.contains(":redisson-lock:") && !key.contains("redisson_unlock_latch")).collect()
    }
}

/// Connections to all nodes.
pub struct Ears(Vec<Connection>);

impl Ears {
    /// How many channels with that in their names are subscribed to, sharded or not, once for each node.
    pub fn heard(&mut self, name: &str) -> usize {
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
