//! One server, or the master of a group of servers, which a supervisor keeps connected.
//!
//! ARCHITECTURE invariant 3: the old socket is closed before a new one is opened, so that no request of this client is still written to it.

use super::discovery::Discovery;
use super::link::{self, Link, Probing};
use super::pulse::{Cut, Pulse};
use super::replicas::{self, Replicas, Seen};
use super::server::Server;
use super::{Address, RetryDelay};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::protocol::script::{Reply, Request, Verb};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::Mutex;
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{select, time};
use crate::stats::Counters;
use redis::{RedisError, Value};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// The longest interval between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// A server that the client reconnects to. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The name in errors while there is no connection.
    pub name: Arc<str>,
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub discovery: Arc<Discovery>,
    status: watch::Receiver<Status>,
    /// The id of the connection whose server may no longer be the master.
    doubted: watch::Sender<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    Up(Arc<Live>),
    Down(Outage),
}

/// Why there is no connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    reason: Arc<str>,
    source: Option<Arc<io::Error>>,
}

impl Outage {
    /// The outage of the node called `name`, after a connect that failed.
    fn after(error: &Error, name: &str) -> Self {
        let source = match error {
            Error::Unavailable { source, .. } => source.clone(),
            _ => None,
        };
        Self { reason: error.reason_at(name).into(), source }
    }

    /// The same outage with a longer reason.
    pub(super) fn explained(&self, explain: impl FnOnce(&str) -> String) -> Self {
        Self { reason: explain(&self.reason).into(), source: self.source.clone() }
    }

    /// The public error for a request that needs the connection.
    pub(super) fn error(&self, phase: Phase, node: &str) -> Error {
        let (node, reason) = (node.to_owned(), self.reason.to_string());
        Error::Unavailable { phase, node, reason, source: self.source.clone() }
    }
}

impl<T: Into<Arc<str>>> From<T> for Outage {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), source: None }
    }
}

/// A connection that is up.
#[derive(Debug)]
pub(super) struct Live {
    /// The number of this connection. Each socket has its own.
    pub id: u64,
    /// The data epoch. It changes when another server answers, or the same one after a restart.
    pub data_epoch: u64,
    /// The server has lost no write since then. It may have lost earlier ones.
    pub since: Moment,
    pub node: Arc<str>,
    pub address: Address,
    pub link: Link,
    pub replicas: Arc<Replicas>,
    pub counters: Arc<Counters>,
    /// Shared by all connections of the node.
    refusal: Arc<Mutex<Option<TransientRefusal>>>,
    pulse: Pulse,
}

/// A refusal that may end by itself, such as `LOADING`.
#[derive(Clone, Debug)]
pub(super) struct TransientRefusal {
    at: Moment,
    pub code: String,
    pub message: String,
}

impl Live {
    /// Records a transient refusal.
    pub(super) fn note_refusal(&self, code: &str, message: &str) {
        let refusal =
            TransientRefusal { at: Moment::now(), code: code.to_owned(), message: message.to_owned() };
        *self.refusal.lock() = Some(refusal);
    }

    /// The latest transient refusal, if it came at `since` or later.
    pub(super) fn refusal(&self, since: Moment) -> Option<TransientRefusal> {
        let last = self.refusal.lock().clone();
        last.filter(|refusal| refusal.at >= since)
    }

    /// Sends `request` once, and counts it. See [`Link::exchange`]. Sends nothing if the server does not permit the request's fast path.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        by_source: bool,
        asking: bool,
    ) -> Result<Option<Reply>, RedisError> {
        if request.fast_path().is_some_and(|fast_path| !self.link.permits(fast_path)) {
            return Ok(None);
        }
        let counters = &*self.counters;
        let _in_flight = counters.in_flight.enter();
        match (request.fast_path(), request.verb()) {
            (Some(_), _) => &counters.shortcuts,
            (None, Verb::Script(_)) => &counters.scripts,
            (None, Verb::Command(_)) => &counters.commands,
        }
        .count();
        let answer = self.link.exchange(request, by_source, asking).await;
        if let Ok(None) = answer {
            counters.fallbacks.count();
            let key = || request.keys().first().map_or("", |key| key);
            counters.observers.tell(|observer| observer.on_script_fallback(key()));
        }
        answer
    }

    /// Waits for the reply to a `PING`.
    pub(super) async fn ping(&self) -> Result<Value, RedisError> {
        let mut connection = self.link.connection.clone();
        connection.send_packed_command(&redis::cmd("PING")).await
    }

    /// See [`Pulse::cut`].
    pub(super) async fn cut(&self, now: Moment, until: Moment) -> Cut {
        self.pulse.cut(now, until).await
    }
}

fn heartbeat_interval(options: &Options) -> Duration {
    (options.response_timeout / 4).min(HEARTBEAT)
}

