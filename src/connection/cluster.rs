//! The masters of a cluster, and which of them has which slot.
//!
//! One task, the topology manager, owns the layout: it asks the nodes for their slots, keeps each master connected, and follows the
//! redirects that requests receive. Other code reads a snapshot ([`Layout`]) and reports redirects ([`Redirects`]).

use super::discovery::Discovery;
use super::layout::Layout;
use super::node::{Node, Shared};
use super::redirects::{NAMELESS, Redirect, Redirects};
use super::servers::SeedNodes;
use super::{Address, connect_error, into_server_error, replicas, server_text};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::protocol::keys::SLOTS;
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::JoinHandle;
use crate::runtime::sync::{select, time};
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

/// The interval between two reads of the layout while nothing seems to have changed.
const REFRESH: Duration = Duration::from_secs(5);
/// The longest wait for a node's reply before the next node is asked, too.
const PATIENCE: Duration = Duration::from_millis(200);
/// The minimum interval between two reads.
const MIN_GAP: Duration = Duration::from_millis(50);
/// While a master is down or a slot has none, the interval is the time since then divided by `DOWNTIME_DIVISOR`, at most `MAX_GAP`.
const DOWNTIME_DIVISOR: u32 = 16;
const MAX_GAP: Duration = Duration::from_secs(1);
/// The maximum number of masters. Redis Cluster is designed for up to 1000 nodes.
const MAX_MASTERS: usize = 1000;
/// How long to keep a node that has no slots yet but imports one.
const IMPORT: Duration = Duration::from_secs(60);

/// The layout as one node reports it.
#[derive(Debug)]
struct ClusterSlotsReply {
    ranges: Vec<Range>,
    /// Whether the node supports sharded messages; `None` if the user may not ask.
    sharded: Option<bool>,
}

/// A range of slots and its master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub first: u16,
    pub last: u16,
    pub host: String,
    pub port: u16,
}

/// The task that owns the layout.
pub(super) struct TopologyManager {
    known: Arc<SeedNodes>,
    options: Arc<Options>,
    shared: Shared,
    layout: watch::Sender<Arc<Layout>>,
    redirects: Arc<Redirects>,
    supervisors: HashMap<Arc<str>, Supervised>,
    /// Nodes that import a slot, with the time of the last `ASK` redirect to them.
    importing: HashMap<Arc<str>, Moment>,
    /// The first layout is installed, so a new node may be the successor of a failed master.
    running: bool,
}

/// A supervisor that is aborted on drop.
struct Supervised(JoinHandle<()>);

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The handle of a topology manager.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub layout: watch::Receiver<Arc<Layout>>,
    pub redirects: Arc<Redirects>,
    /// Messages are sharded: only the nodes of a channel's slot get them.
    pub sharded: bool,
}

impl TopologyManager {
    /// Reads the layout from the first seed that replies, and connects its masters.
    pub(super) async fn connect(
        known: Arc<SeedNodes>,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, Cluster)> {
        let until = Moment::now() + options.connect_timeout;
        let (reply, at) = ask_any(known.nodes(), until, &Arc::new(options.clone())).await?;
        let sharded = is_sharded(options.sharded, reply.sharded, at.node())?;
        debug!(sharded, "publishing mode of the cluster");
        if options.replication().at_least.is_some_and(|replicas| replicas > 0) {
            // Each master is checked when it connects. This early check returns the refusal at once, not after the timeout.
            let (connection, driver) = at.open(until, options).await?;
            select! {
                supported = replicas::check_support(connection, at.node(), options, until, &shared.warned) => {
                    supported?;
                },
                () = driver => {}
            }
        }
        let (mut manager, cluster) = Self::start(known, options, shared, sharded);
        manager.install(reply.ranges, &at);
        manager.running = true;
        manager.connected(until).await?;
        Ok((manager, cluster))
    }

    /// A manager that knows no layout yet.
    pub(super) fn start(
        known: Arc<SeedNodes>,
        options: &Options,
        shared: &Shared,
        sharded: bool,
    ) -> (Self, Cluster) {
        let (layout, redirects) =
            (watch::Sender::new(Arc::new(Layout::empty())), Arc::<Redirects>::default());
        let cluster = Cluster { layout: layout.subscribe(), redirects: redirects.clone(), sharded };
        let manager = Self {
            known,
            options: Arc::new(Options { sharded: Some(sharded), ..options.clone() }),
            shared: shared.clone(),
            layout,
            redirects,
            supervisors: HashMap::new(),
            importing: HashMap::new(),
            running: false,
        };
        (manager, cluster)
    }

