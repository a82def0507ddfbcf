//! What all handles of a client share: its id, connections, watchdog and lanes.
//!
//! Invariants:
//! 6. The session's tasks own a drop guard: when their runtime ends the session closes, and every waiter, also one on
//!    another runtime, is told.

use crate::config::options::{ENDLESS, Lease, Options, whole_millis};
use crate::connection::pubsub::PubSub;
use crate::connection::{Connection, Servers};
use crate::engine::actor::drive;
use crate::engine::background::Background;
use crate::engine::key_queue::{KeyQueue, Release, Work};
use crate::engine::pending::Pending;
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{LockKind, QueueKey};
use crate::lease::watchdog::Watchdog;
use crate::owner::{OwnerId, entered};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{Reply, Request, Undecodable};
use crate::runtime::in_place::{self, Place, Spawn};
use crate::runtime::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::runtime::sync::task::AbortHandle;
use crate::runtime::sync::{Handle, Mutex, select, time};
use dashmap::DashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use uuid::Uuid;

pub(crate) struct Session {
    /// The client's uuid as text.
    pub id: String,
    /// Another, which no other client has, whatever its user gave it as its id.
    pub mark: Uuid,
    pub options: Options,
    pub connection: Connection,
    pub pubsub: PubSub,
    pub watchdog: Watchdog,
    pub pending: Pending,
    pub background: Background,
    lanes: DashMap<QueueKey, Arc<KeyQueue>>,
    era: AtomicU32,
    closed: AtomicBool,
    process: u32,
    runtime: Handle,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Session {
    /// Connects, and starts the client's tasks on the current runtime.
    pub(crate) async fn connect(servers: Servers, options: Options) -> Result<Arc<Self>> {
        let (connection, supervisor) = Connection::connect(&servers, &options).await?;
        let session = Arc::new(Self {
            id: options.id.to_string(),
            mark: Uuid::new_v4(),
            pubsub: PubSub::default(),
            watchdog: Watchdog::new(options.lease),
            pending: Pending::default(),
            background: Background::default(),
            lanes: DashMap::new(),
            era: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            process: std::process::id(),
            runtime: Handle::current(),
            tasks: Mutex::new(vec![supervisor.abort_handle()]),
            connection,
            options,
        });
        session.spawn(
            session.pubsub.clone().serve(session.connection.places(&servers), session.options.clone()),
        );
        let renewing = session.watchdog.clone().serve(session.connection.clone());
        // Without the supervisor no request would be answered any more, and waiters would retry for ever.
        session.spawn(async move {
            select! {
                () = renewing => {}
                _ = supervisor => {}
            }
        });
        Ok(session)
    }

    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let closing = CloseOnDrop(Arc::downgrade(self));
        let task = self.runtime.spawn(async move {
            let _closing = closing;
            task.await;
        });
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task.abort_handle());
    }

    /// The names of what users know by `name`.
    pub(crate) fn keys(&self, name: &str) -> Result<LockKeys> {
        let keys = LockKeys::new(self.options.map(name))?;
        if self.connection.is_cluster() { keys.in_cluster() } else { Ok(keys) }
    }

    /// Refuses to work in a fork: two processes must not be one client.
    pub(crate) fn check_process(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::misuse("this client was made before a fork: make a new one in the child process"))
    }

    /// Asks for what changes nothing.
    pub(crate) async fn inspect<T>(
        &self,
        request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
    ) -> Result<T> {
        entered()?;
        self.check_process()?;
        self.connection.ask(request, decoded, Phase::Inspect).await
    }

    /// Asks for what must not be done twice: if no answer comes, nobody knows whether it was done.
    pub(crate) async fn ask_once<T>(
        &self,
        mut request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<T> {
        entered()?;
        self.check_process()?;
        match self.connection.call(&mut request).await {
            Ok(answer) => decoded(&answer.reply).map_err(|_| self.connection.strange(phase)),
            Err(failure) if failure.unanswered => {
                Err(Error::Ambiguous { phase, node: self.connection.node().into() })
            }
            Err(failure) => Err(self.connection.error(failure, phase)),
        }
    }

    /// Gives work to the lane of a key. A lane that nobody drives is driven by whoever polls the turn that is returned,
    /// or by a task once that is dropped. Not in a fork: the lanes' tasks are the parent's.
    pub(crate) fn submit<T>(
        self: &Arc<Self>,
        kind: &Arc<dyn LockKind>,
        owner: &OwnerId,
        add: impl FnOnce(&mut Work) -> T,
    ) -> Result<(T, Arc<KeyQueue>, Turn)> {
        self.check_open()?;
        self.give(self.lane(kind.lane(owner)), add, false)
    }

    /// The same for a lane that is known; or for its successor, if it has gone.
    pub(crate) fn submit_to<T>(
        self: &Arc<Self>,
        lane: &Arc<KeyQueue>,
        add: impl FnOnce(&mut Work) -> T,
    ) -> Result<(T, Turn)> {
        self.check_open()?;
        self.give(lane.clone(), add, false).map(|(added, _, turn)| (added, turn))
    }

    /// The same for a release that nobody waits for. A lane that nobody drives is driven by the client's tasks.
    pub(crate) fn release_later(self: &Arc<Self>, lane: &Arc<KeyQueue>, release: Release) -> Result<()> {
        self.check_open()?;
        self.give(lane.clone(), |work| work.releases.push_back(release), true).map(drop)
    }

    /// Runs `task` on the client's runtime.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(self.closed_error(Phase::Acquire)) } else { Ok(()) }
    }

    fn give<T>(
        self: &Arc<Self>,
        mut lane: Arc<KeyQueue>,
        add: impl FnOnce(&mut Work) -> T,
        in_background: bool,
    ) -> Result<(T, Arc<KeyQueue>, Turn)> {
        let (added, turn) = loop {
            let mut work = lane.work();
            if !work.removed {
                let added = add(&mut work);
                if in_background && !work.driven {
                    drop(work);
                    Background::give_back(self, lane.clone());
                    break (added, Turn::new(None));
                }
                if !std::mem::replace(&mut work.driven, true) {
                    let place = Place::new(ActorInHand::new(self, &lane));
                    work.place = Some(place.clone());
                    break (added, Turn::new(Some(place)));
                }
                let (place, nudge) = (work.place.take(), !work.is_one_more());
                drop(work);
                if let Some(place) = place {
                    place.want();
                }
                if nudge {
                    lane.signal.nudge();
                }
                break (added, Turn::new(None));
            }
            drop(work);
            self.remove(&lane);
            self.check_open()?;
            lane = self.lane(lane.key.clone());
        };
        if self.is_closed() {
            // Closed meanwhile: what was added may have come after the lane was emptied.
            empty(&lane);
        }
        Ok((added, lane, turn))
    }

    pub(crate) fn lane(self: &Arc<Self>, key: QueueKey) -> Arc<KeyQueue> {
        self.lanes.entry(key.clone()).or_insert_with(|| KeyQueue::new(Arc::downgrade(self), key)).clone()
    }

    /// The lane of that key, if there is something to do or held on it.
    pub(crate) fn existing_lane(&self, key: &QueueKey) -> Option<Arc<KeyQueue>> {
        self.lanes.get(key).map(|lane| lane.clone())
    }

    /// Takes a lane that has nothing left to do out of the table. Its `removed` is set, and its lock not held.
    pub(crate) fn remove(&self, lane: &Arc<KeyQueue>) {
        self.lanes.remove_if(&lane.key, |_, listed| Arc::ptr_eq(listed, lane));
    }

    /// How long a hold of that lease lasts unless it is renewed.
    pub(crate) fn length(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Watchdog => self.options.lease,
            Lease::Fixed(lease) => whole_millis(lease),
            Lease::Endless => ENDLESS,
        }
    }

    /// The era that the texts of new holds carry.
    pub(crate) fn era(&self) -> u32 {
        self.era.load(Ordering::Acquire)
    }

    /// From now on no text that was used before is used for a new hold.
    ///
    /// Called whenever a request went unanswered or a hold was lost: a dead connection may still deliver something
    /// for a text, or its release is still on its way, and an expected count cannot tell an old hold from a new one.
    pub(crate) fn retire_texts(&self) {
        self.era.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn closed_error(&self, phase: Phase) -> Error {
        Error::Unavailable {
            phase,
            node: self.connection.node().into(),
            reason: "the client is closed".into(),
        }
    }

    /// Sends those away who wait in a queue of Redis' own, and leaves their places there. They are told that the client is
    /// closed; true if there are any.
    pub(crate) fn leave_queues(&self) -> bool {
        let lanes: Vec<_> = self.lanes.iter().map(|lane| lane.clone()).collect();
        let mut left = false;
        for lane in lanes {
            // Their senders drop outside of the lock, and so tell them.
            let waiters = lane.work().leave_queue();
            left |= !waiters.is_empty();
            lane.signal.nudge();
        }
        left
    }

    /// Closes the session when it is dropped.
    pub(crate) fn closing(self: &Arc<Self>) -> impl Drop + use<> {
        CloseOnDrop(Arc::downgrade(self))
    }

    /// Waits until no lane has anything left to release, at most for the response timeout. By the caller's timers: the
    /// client's own runtime may not be running.
    pub(crate) async fn wait_for_releases(&self) {
        let idle = async {
            while self.lanes.iter().any(|lane| lane.work().is_releasing()) {
                time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = time::timeout(self.options.response_timeout, idle).await;
    }

    /// Stops everything at once. What is held is freed by its lease.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let lanes: Vec<_> = self.lanes.iter().map(|lane| lane.clone()).collect();
        lanes.iter().for_each(empty);
        self.abort_tasks();
    }

    fn abort_tasks(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abort_tasks();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("node", &self.connection.node())
            .field("lanes", &self.lanes.len())
            .finish()
    }
}

/// Tells those who want something of a lane of a closed session that nothing comes of it.
fn empty(lane: &Arc<KeyQueue>) {
    let (waiters, releases, hold) = {
        let mut work = lane.work();
        let hold = work.current.as_ref().map(|current| current.hold.clone());
        (std::mem::take(&mut work.waiters), std::mem::take(&mut work.releases), hold)
    };
    // Their senders drop here, outside of the lock, and so tell them.
    drop((waiters, releases));
    lane.signal.nudge();
    if let Some(hold) = hold {
        hold.doubt(LossReason::Expired);
    }
}

/// Closes the session when the task that owns it ends.
struct CloseOnDrop(Weak<Session>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(session) = self.0.upgrade() {
            session.close();
        }
    }
}

