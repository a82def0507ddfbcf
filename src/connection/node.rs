//! One server, or the master of a group of servers, kept connected to by a supervisor.
//!
//! Invariant 3: the old socket is closed before a new one is opened, so that nothing more of ours enters it.

use super::discovery::Discovery;
use super::link::{self, Link};
use super::replicas::{self, Replicas, Seen};
use super::server::Server;
use super::{Address, Backoff};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{Mutex, select, time};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tracing::{debug, info, warn};

const LOOK: Duration = Duration::from_secs(1);

/// A server that is reconnected to. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// As errors name it while there is no connection.
    pub name: Arc<str>,
    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub finder: Arc<Discovery>,
    status: watch::Receiver<Status>,
    /// The connection of that epoch.
    doubted: watch::Sender<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Status {
    Up(Live),
    Down { reason: Arc<str> },
}

/// A connection that is up.
#[derive(Clone, Debug)]
pub(super) struct Live {
    /// Of the socket: each has its own.
    pub epoch: u64,
    /// Of the server's data, as far as can be told: another when another server, or this one started anew, answers.
    pub life: u64,
    /// The server may have lost what was written before, and not what was written since.
    pub since: Moment,
    pub node: Arc<str>,
    pub address: Arc<Address>,
    pub link: Link,
    pub replicas: Arc<Replicas>,
    /// The node's, whatever connection it has.
    unwilling: Arc<Mutex<Option<TransientRefusal>>>,
    end: Arc<End>,
}

/// That the server said "not now", and how.
#[derive(Clone, Debug)]
pub(super) struct TransientRefusal {
    at: Moment,
    pub code: String,
    pub message: String,
}

/// That of a connection. What was handed to the redis crate at that very moment is never answered, not even with an error.
#[derive(Debug, Default)]
struct End {
    came: AtomicBool,
    told: Notify,
}

impl Live {
    pub(super) fn refused(&self, code: &str, message: &str) {
        let unwilling =
            TransientRefusal { at: Moment::now(), code: code.to_owned(), message: message.to_owned() };
        *self.unwilling.lock().unwrap_or_else(PoisonError::into_inner) = Some(unwilling);
    }

    /// The last of it, if it was not before `since`.
    pub(super) fn unwilling(&self, since: Moment) -> Option<TransientRefusal> {
        let last = self.unwilling.lock().unwrap_or_else(PoisonError::into_inner).clone();
        last.filter(|unwilling| unwilling.at >= since)
    }

    /// Ends when the connection has.
    pub(super) async fn ended(&self) {
        let told = self.end.told.notified();
        if !self.end.came.load(Ordering::SeqCst) {
            told.await;
        }
    }
}