    /// Waits until all masters are connected.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if half of them or more are still missing at `until`.
    async fn connected(&self, until: Moment) -> Result<()> {
        let mut changes = self.shared.changes();
        let layout = self.layout.borrow().clone();
        let all = async {
            loop {
                changes.borrow_and_update();
                if layout.masters().all(|node| node.usable(0).is_ok()) || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = time::timeout(until.remaining(), all).await;
        let down: Vec<_> =
            layout.masters().filter_map(|node| Some((node.name.clone(), node.usable(0).err()?))).collect();
        match down.first() {
            Some((node, outage)) if down.len() * 2 >= layout.len() => {
                let (count, all) = (down.len(), layout.len());
                let outage = outage.explained(|reason| {
                    format!("{count} of the {all} masters of the cluster are unreachable; the reason for this one: {reason}")
                });
                Err(outage.error(Phase::Connect, node))
            }
            _ => Ok(()),
        }
    }

    /// Runs until the task is aborted.
    pub(super) async fn run(mut self) {
        let mut asking = JoinSet::new();
        let mut changes = self.shared.changes();
        let (mut next, mut soon) = match self.running {
            true => (Moment::now() + REFRESH, Moment::now()),
            false => (Moment::now(), Moment::now()),
        };
        let (mut turn, mut whole) = (0, Moment::now());
        loop {
            select! {
                () = self.redirects.changed() => next = soon,
                _ = changes.changed() => next = soon,
                () = time::sleep(next.remaining()), if asking.is_empty() => {
                    turn += 1;
                    let layout = self.layout.borrow().clone();
                    asking.spawn(look(layout, turn, self.known.clone(), self.options.clone()));
                }
                Some(answer) = asking.join_next() => {
                    let now = Moment::now();
                    soon = now + MIN_GAP;
                    let broken = match answer {
                        Ok(Ok((reply, at))) => {
                            self.install(reply.ranges, &at);
                            self.running = true;
                            let layout = self.layout.borrow();
                            !layout.is_complete() || layout.masters().any(|node| node.usable(0).is_err())
                        }
                        Ok(Err(error)) => {
                            debug!(%error, "no node reports the cluster's slots");
                            true
                        }
                        Err(_) => true,
                    };
                    if !broken {
                        whole = now;
                    }
                    // The longer an outage has lasted, the longer it is likely to last.
                    next = now + match broken {
                        true => (now.since(whole) / DOWNTIME_DIVISOR).clamp(MIN_GAP, MAX_GAP),
                        false => REFRESH,
                    };
                }
            }
            self.follow();
        }
    }

    /// Applies the reported redirects at once, because their requests wait for the new node.
    fn follow(&mut self) {
        let seen = self.redirects.take();
        if seen.is_empty() {
            return;
        }
        let mut layout = (**self.layout.borrow()).clone();
        let (known, mut moved) = (layout.len(), false);
        for Redirect { slot, host, port, ask } in seen {
            let address = self.known.seeds[0].at(host, port);
            if layout.len() >= MAX_MASTERS && layout.named(address.node()).is_none() {
                warn!(
                    node = address.node(),
                    "more than {MAX_MASTERS} masters: a redirect to one more is ignored"
                );
                continue;
            }
            let master = self.connected_to(&mut layout, &address);
            if ask {
                self.importing.insert(layout.master(master).name.clone(), Moment::now());
                continue;
            }
            moved |= layout.assign(slot, slot, master);
        }
        // A migrating slot redirects each request again. Only a change is published.
        if moved || layout.len() != known {
            self.publish(layout);
        }
    }

    /// The index of the master at `address` in `layout`. A new master is added and connected.
    fn connected_to(&mut self, layout: &mut Layout, address: &Address) -> u16 {
        if let Some(index) = layout.index_of(address.node()) {
            return index;
        }
        let (node, supervisor) =
            Node::start(Discovery::At(address.clone()), &self.options, &self.shared, self.running);
        self.supervisors.insert(node.name.clone(), Supervised(supervisor));
        layout.add(&node)
    }

    /// Replaces the layout by the one that the node `at` reported.
    fn install(&mut self, ranges: Vec<Range>, at: &Address) {
        let old = self.layout.borrow().clone();
        let mut found = Vec::new();
        let mut new = Layout::empty();
        for Range { first, last, host, port } in ranges {
            let host = if host.is_empty() { at.host().to_owned() } else { host };
            let address = at.at(host, port);
            if let Some(node) = old.named(address.node()) {
                new.add(node);
            }
            let master = self.connected_to(&mut new, &address);
            if usize::from(master) == found.len() {
                // Its first range.
                found.push(address);
            }
            new.assign(first, last, master);
        }
        self.known.set_masters(found);
        self.importing.retain(|_, redirected| Moment::now().since(*redirected) < IMPORT);
        for node in self.importing.keys().filter_map(|name| old.named(name)) {
            if new.len() < MAX_MASTERS {
                new.add(node);
            }
        }
        self.supervisors.retain(|name, _| new.named(name).is_some());
        if !new.is_same(&old) {
            info!(masters = new.len(), "the cluster's layout changed");
            self.publish(new);
        }
    }

    fn publish(&self, layout: Layout) {
        self.layout.send_replace(Arc::new(layout));
        self.shared.changed();
    }
}

/// The layout from the first node that replies, and that node. The nodes are asked one after the other, at most [`PATIENCE`] apart,
/// until one replies. Half of the time is left for the last one, however many nodes are silent.
async fn ask_any(
    nodes: Vec<Address>,
    until: Moment,
    options: &Arc<Options>,
) -> Result<(ClusterSlotsReply, Address)> {
    let mut problem = unavailable("the cluster", "no node replied");
    let count = u32::try_from(nodes.len().max(1)).unwrap_or(u32::MAX);
    let patience = PATIENCE.min(until.remaining() / 2 / count);
    let (mut nodes, mut asking) = (nodes.into_iter().peekable(), JoinSet::new());
    loop {
        if let Some(node) = nodes.next() {
            asking.spawn(ask_alone(node, until, options.clone()));
        }
        select! {
            answer = asking.join_next() => match answer {
                Some(Ok(Ok(reply))) => return Ok(reply),
                Some(Ok(Err(error))) => problem = error,
                Some(Err(_)) => {}
                None => return Err(problem),
            },
            () = time::sleep(patience), if nodes.peek().is_some() => {}
        }
    }
}

async fn ask_alone(
    node: Address,
    until: Moment,
    options: Arc<Options>,
) -> Result<(ClusterSlotsReply, Address)> {
    let (connection, driver) = node.open(until, &options).await?;
    let limit = options.response_timeout.min(until.remaining());
    let reply = select! {
        reply = ask(connection, node.node(), limit) => reply,
        () = driver => Err(unavailable(node.node(), "the connection dropped")),
    };
    Ok((reply?, node))
}

/// The layout from a connected master, or else from a seed. Each `turn` begins with another master, because one may be cut off
/// from the rest.
async fn look(
    layout: Arc<Layout>,
    turn: usize,
    known: Arc<SeedNodes>,
    options: Arc<Options>,
) -> Result<(ClusterSlotsReply, Address)> {
    let first = turn % layout.len().max(1);
    for node in layout.masters().skip(first).chain(layout.masters().take(first)) {
        if let Ok(live) = node.usable(0)
            && let Ok(reply) = ask(live.link.connection.clone(), &live.node, options.response_timeout).await
        {
            return Ok((reply, live.address.clone()));
        }
    }
    ask_any(known.nodes(), Moment::now() + options.connect_timeout, &options).await
}

/// The layout from the node of `connection`.
async fn ask(
    mut connection: MultiplexedConnection,
    node: &str,
    limit: Duration,
) -> Result<ClusterSlotsReply> {
    let mut commands = redis::pipe();
    commands.cmd("CLUSTER").arg("SLOTS").cmd("PUBSUB").arg("SHARDNUMSUB");
    let answers = connection.send_packed_commands(&commands, 0, 2);
    match time::timeout(limit, answers).await {
        Ok(Ok(answers)) => {
            let mut answers = answers.into_iter();
            let ranges = into_server_error(Ok(answers.next().unwrap_or(Value::Nil)));
            let ranges = parse_slots(ranges.map_err(|error| connect_error(&error, node))?)
                .ok_or_else(|| unavailable(node, "its reply to `CLUSTER SLOTS` is not understood"))?;
            if ranges.is_empty() {
                // The node has left the cluster or has not joined it yet, so it cannot know the layout.
                return Err(unavailable(node, "it knows no slots: check that it belongs to the cluster"));
            }
            if let Err(reason) = bounded(&ranges) {
                warn!(node, reason, "the node reports an impossible layout, which is ignored");
                return Err(unavailable(node, &reason));
            }
            let sharded = match into_server_error(Ok(answers.next().unwrap_or(Value::Nil))) {
                Ok(answer) => Some(matches!(answer, Value::Array(_))),
                Err(error) => (error.code() != Some("NOPERM")).then_some(false),
            };
            Ok(ClusterSlotsReply { ranges, sharded })
        }
        Ok(Err(error)) => Err(connect_error(&error, node)),
        Err(_) => Err(Error::TimedOut { phase: Phase::Connect, node: node.to_owned(), waited: limit }),
    }
}

/// Refuses a layout that no cluster can have, because the client connects to each master and sends it the password.
pub(super) fn bounded(ranges: &[Range]) -> Result<(), String> {
    let slots: usize = ranges.iter().map(|range| usize::from(range.last - range.first) + 1).sum();
    if slots > usize::from(SLOTS) {
        return Err(format!("it reports {slots} slots, more than the {SLOTS} of a cluster"));
    }
    let masters: HashSet<_> = ranges.iter().map(|range| (&range.host, range.port)).collect();
    if masters.len() > MAX_MASTERS {
        return Err(format!(
            "it reports {} masters, more than the {MAX_MASTERS} that a cluster can have",
            masters.len()
        ));
    }
    Ok(())
}

/// Whether messages are sharded: by the settings, or else by whether `node` supports it.
fn is_sharded(configured: Option<bool>, supported: Option<bool>, node: &str) -> Result<bool> {
    match (configured, supported) {
        (Some(true), Some(false)) => {
            let message = "it does not support sharded messages: upgrade to Redis or Valkey 7.0 or later, or omit `sharded_messages(true)`";
            Err(Error::Refused {
                phase: Phase::Connect,
                node: node.to_owned(),
                code: "VERSION".into(),
                message: message.to_owned(),
            })
        }
        (Some(sharded), _) | (None, Some(sharded)) => Ok(sharded),
        (None, None) => {
            warn!(
                node,
                "the user may not run `PUBSUB SHARDNUMSUB`, so messages are assumed not to be sharded: grant it, or set `sharded_messages`"
            );
            Ok(false)
        }
    }
}

fn unavailable(node: &str, reason: &str) -> Error {
    Error::unavailable(Phase::Connect, node, reason)
}

/// Parses the reply to `CLUSTER SLOTS`: ranges of slots, each with its master first. An empty host stands for the node that was
/// asked.
pub(super) fn parse_slots(answer: Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = answer else { return None };
    let range = |range: Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
            return None;
        };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = match text(host)? {
            host if host == NAMELESS => by_ip(master)?,
            host => host,
        };
        let host = server_text::host(&host)?;
        let slot = |n: &i64| u16::try_from(*n).ok().filter(|slot| *slot < SLOTS);
        let (first, last, port) = (slot(first)?, slot(last)?, u16::try_from(*port).ok()?);
        (first <= last).then_some(Range { first, last, host, port })
    };
    ranges.into_iter().map(range).collect()
}

/// A string; nil is the empty string.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::Nil => Some(String::new()),
        _ => None,
    }
}

/// The IP address of a master that lacks the preferred kind of name. It is in the list of names and values after the id.
fn by_ip(master: &[Value]) -> Option<String> {
    let Some(Value::Array(known)) = master.get(3) else { return None };
    let known: Vec<_> = known.iter().map(text).collect::<Option<_>>()?;
    let ip = known.chunks_exact(2).find(|pair| pair[0] == "ip").map(|pair| pair[1].clone());
    ip.filter(|ip| ip != NAMELESS)
}
