//! A cluster of real servers.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use super::Server;

/// The number of slots of a cluster.
const SLOTS: u16 = 16384;

/// The settings for sharded messages that this server supports.
pub fn modes() -> &'static [bool] {
    if super::server::major() >= 7 { &[true, false] } else { &[false] }
}

/// Masters that share the slots evenly, each with replicas. The servers end when this is dropped.
pub struct Cluster {
    pub masters: Vec<Server>,
    /// Those of the first master come first.
    pub replicas: Vec<Server>,
}

impl Cluster {
    /// Returns once each node reports that the cluster is ready.
    pub fn start(masters: usize, replicas_each: usize) -> Self {
        Self::of(masters, replicas_each, Server::with_args)
    }

    /// `start` starts a node with these arguments.
    pub fn of(masters: usize, replicas_each: usize, start: impl Fn(&[&str]) -> Server) -> Self {
        let node = || start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
        let cluster = Self {
            masters: (0..masters).map(|_| node()).collect(),
            replicas: (0..masters * replicas_each).map(|_| node()).collect(),
        };
        let share = SLOTS.div_ceil(u16::try_from(masters).expect("few masters"));
        for (at, master) in (0..).zip(&cluster.masters) {
            let (first, last) = (at * share, ((at + 1) * share).min(SLOTS) - 1);
            add_slots(master, first..=last);
            // No two masters may begin with the same epoch.
            say(master, &["SET-CONFIG-EPOCH", &(at + 1).to_string()]);
        }
        let first = &cluster.masters[0];
        for other in cluster.nodes().skip(1) {
            say(first, &["MEET", "127.0.0.1", &other.port().to_string()]);
        }
        cluster.wait(|info| info.contains(&format!("cluster_known_nodes:{}", masters * (1 + replicas_each))));
        for (at, replica) in cluster.replicas.iter().enumerate() {
            let master = &cluster.masters[at / replicas_each];
            say(replica, &["REPLICATE", &id(master)]);
        }
        cluster.wait(|info| info.contains("cluster_state:ok"));
        // A replica that reports its link as up is not yet one that its master counts.
        for master in cluster.masters.iter().filter(|_| replicas_each > 0) {
            until(|| {
                let (_, _, replicas): (String, u64, Vec<Vec<String>>) =
                    redis::cmd("ROLE").query(&mut master.cli()).expect("ROLE");
                replicas.len() == replicas_each
            });
        }
        cluster
    }

    pub fn url(&self) -> String {
        format!("redis-cluster://{}", self.hosts())
    }

    /// The address for a Java client.
    pub fn for_java(&self) -> String {
        format!("cluster/{}", self.hosts())
    }

    fn hosts(&self) -> String {
        self.masters.iter().map(Server::address).collect::<Vec<_>>().join(",")
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// The index of the master that has the slot of `key` at first.
    pub fn master_of(&self, key: &str) -> usize {
        usize::from(slot(key) / SLOTS.div_ceil(u16::try_from(self.masters.len()).expect("few masters")))
    }

    /// The master that has the slot of `key` at first.
    pub fn at(&self, key: &str) -> &Server {
        &self.masters[self.master_of(key)]
    }

    /// Takes the slot of `key` from its master at first. No master serves it then.
    pub fn unassign(&self, key: &str) {
        let (slot, master) = (slot(key).to_string(), self.at(key));
        // Messages among the nodes name the slots of their sender. An earlier message of the master would assign the slot again
        // at another node. By the reply to a later command, a node has sent its own earlier messages, and read those that had
        // arrived.
        say(master, &["DELSLOTS", &slot]);
        info(master);
        for other in self.masters.iter().filter(|other| other.port() != master.port()) {
            info(other);
            say(other, &["DELSLOTS", &slot]);
        }
    }

    /// Begins to move the slot of `key` to another master, and moves `keys`. From now on, the old master redirects
    /// requests for keys that it does not have.
    pub fn migrate(&self, key: &str, keys: &[&str]) -> Migration<'_> {
        let from = self.master_of(key);
        let migration = self.migrate_between(key, from, (from + 1) % self.masters.len());
        migration.carry(keys);
        migration
    }

