//! The servers of a campaign: a single one, a master and a replica under sentinels, or a cluster of masters with one replica
//! each. A failover is the same in both topologies: the master is killed, its replica replaces it, and the old server comes
//! back as the new master's replica.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::history::{Failover, Records, Window, slot};
use super::now;
use super::processes::PASSWORD;
use crate::cluster;
use crate::server::{Server, wait_until};

/// How long a server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The number of masters of a cluster, and of sentinels.
const MASTERS: usize = 3;
const SENTINELS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Single,
    Sentinel,
    Cluster,
}

/// A master and its replica.
pub struct Shard {
    /// `None` only while the server restarts.
    master: Option<Server>,
    port: u16,
    replica: Option<Server>,
    /// The first and last slot. A single server has all slots.
    slots: (u16, u16),
}

pub struct Servers {
    topology: Topology,
    program: PathBuf,
    folder: PathBuf,
    pub shards: Vec<Shard>,
    sentinels: Vec<Server>,
}

impl Servers {
    /// Returns once all servers are ready and know each other.
    pub fn start(topology: Topology, program: &Path, folder: &Path) -> Result<Self, String> {
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let mut servers = Self { topology, program, folder, shards: Vec::new(), sentinels: Vec::new() };
        let count = if topology == Topology::Cluster { MASTERS } else { 1 };
        for at in 0..count {
            let master = servers.server(None)?;
            let port = master.port;
            let replica = match topology {
                Topology::Single => None,
                Topology::Sentinel | Topology::Cluster => Some(servers.server(Some(port))?),
            };
            servers.shards.push(Shard {
                master: Some(master),
                port,
                replica,
                slots: cluster::share(at, count),
            });
        }
        match topology {
            Topology::Single => {}
            Topology::Sentinel => servers.start_sentinels()?,
            Topology::Cluster => {
                let masters: Vec<_> = servers.shards.iter().map(Shard::master).collect();
                let replicas: Vec<_> = servers.shards.iter().map(Shard::replica).collect::<Result<_, _>>()?;
                cluster::join(&masters, &replicas)?;
            }
        }
        for shard in &servers.shards {
            servers.wait_until_whole(shard)?;
        }
        Ok(servers)
    }

    /// `master` is the port of the master, where neither sentinels nor the cluster assign one.
    fn server(&self, master: Option<u16>) -> Result<Server, String> {
        // The name of the server's file contains its port, so the port is chosen first.
        let probe = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        let port = probe.and_then(|probe| probe.local_addr()).map_err(|error| error.to_string())?.port();
        self.server_on(port, master)
    }

    fn server_on(&self, port: u16, master: Option<u16>) -> Result<Server, String> {
        // The server is soon BUSY in a long script, and answers clients while it loads.
        let mut text = format!(
            "--enable-debug-command local --lua-time-limit 100 --loading-process-events-interval-bytes 1024 --user chaos \
             on >{PASSWORD} ~* &* +@all"
        );
        match (self.topology, master) {
            (Topology::Single, _) => {}
            (Topology::Sentinel, Some(master)) => text += &format!(" --replicaof 127.0.0.1 {master}"),
            (Topology::Sentinel, None) => {}
            (Topology::Cluster, _) => {
                // The file outlives the server, so that the server knows its role when it restarts.
                let file = self.folder.join(format!("nodes-{port}.conf"));
                text += &format!(
                    " --cluster-enabled yes --cluster-node-timeout 1000 --cluster-replica-validity-factor 0 \
                     --cluster-config-file {}",
                    file.display()
                );
            }
        }
        if self.topology != Topology::Single {
            text += " --repl-diskless-sync-delay 0 --rdb-del-sync-files yes";
        }
        let arguments: Vec<&str> = text.split(' ').collect();
        Server::start_on(port, &self.program, &arguments)
    }

    fn start_sentinels(&mut self) -> Result<(), String> {
        for number in 0..SENTINELS {
            let file = self.folder.join(format!("sentinel-{number}.conf"));
            let text = format!(
                "sentinel monitor orders 127.0.0.1 {} 2\nsentinel down-after-milliseconds orders 1000\n\
                 sentinel failover-timeout orders 2000\n",
                self.shards[0].port
            );
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
            let sentinel = Server::sentinel(&self.program, &file)?;
            // A sentinel pings a new master only after this period. If the period were as long as the time after which a
            // silent master counts as down, the new master would count as down too.
            sentinel.run("SENTINEL DEBUG ping-period 250")?;
            self.sentinels.push(sentinel);
        }
        let others = (SENTINELS - 1).to_string();
        wait_until("the sentinels did not find each other in time", || {
            let knows = |sentinel: &Server| {
                let reply = sentinel.query("SENTINEL MASTER orders");
                value(&reply, "num-other-sentinels") == Some(&*others)
                    && value(&reply, "num-slaves") == Some("1")
            };
            self.sentinels.iter().all(knows)
        })
    }

