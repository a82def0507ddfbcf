//! The servers that the locks are at: one alone, a master and its replica under sentinels, or a cluster of masters with a
//! replica each. A failover is the same for all that have replicas: the master is killed, its replica takes its place, and
//! what was killed comes back as the replica of that.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::history::{Failover, Records, Window, slot};
use super::now;
use super::processes::PASSWORD;
use crate::cluster;
use crate::server::{Server, until};

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Masters of a cluster, and sentinels.
const MASTERS: usize = 3;
const SENTINELS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    Alone,
    Sentinel,
    Cluster,
}

/// A master, and who is to take its place.
pub struct Shard {
    /// `None` only while it is being started anew.
    master: Option<Server>,
    port: u16,
    replica: Option<Server>,
    /// The first slot and the last; all where there are none.
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
    /// Ends when all is well with them.
    pub fn start(topology: Topology, program: &Path, folder: &Path) -> Result<Self, String> {
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let mut servers = Self { topology, program, folder, shards: Vec::new(), sentinels: Vec::new() };
        let count = if topology == Topology::Cluster { MASTERS } else { 1 };
        for at in 0..count {
            let master = servers.server(None)?;
            let port = master.port;
            let replica = match topology {
                Topology::Alone => None,
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
            Topology::Alone => {}
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

    /// `master` is the port of the one that it is to be the replica of, where nobody else tells it.
    fn server(&self, master: Option<u16>) -> Result<Server, String> {
        // A port that is free, which the name of its file needs.
        let probe = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0));
        let port = probe.and_then(|probe| probe.local_addr()).map_err(|error| error.to_string())?.port();
        self.server_on(port, master)
    }

    fn server_on(&self, port: u16, master: Option<u16>) -> Result<Server, String> {
        // Busy soon, and slow to load when it is told to be.
        let mut text = format!(
            "--enable-debug-command local --lua-time-limit 100 --loading-process-events-interval-bytes 1024 --user torture \
             on >{PASSWORD} ~* &* +@all"
        );
        match (self.topology, master) {
            (Topology::Alone, _) => {}
            (Topology::Sentinel, Some(master)) => text += &format!(" --replicaof 127.0.0.1 {master}"),
            (Topology::Sentinel, None) => {}
            (Topology::Cluster, _) => {
                // It outlives the server, which is to know its place when it comes back.
                let file = self.folder.join(format!("nodes-{port}.conf"));
                text += &format!(
                    " --cluster-enabled yes --cluster-node-timeout 1000 --cluster-replica-validity-factor 0 \
                     --cluster-config-file {}",
                    file.display()
                );
            }
        }
        if self.topology != Topology::Alone {
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
            // It pings a new master for the first time after this: where that is no sooner than the time after which one
            // counts as down, the new one does, too.
            sentinel.tell("SENTINEL DEBUG ping-period 250")?;
            self.sentinels.push(sentinel);
        }
        let others = (SENTINELS - 1).to_string();
        until("the sentinels do not find each other", || {
            let knows = |sentinel: &Server| {
                let told = sentinel.told("SENTINEL MASTER orders");
                value(&told, "num-other-sentinels") == Some(&*others)
                    && value(&told, "num-slaves") == Some("1")
            };
            self.sentinels.iter().all(knows)
        })
    }

    pub fn are_alone(&self) -> bool {
        self.topology == Topology::Alone
    }

    /// All that live.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.shards.iter().flat_map(|shard| shard.master.iter().chain(&shard.replica))
    }

    pub fn are_whole(&self) -> bool {
        self.masters().count() == self.shards.len()
    }

    pub fn masters(&self) -> impl Iterator<Item = &Server> {
        // One may be gone where a campaign broke off.
        self.shards.iter().filter_map(|shard| shard.master.as_ref())
    }

    /// The master that has a key.
    pub fn of(&self, key: &str) -> &Server {
        let slot = slot(key);
        let shard = self.shards.iter().find(|shard| (shard.slots.0..=shard.slots.1).contains(&slot));
        shard.expect("they have all slots").master()
    }

    /// For a client that no proxy stands before.
    pub fn url(&self) -> String {
        match self.topology {
            Topology::Alone => format!("redis://torture:{PASSWORD}@{}", self.hosts()),
            Topology::Sentinel => format!("redis-sentinel://torture:{PASSWORD}@{}/0#orders", self.hosts()),
            Topology::Cluster => format!("redis-cluster://torture:{PASSWORD}@{}", self.hosts()),
        }
    }

    pub fn for_java(&self) -> String {
        match self.topology {
            Topology::Alone => self.hosts(),
            Topology::Sentinel => format!("sentinel/orders/{}", self.hosts()),
            Topology::Cluster => format!("cluster/{}", self.hosts()),
        }
    }

    fn hosts(&self) -> String {
        let named: Vec<&Server> =
            if self.sentinels.is_empty() { self.nodes().collect() } else { self.sentinels.iter().collect() };
        named.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
    }

    /// The one server is gone with its data for so long.
    pub fn kill(&mut self) {
        self.shards[0].master = None;
    }

    pub fn start_again(&mut self) -> Result<(), String> {
        let server = self.server_on(self.shards[0].port, None)?;
        self.shards[0].master = Some(server);
        Ok(())
    }

