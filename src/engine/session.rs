//! The session of a client, which all its handles share: id, connections, watchdog and key queues.
//!
//! Invariant: the session's tasks own a drop guard. When their runtime ends, the session closes, and every wait ends with an error,
//! including waits on other runtimes.

use crate::config::options::{ENDLESS, Lease, Options, whole_millis};
use crate::connection::pubsub::PubSub;
use crate::connection::{Connection, Servers};
use crate::engine::actor::run_actor;
use crate::engine::background::Background;
use crate::engine::key_queue::{KeyQueue, Release, Work};
use crate::engine::pending::Pending;
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{LockKind, QueueKey};
use crate::lease::watchdog::Watchdog;
use crate::owner::{LocalOwner, entered};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{Reply, Request, Undecodable};
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::runtime::sync::task::AbortHandle;
use crate::runtime::sync::{Handle, select, time};
use dashmap::DashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use uuid::Uuid;

/// The maximum number of other readers that the request of a read release names.
const OTHER_READERS: usize = 100;

pub(crate) struct Session {
    /// The client's uuid as a string.
    pub id: String,
    /// A uuid that no other client has, even if its user gave it the same id.
    pub instance: Uuid,
    pub options: Options,
    pub connection: Connection,
    pub pubsub: PubSub,
    pub watchdog: Watchdog,
    pub pending: Pending,
    pub background: Background,
    queues: DashMap<QueueKey, Arc<KeyQueue>>,
    /// The queues of readers among these, by their record.
    readers: DashMap<Arc<str>, Vec<Arc<KeyQueue>>>,
    /// The generation of the owner ids of new holds.
    generation: AtomicU32,
    closed: AtomicBool,
    /// The process that made the client, to recognise a fork.
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
            instance: Uuid::new_v4(),
            pubsub: PubSub::default(),
            watchdog: Watchdog::new(options.lease),
            pending: Pending::default(),
            background: Background::default(),
            queues: DashMap::new(),
            readers: DashMap::new(),
            generation: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            process: std::process::id(),
            runtime: Handle::current(),
            tasks: Mutex::new(vec![supervisor.abort_handle()]),
            connection,
            options,
        });
        session.spawn(
            session.pubsub.clone().serve(session.connection.endpoints(&servers), session.options.clone()),
        );
        let renewing = session.watchdog.clone().serve(session.connection.clone());
        // Without the supervisor no request would get a reply, and waiters would retry for ever. So its end closes the session.
        session.spawn(async move {
            select! {
                () = renewing => {}
                _ = supervisor => {}
            }
        });
        Ok(session)
    }

    /// Runs a task that closes the session when it ends.
    fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let closing = CloseOnDrop(Arc::downgrade(self));
        let task = self.runtime.spawn(async move {
            let _closing = closing;
            task.await;
        });
        self.tasks.lock().push(task.abort_handle());
    }

    /// The keys of the object that users know as `name`.
    pub(crate) fn keys(&self, name: &str) -> Result<LockKeys> {
        let keys = LockKeys::new(self.options.map(name))?;
        if self.connection.is_cluster() { keys.in_cluster() } else { Ok(keys) }
    }

    /// Fails in a forked child, because two processes must not act as one client.
    pub(crate) fn check_process(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::misuse("this client was made before a fork: connect a new client in the child process"))
    }

    /// Sends a request that is harmless to repeat.
    pub(crate) async fn inspect<T>(
        &self,
        request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
    ) -> Result<T> {
        entered()?;
        self.check_process()?;
        self.connection.ask(request, decoded, Phase::Inspect).await
    }

    /// Sends a request that must not take effect twice. Without a reply, its effect is unknown, and the error says so.
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

    /// Adds work to the key queue of `kind` and `owner`. Fails in a forked child, because the tasks are the parent's.
    pub(crate) fn submit<T>(
        self: &Arc<Self>,
        kind: &Arc<dyn LockKind>,
        owner: &LocalOwner,
        add: impl FnOnce(&mut Work) -> T,
    ) -> Result<(T, Arc<KeyQueue>)> {
        self.check_open()?;
        self.add_work(self.queue(kind.queue(owner)), add, false)
    }

    /// The same for a known queue, or for the queue that has replaced it in the table.
    pub(crate) fn submit_to<T>(
        self: &Arc<Self>,
        queue: &Arc<KeyQueue>,
        add: impl FnOnce(&mut Work) -> T,
    ) -> Result<T> {
        self.check_open()?;
        self.add_work(queue.clone(), add, false).map(|(added, _)| added)
    }

    /// The same for a release that nobody waits for. If the queue has no actor, the client's tasks run one.
    pub(crate) fn release_later(self: &Arc<Self>, queue: &Arc<KeyQueue>, release: Release) -> Result<()> {
        self.check_open()?;
        self.add_work(queue.clone(), |work| work.releases.push_back(release), true).map(drop)
    }

    /// Runs `task` on the client's runtime.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(self.closed_error(Phase::Acquire)) } else { Ok(()) }
    }

    /// Adds work to a key queue that is in the table, and makes sure that an actor serves it.
    fn add_work<T>(
        self: &Arc<Self>,
        mut queue: Arc<KeyQueue>,
        add: impl FnOnce(&mut Work) -> T,
        in_background: bool,
    ) -> Result<(T, Arc<KeyQueue>)> {
        let added = loop {
            let mut work = queue.work();
            if !work.removed {
                let added = add(&mut work);
                if in_background && !work.has_actor {
                    drop(work);
                    Background::serve(self, queue.clone());
                } else if !work.has_actor || self.is_closed() || !work.only_joins() {
                    self.wake_actor(&queue, work);
                }
                break added;
            }
            drop(work);
            self.remove(&queue);
            self.check_open()?;
            queue = self.queue(queue.key.clone());
        };
        Ok((added, queue))
    }

    /// Wakes the actor of a key queue, or starts one.
    pub(crate) fn wake_actor(self: &Arc<Self>, queue: &Arc<KeyQueue>, mut work: MutexGuard<'_, Work>) {
        let has_actor = std::mem::replace(&mut work.has_actor, true);
        drop(work);
        match has_actor {
            true => queue.signal.nudge(),
            false => RunningActor::new(self, queue).spawn(),
        }
        if self.is_closed() {
            // The session was closed meanwhile, and `close` may have emptied the queue before its work was added.
            drop_work(queue);
        }
    }

    /// The key queue of `key`, which is made if there is none.
    pub(crate) fn queue(self: &Arc<Self>, key: QueueKey) -> Arc<KeyQueue> {
        let new = || {
            let queue = KeyQueue::new(Arc::downgrade(self), key.clone());
            if let QueueKey::Reader(part) = &key {
                self.readers.entry(part.record.clone()).or_default().push(queue.clone());
            }
            queue
        };
        self.queues.entry(key.clone()).or_insert_with(new).clone()
    }

    /// The key queue of `key`, if it has work or a hold.
    pub(crate) fn existing_queue(&self, key: &QueueKey) -> Option<Arc<KeyQueue>> {
        self.queues.get(key).map(|queue| queue.clone())
    }

    /// Removes a key queue from the table. Its `removed` must be set, and its mutex must not be locked.
    pub(crate) fn remove(&self, queue: &Arc<KeyQueue>) {
        let removed = self.queues.remove_if(&queue.key, |_, listed| Arc::ptr_eq(listed, queue));
        if removed.is_some() && matches!(queue.key, QueueKey::Reader(_)) {
            self.readers.remove_if_mut(queue.record(), |_, readers| {
                readers.retain(|reader| !Arc::ptr_eq(reader, queue));
                readers.is_empty()
            });
        }
    }

    /// The owner ids of other readers of this client that the record of the reader's queue `queue` names, or may name. There are at
    /// most [`OTHER_READERS`], because each adds a key to a request.
    pub(crate) fn other_readers(&self, queue: &Arc<KeyQueue>) -> Vec<Arc<str>> {
        if !matches!(queue.key, QueueKey::Reader(_)) {
            return Vec::new();
        }
        // Copied, because a queue's mutex must not be locked under a lock of the table.
        let others: Vec<_> = self.readers.get(queue.record()).map_or_else(Vec::new, |readers| {
            readers.iter().filter(|reader| !Arc::ptr_eq(reader, queue)).take(OTHER_READERS).cloned().collect()
        });
        let named = |reader: &Arc<KeyQueue>| {
            let work = reader.work();
            let current = work.current.as_ref().map(|current| &current.hold.owner_id);
            current.or(work.in_flight.as_ref()).cloned()
        };
        others.iter().filter_map(named).collect()
    }

    /// How long a hold with this lease lasts unless it is renewed.
    pub(crate) fn length(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Watchdog => self.options.lease,
            Lease::Fixed(lease) => whole_millis(lease),
            Lease::Endless => ENDLESS,
        }
    }

    /// The generation that the owner ids of new holds carry.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Starts a new generation: from now on no earlier owner id is used for a new hold.
    ///
    /// Called whenever a request went unanswered or a hold was lost. A dead connection may still deliver a request for an earlier
    /// id, or the release of that id has not been sent yet, and an expected count does not distinguish an old
    /// hold from a new one.
    pub(crate) fn rotate_owner_ids(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
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

    /// Ends the waits in Redis's queues with an error, and queues the removal of their entries there. Returns whether there were any.
    pub(crate) fn evict_queued_waiters(&self) -> bool {
        let queues: Vec<_> = self.queues.iter().map(|queue| queue.clone()).collect();
        let mut left = false;
        for queue in queues {
            // Dropping the waiters' senders ends their waits. This happens after the mutex is unlocked.
            let waiters = queue.work().evict_queued();
            left |= !waiters.is_empty();
            queue.signal.nudge();
        }
        left
    }

    /// Closes the session when it is dropped.
    pub(crate) fn closing(self: &Arc<Self>) -> impl Drop + use<> {
        CloseOnDrop(Arc::downgrade(self))
    }

    /// Waits until no key queue has a release left, for at most the response timeout. Uses timers of the caller's runtime, because
    /// the client's runtime may not be running.
    pub(crate) async fn wait_for_releases(&self) {
        let idle = async {
            while self.queues.iter().any(|queue| queue.work().is_releasing()) {
                time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = time::timeout(self.options.response_timeout, idle).await;
    }

    /// Stops everything at once. Locks that are still held are freed when their leases end.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let queues: Vec<_> = self.queues.iter().map(|queue| queue.clone()).collect();
        queues.iter().for_each(drop_work);
        self.abort_tasks();
    }

    fn abort_tasks(&self) {
        for task in self.tasks.lock().drain(..) {
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
            .field("readers", &self.readers.len())
            .field("queues", &self.queues.len())
            .finish()
    }
}

/// Drops the work of a closed session's key queue, and puts its hold in doubt.
fn drop_work(queue: &Arc<KeyQueue>) {
    let (waiters, releases, hold) = {
        let mut work = queue.work();
        let hold = work.current.as_ref().map(|current| current.hold.clone());
        (std::mem::take(&mut work.waiters), std::mem::take(&mut work.releases), hold)
    };
    // Dropping the senders ends the calls that wait for them. The mutex is not locked here.
    drop((waiters, releases));
    queue.signal.nudge();
    if let Some(hold) = hold {
        hold.doubt(LossReason::Expired);
    }
}

/// Closes the session when dropped.
struct CloseOnDrop(Weak<Session>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(session) = self.0.upgrade() {
            session.close();
        }
    }
}

/// A running actor. If it is dropped before its work is done, because its runtime ended, it closes the session.
pub(crate) struct RunningActor {
    queue: Arc<KeyQueue>,
    actor: Pin<Box<dyn Future<Output = ()> + Send>>,
    done: bool,
}

impl RunningActor {
    fn new(session: &Arc<Session>, queue: &Arc<KeyQueue>) -> Self {
        Self { queue: queue.clone(), actor: run_actor(session.clone(), queue.clone()), done: false }
    }

    /// An actor for a key queue that has releases and no actor.
    pub(crate) fn for_idle(session: &Arc<Session>, queue: &Arc<KeyQueue>) -> Option<Self> {
        let mut work = queue.work();
        let idle = !work.has_actor && !work.removed && !work.releases.is_empty();
        idle.then(|| {
            work.has_actor = true;
            Self::new(session, queue)
        })
    }

    /// Moves the actor to a task of its own, on the client's runtime, unless its work is done. If the session is gone, there is no
    /// work left.
    pub(crate) fn spawn(self) {
        if !self.done
            && let Some(session) = self.queue.session.upgrade()
        {
            session.runtime.spawn(self);
        }
    }
}

impl Future for RunningActor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.done = self.actor.as_mut().poll(cx).is_ready();
        if self.done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for RunningActor {
    fn drop(&mut self) {
        if !self.done {
            self.queue.work().has_actor = false;
            if let Some(session) = self.queue.session.upgrade() {
                session.close();
            }
            drop_work(&self.queue);
        }
    }
}