/// The state that the nodes of one client share: unique numbers, the notification that a node went down or came up, and the
/// masters that recently had replicas.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    numbers: Arc<AtomicU64>,
    changes: watch::Sender<()>,
    seen: Seen,
    pub counters: Arc<Counters>,
    /// The warning that replicas cannot be checked was logged.
    pub warned: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            numbers: Arc::new(AtomicU64::new(1)),
            changes: watch::Sender::new(()),
            seen: Seen::default(),
            counters: Counters::new(options.observers.clone()),
            warned: Arc::default(),
        }
    }

    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Node {
    /// Connects, and starts a supervisor on the current runtime.
    pub(super) async fn connect(
        discovery: Discovery,
        options: &Arc<Options>,
        shared: &Shared,
    ) -> Result<(Self, JoinHandle<()>)> {
        let mut supervisor = Supervisor::new(discovery, options, shared);
        let up = supervisor.open().await?;
        supervisor.publish(Status::Up(up.live.clone()));
        Ok((supervisor.node(), task::spawn(async move { supervisor.run(up).await })))
    }

    /// Starts a supervisor on the current runtime, which then connects. `successor` says that the server may be the successor of a
    /// failed master, so its uptime does not show that it has lost no data.
    pub(super) fn start(
        discovery: Discovery,
        options: &Arc<Options>,
        shared: &Shared,
        successor: bool,
    ) -> (Self, JoinHandle<()>) {
        let mut supervisor = Supervisor { successor, ..Supervisor::new(discovery, options, shared) };
        let node = supervisor.node();
        let keeping = async move {
            let up = supervisor.open_at_last().await;
            supervisor.publish(Status::Up(up.live.clone()));
            supervisor.run(up).await;
        };
        (node, task::spawn(keeping))
    }

    /// The connection, unless it is the one with the id `dead`; or why there is none.
    pub(super) fn usable(&self, dead: u64) -> Result<Arc<Live>, Outage> {
        match &*self.status.borrow() {
            Status::Up(live) if live.id != dead => Ok(live.clone()),
            Status::Up(_) => Err("the connection dropped".into()),
            Status::Down(outage) => Err(outage.clone()),
        }
    }

    /// Reports that the server behind the connection with the id `id` refuses writes, so another may be the master.
    pub(super) fn doubt(&self, id: u64) {
        self.doubted.send_replace(id);
    }
}

/// Keeps a node connected.
struct Supervisor {
    discovery: Discovery,
    options: Arc<Options>,
    status: watch::Sender<Status>,
    shared: Shared,
    doubted: watch::Sender<u64>,
    refusal: Arc<Mutex<Option<TransientRefusal>>>,
    handshake: Option<Handshake>,
    since: Moment,
    /// The server may be the successor of a failed master, and lack some of its data whatever its uptime.
    successor: bool,
    probing: Probing,
}

/// The last handshake whose server told its run id, or else the first one.
struct Handshake {
    run_id: Option<String>,
    node: Arc<str>,
    data_epoch: u64,
}

/// A connection that is up, and the task that drives it.
struct Up {
    driver: JoinHandle<()>,
    /// The driver task has been awaited, and must not be awaited again.
    joined: bool,
    live: Arc<Live>,
}

impl Handshake {
    /// Warns that the server at `node` has another run id. Only at the same address may it have restarted.
    fn warn_of_change(&self, node: &str) {
        if *self.node == *node {
            warn!(node, "the server's run id changed: it restarted, or another server has its address");
        } else {
            warn!(node, previous_node = %self.node, "another server is the master now");
        }
    }
}

impl Up {
    /// Ends the connection, and waits until the driver task has closed the socket.
    async fn close(&mut self) {
        self.end();
        if !self.joined {
            let _ = (&mut self.driver).await;
            self.joined = true;
        }
    }

    /// Ends the connection. The driver task closes the socket when it stops.
    fn end(&self) {
        self.driver.abort();
        // Clones of `live` may outlive the supervisor, and would keep this connection open.
        self.live.replicas.end();
        self.live.pulse.end();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.end();
    }
}

impl Supervisor {
    fn new(discovery: Discovery, options: &Arc<Options>, shared: &Shared) -> Self {
        Self {
            status: watch::Sender::new(Status::Down("not connected yet".into())),
            discovery,
            options: options.clone(),
            shared: shared.clone(),
            doubted: watch::Sender::new(0),
            refusal: Arc::default(),
            handshake: None,
            since: Moment::now(),
            successor: false,
            probing: Probing::On,
        }
    }

    fn node(&self) -> Node {
        Node {
            name: self.discovery.name().into(),
            discovery: Arc::new(self.discovery.clone()),
            status: self.status.subscribe(),
            doubted: self.doubted.clone(),
        }
    }

    fn publish(&self, status: Status) {
        self.status.send_replace(status);
        self.shared.changes.send_replace(());
    }

