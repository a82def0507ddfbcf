//! The masters of a cluster, and which of them has which slot.
//!
//! One task, the keeper, owns it all: it asks the nodes who has what, keeps each master connected, and follows the redirects
//! that requests meet. Others see a snapshot ([`Layout`]), and tell the keeper what they met ([`Redirects`]).

use super::discovery::Discovery;
use super::node::{Node, Shared};
use super::redirects::{NAMELESS, Redirect, Redirects};
use super::servers::SeedNodes;
use super::{Address, connect_error, replicas, server_text, told};
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

/// How often the nodes are asked who has what, as long as nothing seems to have changed.
const LOOK: Duration = Duration::from_secs(5);
/// How long one is asked before the next one is, too.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often at most.
const GAP: Duration = Duration::from_millis(50);
/// While something is broken, the part of the time since it broke that passes between two questions, and the longest.
const PART: u32 = 16;
const LONGEST: Duration = Duration::from_secs(1);
/// More masters than any cluster has: Redis is made for 1000 nodes.
const MASTERS: usize = 1000;
/// For how long a node without slots is kept that is being given its first.
const GUEST: Duration = Duration::from_secs(60);

/// Who has what, at one time.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// For each slot its master.
    slots: Vec<Option<Node>>,
    masters: HashMap<Arc<str>, Node>,
}

impl Layout {
    pub(super) fn master_of(&self, slot: u16) -> Option<&Node> {
        self.slots[usize::from(slot)].as_ref()
    }

    pub(super) fn at(&self, host: &str, port: u16) -> Option<&Node> {
        self.masters.get(format!("{host}:{port}").as_str())
    }

    pub(super) fn masters(&self) -> impl Iterator<Item = &Node> {
        self.masters.values()
    }
}

/// What one node says.
#[derive(Debug)]
struct ClusterSlotsReply {
    ranges: Vec<Range>,
    /// It knows messages for the nodes of one slot alone; `None` where its user may not ask.
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

pub(super) struct TopologyManager {
    known: Arc<SeedNodes>,
    options: Options,
    shared: Shared,
    layout: watch::Sender<Arc<Layout>>,
    redirects: Arc<Redirects>,
    supervisors: HashMap<Arc<str>, Supervised>,
    /// Those to which requests were sent on, and when last.
    guests: HashMap<Arc<str>, Moment>,
    /// The first layout is there: what comes in has taken something over.
    running: bool,
}

/// Ends with this.
struct Supervised(JoinHandle<()>);

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the others have of a keeper.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub layout: watch::Receiver<Arc<Layout>>,
    pub redirects: Arc<Redirects>,
    /// Each message is for the nodes of its slot alone.
    pub sharded: bool,
}

impl TopologyManager {
    /// Learns of the cluster from the first seed that answers. Ends once its masters are connected.
    pub(super) async fn connect(
        known: Arc<SeedNodes>,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, Cluster)> {
        let layout = Layout { slots: vec![None; usize::from(SLOTS)], masters: HashMap::new() };
        let (layout, redirects) = (watch::Sender::new(Arc::new(layout)), Arc::<Redirects>::default());
        let until = Moment::now() + options.connect_timeout;
        let (told, at) = ask_any(known.nodes(), until, options).await?;
        let sharded = match (options.sharded, told.sharded) {
            (Some(true), Some(false)) => return Err(unsharded(at.node())),
            (Some(sharded), _) | (None, Some(sharded)) => sharded,
            (None, None) => {
                warn!("the user may not `PUBSUB SHARDNUMSUB`: messages are taken for not sharded");
                false
            }
        };
        debug!(sharded, "the messages of the cluster");
        if options.replication().at_least.is_some_and(|replicas| replicas > 0) {
            // Each master is asked when it is connected to; what none of them can do is said at once.
            let (connection, driver) = at.open(until, options).await?;
            select! {
                told = replicas::tell(connection, at.node(), options, until, &shared.warned) => { told?; },
                () = driver => {}
            }
        }
        let cluster = Cluster { layout: layout.subscribe(), redirects: redirects.clone(), sharded };
        let mut keeper = Self {
            known,
            options: Options { sharded: Some(sharded), ..options.clone() },
            shared: shared.clone(),
            layout,
            redirects,
            supervisors: HashMap::new(),
            guests: HashMap::new(),
            running: false,
        };
        keeper.install(told.ranges, &at);
        keeper.running = true;
        keeper.connected(until).await?;
        Ok((keeper, cluster))
    }