/// What the nodes of one client share: numbers that are drawn once, the news that some node went down or came up, and which
/// masters had replicas.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    numbers: Arc<AtomicU64>,
    changes: watch::Sender<()>,
    seen: Seen,
    /// That replicas can't be asked for was said.
    pub warned: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            numbers: Arc::new(AtomicU64::new(1)),
            changes: watch::Sender::new(()),
            seen: Seen::default(),
            warned: Arc::default(),
        }
    }

    pub(super) fn changed(&self) {
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn draw(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Node {
    /// Connects, and starts the supervisor on the current runtime.
    pub(super) async fn connect(
        finder: Discovery,
        options: &Options,
        shared: &Shared,
    ) -> Result<(Self, JoinHandle<()>)> {
        let mut supervisor = Supervisor::new(finder, options, shared);
        let up = supervisor.open().await?;
        supervisor.tell(Status::Up(up.live.clone()));
        Ok((supervisor.node(), task::spawn(async move { supervisor.run(up).await })))
    }

    /// Starts the supervisor on the current runtime, which then connects. The server is an `heir` if it may have come in for
    /// another whose data it has.
    pub(super) fn start(
        finder: Discovery,
        options: &Options,
        shared: &Shared,
        heir: bool,
    ) -> (Self, JoinHandle<()>) {
        let mut supervisor = Supervisor { heir, ..Supervisor::new(finder, options, shared) };
        let node = supervisor.node();
        let keeping = async move {
            let up = supervisor.reopen().await;
            supervisor.run(up).await;
        };
        (node, task::spawn(keeping))
    }

    /// The connection, if it is another than the one of epoch `dead`; or why there is none.
    pub(super) fn usable(&self, dead: u64) -> Result<Live, Arc<str>> {
        match &*self.status.borrow() {
            Status::Up(live) if live.epoch != dead => Ok(live.clone()),
            Status::Up(_) => Err("the connection dropped".into()),
            Status::Down { reason } => Err(reason.clone()),
        }
    }

    /// The server at the other end of that connection says that it does not take writes: another may do so by now.
    pub(super) fn doubt(&self, epoch: u64) {
        self.doubted.send_replace(epoch);
    }
}

/// Keeps a node connected.
struct Supervisor {
    finder: Discovery,
    options: Options,
    status: watch::Sender<Status>,
    shared: Shared,
    doubted: watch::Sender<u64>,
    unwilling: Arc<Mutex<Option<TransientRefusal>>>,
    /// Who answered last, in which life of its data.
    met: Option<(Server, u64)>,
    since: Moment,
    /// It may not have all that another had before, however long it has been running.
    heir: bool,
    /// No connection has died of the probe for ways around Lua yet.
    probing: bool,
}

/// A connection that is up, and the task that drives it.
struct Up {
    driver: JoinHandle<()>,
    live: Live,
}

impl Up {
    /// Closes the socket, at the latest when it is not polled any more.
    fn end(&self) {
        self.driver.abort();
        // What is known of the node may outlive its keeper.
        self.live.replicas.end();
        self.live.end.came.store(true, Ordering::SeqCst);
        self.live.end.told.notify_waiters();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.end();
    }
}

impl Supervisor {
    fn new(finder: Discovery, options: &Options, shared: &Shared) -> Self {
        Self {
            status: watch::Sender::new(Status::Down { reason: "not connected yet".into() }),
            finder,
            options: options.clone(),
            shared: shared.clone(),
            doubted: watch::Sender::new(0),
            unwilling: Arc::default(),
            met: None,
            since: Moment::now(),
            heir: false,
            probing: true,
        }
    }

    fn node(&self) -> Node {
        Node {
            name: self.finder.name().into(),
            finder: Arc::new(self.finder.clone()),
            status: self.status.subscribe(),
            doubted: self.doubted.clone(),
        }
    }

    fn tell(&self, status: Status) {
        self.status.send_replace(status);
        self.shared.changes.send_replace(());
    }

    async fn run(&mut self, mut up: Up) {
        loop {
            let reason = self.until_broken(&mut up).await;
            warn!(node = %up.live.node, reason, "connection lost");
            self.tell(Status::Down { reason: reason.into() });
            // The socket is closed once the driver is gone.
            up.end();
            while !up.driver.is_finished() {
                task::yield_now().await;
            }
            up = self.reopen().await;
        }
    }

    /// Ends when the connection drops, or does not answer a PING in time (a half-open link tells nothing else), or
    /// leads to a server that is not, or may not be, the master any more.
    async fn until_broken(&self, up: &mut Up) -> &'static str {
        let Up { driver, live } = up;
        let timeout = self.options.response_timeout;
        let heartbeat = async {
            loop {
                time::sleep((timeout / 4).min(LOOK)).await;
                let ping = redis::cmd("PING");
                match time::timeout(timeout, live.link.connection.send_packed_command(&ping)).await {
                    Ok(Err(error)) if error.is_unrecoverable_error() => return "the connection dropped",
                    Ok(_) => {}
                    Err(_) => return "no answer to a heartbeat",
                }
            }
        };
        let moved = async {
            // One that has just been found is given time to become what it is said to be.
            time::sleep(self.options.reconnect_max).await;
            let mut doubted = self.doubted.subscribe();
            let _ = doubted.wait_for(|epoch| *epoch == live.epoch).await;
        };
        select! {
            _ = driver => "the connection dropped",
            reason = heartbeat => reason,
            () = moved, if self.finder.may_move() => "the server does not take writes",
            () = self.finder.moved(&live.node, &self.options) => "another server is the master now",
        }
    }

    async fn reopen(&mut self) -> Up {
        let mut backoff = Backoff::new(self.options.reconnect_min, self.options.reconnect_max);
        loop {
            match self.open().await {
                Ok(up) => {
                    let Live { node, epoch, life, .. } = &up.live;
                    info!(%node, epoch, life, "reconnected");
                    self.tell(Status::Up(up.live.clone()));
                    return up;
                }
                Err(error) => {
                    debug!(node = self.finder.name(), %error, "could not connect");
                    self.status.send_replace(Status::Down { reason: error.to_string().into() });
                }
            }
            backoff.wait().await;
        }
    }

    /// Connects once, within the connect timeout.
    async fn open(&mut self) -> Result<Up> {
        let until = Moment::now() + self.options.connect_timeout;
        let address = self.finder.find_until(until, &self.options).await?;
        let (link, server, driver) =
            link::open_until(until, &address, &self.options, &mut self.probing).await?;
        if let Some(master) = server.master {
            driver.abort();
            let (phase, node, code) = (Phase::Connect, address.node().to_owned(), "READONLY".to_owned());
            return Err(Error::Refused {
                phase,
                node,
                code,
                message: format!("it is a replica of {master}"),
            });
        }
        let until = Moment::now() + self.options.connect_timeout;
        let (connection, warned) = (link.connection.clone(), &self.shared.warned);
        match replicas::tell(connection, address.node(), &self.options, until, warned).await {
            Ok(tell) => {
                let seen = self.shared.seen.clone();
                let run_id = server.run_id.clone();
                let replicas = Replicas::new(address.clone(), run_id, &self.options, seen, tell);
                Ok(self.met(&address, link, server, driver, replicas))
            }
            Err(error) => {
                driver.abort();
                Err(error)
            }
        }
    }

    fn met(
        &mut self,
        address: &Address,
        link: Link,
        server: Server,
        driver: JoinHandle<()>,
        replicas: Arc<Replicas>,
    ) -> Up {
        let known = server.run_id.is_some();
        let life = match &self.met {
            None => {
                self.since = if self.heir { Moment::now() } else { Moment::now() - server.uptime };
                self.shared.draw()
            }
            Some((met, life)) if known && met.run_id == server.run_id => *life,
            Some((_, life)) => {
                // However long it has been running: it may be a replica that came in for another.
                self.since = Moment::now();
                if known {
                    warn!(node = address.node(), "the server is another, or was started anew");
                    self.shared.draw()
                } else {
                    *life
                }
            }
        };
        if known || self.met.is_none() {
            self.met = Some((server, life));
        }
        let (since, epoch) = (self.since, self.shared.draw());
        let live = Live {
            epoch,
            life,
            since,
            node: address.node().into(),
            address: Arc::new(address.clone()),
            link,
            replicas,
            unwilling: self.unwilling.clone(),
            end: Arc::default(),
        };
        Up { driver, live }
    }
}