    pub fn is_single(&self) -> bool {
        self.topology == Topology::Single
    }

    /// All running servers.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.shards.iter().flat_map(|shard| shard.master.iter().chain(&shard.replica))
    }

    pub fn all_masters_up(&self) -> bool {
        self.masters().count() == self.shards.len()
    }

    pub fn masters(&self) -> impl Iterator<Item = &Server> {
        // A master may be missing if the campaign broke off.
        self.shards.iter().filter_map(|shard| shard.master.as_ref())
    }

    /// The master that serves a key.
    pub fn master_of(&self, key: &str) -> &Server {
        let slot = slot(key);
        let shard = self.shards.iter().find(|shard| (shard.slots.0..=shard.slots.1).contains(&slot));
        shard.expect("the shards cover all slots").master()
    }

    /// For a client without a proxy.
    pub fn url(&self) -> String {
        match self.topology {
            Topology::Single => format!("redis://chaos:{PASSWORD}@{}", self.hosts()),
            Topology::Sentinel => format!("redis-sentinel://chaos:{PASSWORD}@{}/0#orders", self.hosts()),
            Topology::Cluster => format!("redis-cluster://chaos:{PASSWORD}@{}", self.hosts()),
        }
    }

    pub fn for_java(&self) -> String {
        match self.topology {
            Topology::Single => self.hosts(),
            Topology::Sentinel => format!("sentinel/orders/{}", self.hosts()),
            Topology::Cluster => format!("cluster/{}", self.hosts()),
        }
    }

    fn hosts(&self) -> String {
        let named: Vec<&Server> =
            if self.sentinels.is_empty() { self.nodes().collect() } else { self.sentinels.iter().collect() };
        named.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
    }

    /// Kills the single server. Its data is lost.
    pub fn kill(&mut self) {
        self.shards[0].master = None;
    }

    pub fn start_again(&mut self) -> Result<(), String> {
        let server = self.server_on(self.shards[0].port, None)?;
        self.shards[0].master = Some(server);
        Ok(())
    }

    /// Kills a master after its replica was cut off for `lag`. The failover ends when all nodes know the new master. Then
    /// the killed server restarts as its replica.
    pub fn fail_over(&mut self, at: usize, lag: Duration, window: &mut Window) -> Result<(), String> {
        if !self.is_known(self.shards[at].port) {
            return Err(
                "a failover happened although no master was killed; the machine may be too slow".to_owned()
            );
        }
        let shard = &mut self.shards[at];
        let replica = shard.replica.take().ok_or("the shard has no replica to promote")?;
        let master = shard.master.take().expect("a master is missing only while it restarts");
        let old = shard.port;
        if !lag.is_zero() {
            // A stopped replica reads nothing more, and loses what the kernel has buffered.
            replica.signal(Signal::STOP)?;
            master.run("CLIENT KILL TYPE replica")?;
            thread::sleep(lag);
        }
        let killed = now();
        master.signal(Signal::KILL)?;
        // The guardian notices the death later than this.
        while master.connect().is_ok() {}
        window.begun = now();
        drop(master);
        if !lag.is_zero() {
            replica.signal(Signal::CONT)?;
        }
        wait_until("the replica did not notice in time that its master is gone", || {
            replica.query("INFO replication").concat().contains("master_link_status:down")
        })?;
        let records = records(&replica)?;
        let read_at = now();
        if is_master(&replica) {
            return Err("the replica was promoted before its records could be read".to_owned());
        }
        wait_until("the replica was not promoted in time", || {
            let seen = now();
            let promoted = is_master(&replica);
            if !promoted {
                window.ending = seen;
            }
            promoted
        })?;
        shard.port = replica.port;
        shard.master = Some(replica);
        let slots = shard.slots;
        let shard = &self.shards[at];
        wait_until("not all nodes learned of the new master in time", || self.is_known(shard.port))?;
        window.to = now();
        window.failover = Some(Failover { killed, slots, records, read_at, lag: !lag.is_zero() });
        let replica = self.server_on(old, Some(shard.port))?;
        self.shards[at].replica = Some(replica);
        self.wait_until_whole(&self.shards[at])
    }

    /// Whether all sentinels, or all nodes of the cluster, know this master.
    fn is_known(&self, port: u16) -> bool {
        let sentinels = self.sentinels.iter().all(|sentinel| {
            sentinel.query("SENTINEL GET-MASTER-ADDR-BY-NAME orders").get(1) == Some(&port.to_string())
        });
        sentinels
            && (self.topology != Topology::Cluster
                || self.nodes().all(|node| {
                    let entry = node_entry(node, port);
                    // The node must know the master's slots, which follow its flags.
                    entry.iter().any(|flags| flags.contains("master") && !flags.contains("fail"))
                        && entry.len() > 1
                        && node.query("CLUSTER INFO").concat().contains("cluster_state:ok")
                }))
    }

    /// Waits until the replica has all of its master's data and could take part in another failover.
    fn wait_until_whole(&self, shard: &Shard) -> Result<(), String> {
        let Some(replica) = &shard.replica else { return Ok(()) };
        let number = |server: &Server, name: &str| -> Option<u64> {
            let info = server.query("INFO replication").concat();
            info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let mut written = None;
        wait_until("the replica did not get in sync in time", || {
            let up = replica.query("INFO replication").concat().contains("master_link_status:up");
            let master = shard.master();
            let seen = master.query("INFO replication").concat().contains("state=online");
            if up && seen {
                written = written.or_else(|| number(master, "master_repl_offset:"));
            }
            up && written.is_some_and(|written| {
                number(replica, "slave_repl_offset:").is_some_and(|read| read >= written)
            })
        })?;
        wait_until("not all nodes learned of the replica in time", || {
            let port = replica.port.to_string();
            let sentinels = self.sentinels.iter().all(|sentinel| {
                let reply = sentinel.query("SENTINEL REPLICAS orders");
                value(&reply, "port") == Some(&*port) && value(&reply, "flags") == Some("slave")
            });
            let of_cluster = |node: &Server| {
                let flags = node_entry(node, replica.port).into_iter().next().unwrap_or_default();
                flags.contains("slave") && !flags.contains("fail")
            };
            let cluster = self.topology == Topology::Cluster;
            sentinels && self.is_known(shard.port) && (!cluster || self.nodes().all(of_cluster))
        })
    }
}