    /// Waits until all of the masters are connected to; most of them are enough by then.
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
            Some((node, reason)) if down.len() * 2 >= layout.masters.len() => Err(Error::Unavailable {
                phase: Phase::Connect,
                node: node.to_string(),
                reason: format!(
                    "{} of the {} masters of the cluster can't be reached; of this one: {reason}",
                    down.len(),
                    layout.masters.len()
                ),
            }),
            _ => Ok(()),
        }
    }

    /// Serves for ever; meant for a task of its own.
    pub(super) async fn run(mut self) {
        let mut asking = JoinSet::new();
        let mut changes = self.shared.changes();
        let (mut next, mut soon) = (Moment::now() + LOOK, Moment::now());
        let (mut turn, mut whole) = (0, Moment::now());
        loop {
            select! {
                () = self.redirects.notify.notified() => next = soon,
                _ = changes.changed() => next = soon,
                () = time::sleep(next.remaining()), if asking.is_empty() => {
                    turn += 1;
                    let layout = self.layout.borrow().clone();
                    asking.spawn(look(layout, turn, self.known.clone(), self.options.clone()));
                }
                Some(answer) = asking.join_next() => {
                    let now = Moment::now();
                    soon = now + GAP;
                    let broken = match answer {
                        Ok(Ok((told, at))) => {
                            self.install(told.ranges, &at);
                            self.layout.borrow().masters().any(|node| node.usable(0).is_err())
                        }
                        Ok(Err(error)) => {
                            debug!(%error, "no node says who has what");
                            true
                        }
                        Err(_) => true,
                    };
                    if !broken {
                        whole = now;
                    }
                    // What is broken for long may be so for much longer.
                    next = now + if broken { (now.since(whole) / PART).clamp(GAP, LONGEST) } else { LOOK };
                }
            }
            self.follow();
        }
    }

    /// Takes redirects at their word, at once: whoever met one waits for that.
    fn follow(&mut self) {
        let met = self.redirects.take();
        if met.is_empty() {
            return;
        }
        let mut layout = (**self.layout.borrow()).clone();
        let (known, mut moved) = (layout.masters.len(), false);
        for Redirect { slot, host, port, ask } in met {
            let address = self.known.seeds[0].at(host, port);
            if layout.masters.len() >= MASTERS && !layout.masters.contains_key(address.node()) {
                warn!(node = address.node(), "more masters than a cluster has: a redirect is not followed");
                continue;
            }
            let node = self.node(&mut layout, &address);
            if ask {
                self.guests.insert(node.name.clone(), Moment::now());
                continue;
            }
            let before = layout.slots[usize::from(slot)].replace(node.clone());
            moved |= before.is_none_or(|before| before.name != node.name);
        }
        // A slot that is on its way sends on whoever asks, again and again.
        if moved || layout.masters.len() != known {
            self.publish(layout);
        }
    }

    fn node(&mut self, layout: &mut Layout, address: &Address) -> Node {
        let name: Arc<str> = address.node().into();
        if let Some(node) = layout.masters.get(&name) {
            return node.clone();
        }
        let (node, supervisor) =
            Node::start(Discovery::At(address.clone()), &self.options, &self.shared, self.running);
        self.supervisors.insert(name.clone(), Supervised(supervisor));
        layout.masters.insert(name, node.clone());
        node
    }

    /// `at` is who said so.
    fn install(&mut self, ranges: Vec<Range>, at: &Address) {
        let old = self.layout.borrow().clone();
        let mut found = Vec::new();
        let mut new = Layout { slots: vec![None; usize::from(SLOTS)], masters: HashMap::new() };
        for Range { first, last, host, port } in ranges {
            let host = if host.is_empty() { at.host().to_owned() } else { host };
            let address = at.at(host, port);
            if let Some(node) = old.masters.get(address.node()) {
                new.masters.insert(address.node().into(), node.clone());
            }
            let node = self.node(&mut new, &address);
            found.push(address);
            for slot in first..=last {
                new.slots[usize::from(slot)] = Some(node.clone());
            }
        }
        self.known.find(found);
        self.guests.retain(|_, met| Moment::now().since(*met) < GUEST);
        for name in self.guests.keys() {
            if let Some(node) = old.masters.get(name) {
                new.masters.entry(name.clone()).or_insert_with(|| node.clone());
            }
        }
        self.supervisors.retain(|name, _| new.masters.contains_key(name));
        let slots = |layout: &Layout| {
            layout.slots.iter().map(|node| node.as_ref().map(|n| n.name.clone())).collect::<Vec<_>>()
        };
        let same = new.masters.len() == old.masters.len()
            && new.masters.keys().all(|name| old.masters.contains_key(name));
        if !same || slots(&new) != slots(&old) {
            info!(masters = new.masters.len(), "the cluster's slots are laid out anew");
            self.publish(new);
        }
    }

    fn publish(&self, layout: Layout) {
        self.layout.send_replace(Arc::new(layout));
        self.shared.changed();
    }
}