    /// Kills a master, after its replica was cut off for a while. It is over when all know of the new one, and what was
    /// killed comes back as its replica after that.
    pub fn fail_over(&mut self, at: usize, lag: Duration, window: &mut Window) -> Result<(), String> {
        if !self.is_known(self.shards[at].port) {
            return Err(
                "one server took another's place though none was killed: is the machine too slow?".to_owned()
            );
        }
        let shard = &mut self.shards[at];
        let replica = shard.replica.take().ok_or("there is no replica to take over")?;
        let master = shard.master.take().expect("it is only gone while it is being started anew");
        let old = shard.port;
        if !lag.is_zero() {
            // Nothing more reaches it, also not from the kernel.
            replica.signal(Signal::STOP)?;
            master.tell("CLIENT KILL TYPE replica")?;
            thread::sleep(lag);
        }
        let killed = now();
        master.signal(Signal::KILL)?;
        // Its guardian takes longer to see that it is gone.
        while master.talk().is_ok() {}
        window.begun = now();
        drop(master);
        if !lag.is_zero() {
            replica.signal(Signal::CONT)?;
        }
        until("the replica does not notice that its master is gone", || {
            replica.told("INFO replication").concat().contains("master_link_status:down")
        })?;
        let kept = records(&replica)?;
        let looked = now();
        if is_master(&replica) {
            return Err("the replica was promoted before anybody looked at what it had".to_owned());
        }
        until("the replica is not promoted", || {
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
        until("the new master does not become known", || self.is_known(shard.port))?;
        window.to = now();
        window.failover = Some(Failover { killed, slots, kept, looked, lag: !lag.is_zero() });
        let replica = self.server_on(old, Some(shard.port))?;
        self.shards[at].replica = Some(replica);
        self.wait_until_whole(&self.shards[at])
    }

    /// To all that are asked who is the master.
    fn is_known(&self, port: u16) -> bool {
        let sentinels = self.sentinels.iter().all(|sentinel| {
            sentinel.told("SENTINEL GET-MASTER-ADDR-BY-NAME orders").get(1) == Some(&port.to_string())
        });
        sentinels
            && (self.topology != Topology::Cluster
                || self.nodes().all(|node| {
                    let place = place(node, port);
                    // With slots, which stand at the end.
                    place.iter().any(|flags| flags.contains("master") && !flags.contains("fail"))
                        && place.len() > 1
                        && node.told("CLUSTER INFO").concat().contains("cluster_state:ok")
                }))
    }

    /// The replica has all that its master has, and would be taken for another failover.
    fn wait_until_whole(&self, shard: &Shard) -> Result<(), String> {
        let Some(replica) = &shard.replica else { return Ok(()) };
        let number = |server: &Server, name: &str| -> Option<u64> {
            let info = server.told("INFO replication").concat();
            info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        let mut written = None;
        until("the replica does not get in sync", || {
            let up = replica.told("INFO replication").concat().contains("master_link_status:up");
            let master = shard.master();
            let seen = master.told("INFO replication").concat().contains("state=online");
            if up && seen {
                written = written.or_else(|| number(master, "master_repl_offset:"));
            }
            up && written.is_some_and(|written| {
                number(replica, "slave_repl_offset:").is_some_and(|read| read >= written)
            })
        })?;
        until("the replica does not become known", || {
            let port = replica.port.to_string();
            let sentinels = self.sentinels.iter().all(|sentinel| {
                let told = sentinel.told("SENTINEL REPLICAS orders");
                value(&told, "port") == Some(&*port) && value(&told, "flags") == Some("slave")
            });
            let of_cluster = |node: &Server| {
                let flags = place(node, replica.port).into_iter().next().unwrap_or_default();
                flags.contains("slave") && !flags.contains("fail")
            };
            let cluster = self.topology == Topology::Cluster;
            sentinels && self.is_known(shard.port) && (!cluster || self.nodes().all(of_cluster))
        })
    }
}

impl Shard {
    pub fn master(&self) -> &Server {
        self.master.as_ref().expect("it is only gone while it is being started anew")
    }

    fn replica(&self) -> Result<&Server, String> {
        self.replica.as_ref().ok_or_else(|| "there is no replica".to_owned())
    }
}

/// Every record, as the texts in it.
fn records(server: &Server) -> Result<Records, String> {
    let mut talk = server.talk()?;
    // Outside of a cluster that is an error, and not needed.
    let _ = talk.ask(&["READONLY"], PATIENCE);
    let mut records = Records::default();
    for key in talk.ask(&["KEYS", "*"], PATIENCE)? {
        let kind = talk.ask(&["TYPE", &key], PATIENCE)?.concat();
        let texts = match &*kind {
            "hash" => talk.ask(&["HGETALL", &key], PATIENCE)?,
            "list" => talk.ask(&["LRANGE", &key, "0", "-1"], PATIENCE)?,
            "zset" => talk.ask(&["ZRANGE", &key, "0", "-1"], PATIENCE)?,
            "string" => talk.ask(&["GET", &key], PATIENCE)?,
            // It ended between two looks.
            _ => Vec::new(),
        };
        if !texts.is_empty() {
            records.0.insert(key, texts);
        }
    }
    Ok(records)
}

fn is_master(server: &Server) -> bool {
    server.told("ROLE").first().is_some_and(|role| role == "master")
}

/// The flags by which a node knows the one at that port, and its slots.
fn place(node: &Server, port: u16) -> Vec<String> {
    let nodes = node.told("CLUSTER NODES").concat();
    let at = format!(":{port}@");
    let line = nodes.lines().find(|line| line.contains(&at)).unwrap_or_default();
    let words = line.split(' ').enumerate().filter(|(number, _)| *number == 2 || *number > 7);
    words.map(|(_, word)| word.to_owned()).collect()
}

/// Nothing where there is no answer.
/// Of texts in pairs.
fn value<'a>(pairs: &'a [String], name: &str) -> Option<&'a str> {
    pairs.chunks(2).find(|pair| pair[0] == name).and_then(|pair| pair.get(1)).map(String::as_str)
}