impl Shard {
    pub fn master(&self) -> &Server {
        self.master.as_ref().expect("a master is missing only while it restarts")
    }

    fn replica(&self) -> Result<&Server, String> {
        self.replica.as_ref().ok_or_else(|| "the shard has no replica".to_owned())
    }
}

/// Reads the strings in every key.
fn records(server: &Server) -> Result<Records, String> {
    let mut connection = server.connect()?;
    // An error outside of a cluster, where it is not needed.
    let _ = connection.call(&["READONLY"], TIMEOUT);
    let mut records = Records::default();
    for key in connection.call(&["KEYS", "*"], TIMEOUT)? {
        let kind = connection.call(&["TYPE", &key], TIMEOUT)?.concat();
        let strings = match &*kind {
            "hash" => connection.call(&["HGETALL", &key], TIMEOUT)?,
            "list" => connection.call(&["LRANGE", &key, "0", "-1"], TIMEOUT)?,
            "zset" => connection.call(&["ZRANGE", &key, "0", "-1"], TIMEOUT)?,
            "string" => connection.call(&["GET", &key], TIMEOUT)?,
            // The key expired in between.
            _ => Vec::new(),
        };
        if !strings.is_empty() {
            records.0.insert(key, strings);
        }
    }
    Ok(records)
}

fn is_master(server: &Server) -> bool {
    server.query("ROLE").first().is_some_and(|role| role == "master")
}

/// The flags and the slots that `node` has for the server at this port.
fn node_entry(node: &Server, port: u16) -> Vec<String> {
    let nodes = node.query("CLUSTER NODES").concat();
    let at = format!(":{port}@");
    let line = nodes.lines().find(|line| line.contains(&at)).unwrap_or_default();
    let words = line.split(' ').enumerate().filter(|(number, _)| *number == 2 || *number > 7);
    words.map(|(_, word)| word.to_owned()).collect()
}

/// The value of a name in a flat list of pairs; `None` without a reply.
fn value<'a>(pairs: &'a [String], name: &str) -> Option<&'a str> {
    pairs.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1)).map(String::as_str)
}