/// Who has what by the word of the first node that answers, and that node. Each is given a little time before the next one is
/// asked as well.
async fn ask_any(
    nodes: Vec<Address>,
    until: Moment,
    options: &Options,
) -> Result<(ClusterSlotsReply, Address)> {
    let mut problem = Error::misuse("no node of the cluster is named");
    let (mut nodes, mut asking) = (nodes.into_iter().peekable(), JoinSet::new());
    loop {
        if let Some(node) = nodes.next() {
            asking.spawn(ask_alone(node, until, options.clone()));
        }
        select! {
            answer = asking.join_next() => match answer {
                Some(Ok(Ok(told))) => return Ok(told),
                Some(Ok(Err(error))) => problem = error,
                Some(Err(_)) => {}
                None => return Err(problem),
            },
            () = time::sleep(PATIENCE), if nodes.peek().is_some() => {}
        }
    }
}

async fn ask_alone(node: Address, until: Moment, options: Options) -> Result<(ClusterSlotsReply, Address)> {
    let (connection, driver) = node.open(until, &options).await?;
    let limit = options.response_timeout.min(until.remaining());
    let told = select! {
        told = ask(connection, node.node(), limit) => told,
        () = driver => Err(unavailable(node.node(), "the connection dropped")),
    };
    Ok((told?, node))
}

/// The same of the nodes that are connected to, of another at each `turn`: one may be cut off from the rest. Of the seeds where
/// none is.
async fn look(
    layout: Arc<Layout>,
    turn: usize,
    known: Arc<SeedNodes>,
    options: Options,
) -> Result<(ClusterSlotsReply, Address)> {
    let first = turn % layout.masters.len().max(1);
    for node in layout.masters().skip(first).chain(layout.masters().take(first)) {
        if let Ok(live) = node.usable(0)
            && let Ok(told) = ask(live.link.connection, &live.node, options.response_timeout).await
        {
            return Ok((told, (*live.address).clone()));
        }
    }
    ask_any(known.nodes(), Moment::now() + options.connect_timeout, &options).await
}

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
            let ranges = told(Ok(answers.next().unwrap_or(Value::Nil)));
            let ranges = read(ranges.map_err(|error| connect_error(&error, node))?)
                .ok_or_else(|| unavailable(node, "its answer about the slots is not understood"))?;
            if ranges.is_empty() {
                // It is not in the cluster any more, or not yet: what the others have is not for it to say.
                return Err(unavailable(node, "it knows of no slots"));
            }
            if let Err(reason) = bounded(&ranges) {
                warn!(node, reason, "a layout that no cluster has is not used");
                return Err(unavailable(node, &reason));
            }
            let sharded = match told(Ok(answers.next().unwrap_or(Value::Nil))) {
                Ok(answer) => Some(matches!(answer, Value::Array(_))),
                Err(error) => (error.code() != Some("NOPERM")).then_some(false),
            };
            Ok(ClusterSlotsReply { ranges, sharded })
        }
        Ok(Err(error)) => Err(connect_error(&error, node)),
        Err(_) => Err(Error::TimedOut { phase: Phase::Connect, node: node.to_owned(), waited: limit }),
    }
}

/// A layout that could be a cluster's. Each master is connected to, with the password.
pub(super) fn bounded(ranges: &[Range]) -> Result<(), String> {
    let slots: usize = ranges.iter().map(|range| usize::from(range.last - range.first) + 1).sum();
    if slots > usize::from(SLOTS) {
        return Err(format!("its ranges have {slots} slots in all, more than the {SLOTS} of a cluster"));
    }
    let masters: HashSet<_> = ranges.iter().map(|range| (&range.host, range.port)).collect();
    if masters.len() > MASTERS {
        return Err(format!(
            "it names {} masters, more than the {MASTERS} that a cluster can have",
            masters.len()
        ));
    }
    Ok(())
}

fn unsharded(node: &str) -> Error {
    let message = "its messages can't be sharded: Redis or Valkey 7.0 or later is needed".to_owned();
    Error::Refused { phase: Phase::Connect, node: node.to_owned(), code: "VERSION".into(), message }
}

fn unavailable(node: &str, reason: &str) -> Error {
    Error::Unavailable { phase: Phase::Connect, node: node.to_owned(), reason: reason.to_owned() }
}

/// Ranges, each with its master first. A master without a name of its own is the one that was asked.
pub(super) fn read(answer: Value) -> Option<Vec<Range>> {
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

/// Nothing is an empty text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::Nil => Some(String::new()),
        _ => None,
    }
}

/// Where a master is that has no name of the sort that the cluster prefers: names and values in turn stand behind its id.
fn by_ip(master: &[Value]) -> Option<String> {
    let Some(Value::Array(known)) = master.get(3) else { return None };
    let known: Vec<_> = known.iter().map(text).collect::<Option<_>>()?;
    let ip = known.chunks_exact(2).find(|pair| pair[0] == "ip").map(|pair| pair[1].clone());
    ip.filter(|ip| ip != NAMELESS)
}