    async fn run(&mut self, mut up: Up) {
        loop {
            let reason = self.until_broken(&mut up).await;
            warn!(node = %up.live.node, reason, "connection lost");
            self.publish(Status::Down(reason.into()));
            up.close().await;
            up = self.open_at_last().await;
            let counters = &self.shared.counters;
            counters.reconnects.count();
            counters.observers.tell(|observer| observer.on_reconnected(&up.live.node));
            info!(node = %up.live.node, "reconnected");
            self.publish(Status::Up(up.live.clone()));
        }
    }

    /// Waits until the connection is of no use, and returns the reason: it dropped, a PING timed out (the only sign of a half-open
    /// connection), or its server is, or may be, no longer the master.
    async fn until_broken(&self, up: &mut Up) -> &'static str {
        let Up { driver, joined, live } = up;
        let timeout = self.options.response_timeout;
        let heartbeat = async {
            loop {
                time::sleep(heartbeat_interval(&self.options)).await;
                match time::timeout(timeout, live.ping()).await {
                    Ok(Err(error)) if error.is_unrecoverable_error() => return "the connection dropped",
                    Ok(_) => {}
                    Err(_) => return "no answer to a heartbeat",
                }
            }
        };
        let moved = async {
            // A server that was just promoted may need a moment before it takes writes.
            time::sleep(self.options.reconnect_max).await;
            let mut doubted = self.doubted.subscribe();
            let _ = doubted.wait_for(|id| *id == live.id).await;
        };
        select! {
            _ = driver => {
                *joined = true;
                "the connection dropped"
            },
            reason = heartbeat => reason,
            () = moved, if self.discovery.may_move() => "the server refuses writes",
            () = self.discovery.until_moved(&live.node, &self.options) => "another server is the master now",
            never = live.pulse.run() => never,
        }
    }

    /// Connects until it succeeds.
    async fn open_at_last(&mut self) -> Up {
        let mut backoff = RetryDelay::new(self.options.reconnect_min, self.options.reconnect_max);
        loop {
            match self.open().await {
                Ok(up) => return up,
                Err(error) => {
                    debug!(node = self.discovery.name(), %error, "could not connect");
                    self.status.send_replace(Status::Down(Outage::after(&error, self.discovery.name())));
                }
            }
            backoff.wait().await;
        }
    }

    /// Connects once, within the connect timeout.
    async fn open(&mut self) -> Result<Up> {
        let until = Moment::now() + self.options.connect_timeout;
        let address = self.discovery.find_until(until, &self.options).await?;
        let (link, server, driver) =
            link::open_until(until, &address, &self.options, &mut self.probing).await?;
        if let Some(master) = server.master {
            driver.abort();
            let (phase, node, code) = (Phase::Connect, address.node().to_owned(), "READONLY".to_owned());
            return Err(Error::Refused {
                phase,
                node,
                code,
                message: format!("it is a replica of {master}: name the master"),
            });
        }
        let (connection, warned) = (link.connection.clone(), &self.shared.warned);
        match replicas::check_support(connection, address.node(), &self.options, until, warned).await {
            Ok(supported) => {
                let seen = self.shared.seen.clone();
                let run_id = server.run_id.clone();
                let replicas = Replicas::new(address.clone(), run_id, &self.options, seen, supported);
                Ok(self.install(&address, link, server, driver, replicas))
            }
            Err(error) => {
                driver.abort();
                Err(error)
            }
        }
    }

    fn install(
        &mut self,
        address: &Address,
        link: Link,
        server: Server,
        driver: JoinHandle<()>,
        replicas: Arc<Replicas>,
    ) -> Up {
        let node: Arc<str> = address.node().into();
        let known = server.run_id.is_some();
        let data_epoch = match &self.handshake {
            None => {
                self.since = if self.successor { Moment::now() } else { Moment::now() - server.uptime };
                self.shared.next_number()
            }
            Some(last) if known && last.run_id == server.run_id => last.data_epoch,
            Some(last) => {
                // The uptime does not count, because the server may be a promoted replica.
                self.since = Moment::now();
                if known {
                    last.warn_of_change(&node);
                    self.shared.next_number()
                } else {
                    last.data_epoch
                }
            }
        };
        if known || self.handshake.is_none() {
            self.handshake = Some(Handshake { run_id: server.run_id, node: node.clone(), data_epoch });
        }
        let (since, id) = (self.since, self.shared.next_number());
        let live = Arc::new(Live {
            id,
            data_epoch,
            since,
            node,
            address: address.clone(),
            link,
            replicas,
            counters: self.shared.counters.clone(),
            refusal: self.refusal.clone(),
            pulse: Pulse::new(heartbeat_interval(&self.options)),
        });
        Up { driver, joined: false, live }
    }
}