    /// The same between two masters, of which the first has the slot.
    pub fn migrate_between(&self, key: &str, from: usize, to: usize) -> Migration<'_> {
        let (from, to) = (&self.masters[from], &self.masters[to]);
        let migration = Migration { cluster: self, slot: slot(key).to_string(), from, to };
        say(to, &["SETSLOT", &migration.slot, "IMPORTING", &id(from)]);
        say(from, &["SETSLOT", &migration.slot, "MIGRATING", &id(to)]);
        migration
    }

    /// Waits until all nodes agree that the replica of that master has taken its place.
    pub async fn wait_for_promotion(&self, master: usize) {
        let replica = &self.replicas[master];
        let address = replica.port().to_string();
        super::eventually(|| {
            let others =
                self.masters.iter().enumerate().filter(|(at, _)| *at != master).map(|(_, other)| other);
            others.chain([replica]).all(|node| {
                let slots: Vec<(u16, u16, (String, u16))> = slots(node);
                slots.iter().any(|(_, _, (_, port))| port.to_string() == address)
                    && info(node).contains("cluster_state:ok")
            })
        })
        .await;
    }

    /// Waits until all nodes have the same epoch.
    pub async fn wait_for_agreement(&self) {
        super::eventually(|| {
            let epoch = |node: &Server| -> Option<String> {
                let info = info(node);
                info.lines().find(|line| line.starts_with("cluster_current_epoch:")).map(str::to_owned)
            };
            let mut epochs = self.nodes().map(epoch);
            let first = epochs.next();
            epochs.all(|epoch| Some(epoch) == first)
        })
        .await;
    }

    /// The number of subscriptions to a channel at all nodes together, sharded or not.
    pub fn subscriptions(&self, channel: &str) -> u64 {
        let count = |node: &Server, how: &str| {
            let answer: Result<(String, u64), _> =
                redis::cmd("PUBSUB").arg(how).arg(channel).query(&mut node.cli());
            answer.map_or(0, |(_, count)| count)
        };
        self.nodes()
            .filter(|node| node.lives())
            .map(|node| count(node, "NUMSUB") + count(node, "SHARDNUMSUB"))
            .sum()
    }

    /// The channels of that pattern that have subscribers, sharded or not, once for each node.
    pub fn channels(&self, pattern: &str) -> Vec<String> {
        let at = |node: &Server| -> Vec<String> {
            let mut both = redis::pipe();
            both.cmd("PUBSUB").arg("CHANNELS").arg(pattern).cmd("PUBSUB").arg("SHARDCHANNELS").arg(pattern);
            let (all, sharded): (Vec<String>, Vec<String>) = both.query(&mut node.cli()).expect("CHANNELS");
            [all, sharded].concat()
        };
        self.nodes().filter(|node| node.lives()).flat_map(at).collect()
    }

    /// All keys of all masters.
    pub fn keys(&self) -> Vec<String> {
        let keys = |node: &Server| -> Vec<String> {
            redis::cmd("KEYS").arg("*").query(&mut node.cli()).expect("KEYS")
        };
        self.masters.iter().flat_map(keys).collect()
    }

    fn wait(&self, satisfied: impl Fn(&str) -> bool) {
        for node in self.nodes() {
            until(|| satisfied(&info(node)));
        }
    }
}

/// A slot that is being moved.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    pub slot: String,
    pub from: &'a Server,
    pub to: &'a Server,
}

impl Migration<'_> {
    /// Moves those keys.
    pub fn carry(&self, keys: &[&str]) {
        if keys.is_empty() {
            return;
        }
        redis::cmd("MIGRATE")
            .arg(&["127.0.0.1", &self.to.port().to_string(), "", "0", "5000", "KEYS"])
            .arg(keys)
            .exec(&mut self.from.cli())
            .expect("MIGRATE");
    }

    /// Moves the other keys, and returns once all masters know the slot's new place.
    pub fn finish(self) {
        let left: Vec<String> = redis::cmd("CLUSTER")
            .arg(&["GETKEYSINSLOT", &self.slot, "1000"])
            .query(&mut self.from.cli())
            .expect("GETKEYSINSLOT");
        self.carry(&left.iter().map(String::as_str).collect::<Vec<_>>());
        for node in [self.to, self.from].into_iter().chain(&self.cluster.masters) {
            say(node, &["SETSLOT", &self.slot, "NODE", &id(self.to)]);
        }
    }
}

/// Adds slots one by one, because Redis has ranges only since 7.0.
pub fn add_slots(server: &Server, slots: RangeInclusive<u16>) {
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut server.cli()).expect("ADDSLOTS");
}

pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    let counted = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let bit = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
    let byte = |sum: u16, byte: u8| (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| bit(sum));
    counted.bytes().fold(0, byte) % SLOTS
}

pub fn id(server: &Server) -> String {
    redis::cmd("CLUSTER").arg("MYID").query(&mut server.cli()).expect("MYID")
}

fn info(server: &Server) -> String {
    redis::cmd("CLUSTER").arg("INFO").query(&mut server.cli()).expect("INFO")
}

/// The ranges of slots, each with the address of its master.
fn slots(server: &Server) -> Vec<(u16, u16, (String, u16))> {
    let answer: Vec<Vec<redis::Value>> =
        redis::cmd("CLUSTER").arg("SLOTS").query(&mut server.cli()).expect("SLOTS");
    let read = |range: Vec<redis::Value>| {
        let redis::Value::Array(master) = &range[2] else { panic!("{range:?}") };
        let word = |value: &redis::Value| redis::from_redis_value_ref::<String>(value).expect("a word");
        let number = |value: &redis::Value| redis::from_redis_value_ref::<u16>(value).expect("a number");
        (number(&range[0]), number(&range[1]), (word(&master[0]), number(&master[1])))
    };
    answer.into_iter().map(read).collect()
}

pub fn say(server: &Server, words: &[&str]) {
    redis::cmd("CLUSTER")
        .arg(words)
        .exec(&mut server.cli())
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
}

fn until(condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < limit, "the cluster does not become ready");
        thread::sleep(Duration::from_millis(20));
    }
}