/// What a caller drives of what it gave to a lane.
pub(crate) type Turn = in_place::Turn<ActorInHand>;

/// A driver at work; one that ends before its work is done (its runtime ended) closes the session.
pub(crate) struct ActorInHand {
    lane: Arc<KeyQueue>,
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    done: bool,
}

impl ActorInHand {
    fn new(session: &Arc<Session>, lane: &Arc<KeyQueue>) -> Self {
        Self { lane: lane.clone(), driver: drive(session.clone(), lane.clone()), done: false }
    }

    /// Of a lane that has something to give back and is driven by nobody.
    pub(crate) fn of_idle(session: &Arc<Session>, lane: &Arc<KeyQueue>) -> Option<Self> {
        let mut work = lane.work();
        let idle = !work.driven && !work.removed && !work.releases.is_empty();
        idle.then(|| {
            work.driven = true;
            Self::new(session, lane)
        })
    }

    /// Leaves the work that is not done to a task of its own.
    pub(crate) fn go_on(self) {
        if !self.done {
            self.spawn();
        }
    }
}

impl Spawn for ActorInHand {
    /// On the client's runtime. Were the session gone, there would be nothing to drive.
    fn spawn(self) {
        if let Some(session) = self.lane.session.upgrade() {
            session.runtime.spawn(self);
        }
    }
}

impl Future for ActorInHand {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.done = self.driver.as_mut().poll(cx).is_ready();
        if self.done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ActorInHand {
    fn drop(&mut self) {
        if !self.done {
            self.lane.work().driven = false;
            if let Some(session) = self.lane.session.upgrade() {
                session.close();
            }
            empty(&self.lane);
        }
    }
}
