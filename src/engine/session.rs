//! The session of a client, which all its handles share: id, connections, watchdog and key queues.
//!
//! Acquires, re-entries, releases and hand-offs of one key are sent one at a time. A caller that is alone at the key, or hands the lock to a
//! waiter, sends its own request (`direct.rs`). Otherwise callers only add work to the key queue, and the key actor (`actor.rs`) sends it.
//! If a caller is dropped, the actor completes or undoes its request. So the client knows the hold count in the record.
//!
//! Invariant: the session's tasks own a drop guard. When their runtime ends, the session closes, and every wait ends with an error,
//! including waits on other runtimes.

use crate::config::options::{ENDLESS, Lease, Options, whole_millis};
use crate::connection::pubsub::PubSub;
use crate::connection::{Connection, Topology};
use crate::engine::key_queue::{KeyQueue, Listed};
use crate::engine::queue_id::QueueId;
use crate::engine::readers::Readers;
use crate::engine::releases::{Release, ReleasedLevel};
use crate::engine::spared::Spared;
use crate::engine::work::Work;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::{Access, LockKind};
use crate::lease::hold::{Hold, Listeners, LossHandler};
use crate::lease::watchdog::Watchdog;
use crate::owner::{LocalOwner, OwnerIds};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::runtime::sync::task::{AbortHandle, JoinHandle};
use crate::runtime::sync::{Handle, select, time};
use crate::stats::Counters;
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use uuid::Uuid;

pub(crate) struct Session {
    /// The client's uuid as a string.
    pub id: String,
    /// A uuid that no other client has, even if its user gave it the same id.
    pub instance: Uuid,
    pub options: Options,
    pub counters: Arc<Counters>,
    pub connection: Connection,
    pub pubsub: PubSub,
    pub watchdog: Watchdog,
    /// The listeners of all holds.
    pub listeners: Arc<Listeners>,
    pub spared: Spared,
    /// A map and not a set, because only a map has entries.
    queues: DashMap<Listed, ()>,
    /// The queues of readers among these.
    pub readers: Readers,
    /// The generation of the owner ids of new holds.
    generation: AtomicU32,
    owner_ids: OwnerIds,
    closed: AtomicBool,
    /// Recognises a fork of the process that made the client.
    fork: forkguard::Guard,
    runtime: Handle,
    tasks: Mutex<Vec<AbortHandle>>,
    /// The key queues that need an actor, see [`Unserved`].
    unserved: UnboundedSender<Unserved>,
}

/// A key queue that needs an actor: for releases, or to remove a hold that has ended. Its session lives at least until that is done.
pub(crate) type Unserved = (Arc<Session>, Arc<KeyQueue>);

impl Session {
    /// Starts the tasks of the connection, whose `supervisor` runs, on the current runtime. The receiver yields the key queues that need an
    /// actor.
    pub(crate) fn start(
        servers: &Topology,
        options: Options,
        (connection, supervisor): (Connection, JoinHandle<()>),
    ) -> (Arc<Self>, UnboundedReceiver<Unserved>) {
        let (sender, unserved) = mpsc::unbounded_channel();
        let session = Arc::new_cyclic(|session: &Weak<Self>| Self {
            id: options.id.to_string(),
            instance: Uuid::new_v4(),
            pubsub: PubSub::default(),
            watchdog: Watchdog::new(&options, connection.counters()),
            counters: connection.counters().clone(),
            listeners: Arc::new(Listeners {
                counters: connection.counters().clone(),
                loss_handler: session.clone(),
            }),
            spared: Spared::default(),
            queues: DashMap::new(),
            readers: Readers::default(),
            generation: AtomicU32::new(0),
            owner_ids: OwnerIds::new(),
            closed: AtomicBool::new(false),
            fork: forkguard::new(),
            runtime: Handle::current(),
            tasks: Mutex::new(vec![supervisor.abort_handle()]),
            connection,
            options,
            unserved: sender,
        });
        session.spawn_essential(
            session.pubsub.clone().serve(session.connection.endpoints(servers), session.options.clone()),
        );
        let renewing = session.watchdog.clone().serve(session.connection.clone());
        // Without the supervisor no request would get a reply, and waiters would retry forever. So its end closes the session.
        session.spawn_essential(async move {
            select! {
                () = renewing => {}
                _ = supervisor => {}
            }
        });
        (session, unserved)
    }

    /// Spawns a task without which the client cannot work: the session closes when it ends.
    pub(crate) fn spawn_essential(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let closing = CloseOnDrop(Arc::downgrade(self));
        let task = self.runtime.spawn(async move {
            let _closing = closing;
            task.await;
        });
        self.tasks.lock().push(task.abort_handle());
    }

    /// Fails in a forked child, because two processes must not act as one client.
    pub(crate) fn check_process(&self) -> Result<()> {
        // A copy, because a guard reports a fork only once.
        if !self.fork.clone().detected_fork() {
            return Ok(());
        }
        Err(Error::misuse("this client was made before a fork: connect a new client in the child process"))
    }

    /// Spawns a task on the client's runtime.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Fails in a forked child process, and once the client is closed.
    pub(crate) fn check_open(&self, phase: Phase) -> Result<()> {
        self.check_process()?;
        if self.is_closed() { Err(Error::Closed { phase }) } else { Ok(()) }
    }

    /// Adds work to a key queue, or to the queue that has replaced it in the table. `serve` sees to it that an actor does the work.
    /// If the session is closed, the work is dropped. The caller has checked the process.
    pub(crate) fn add_work<T>(
        self: &Arc<Self>,
        mut queue: Arc<KeyQueue>,
        add: impl FnOnce(&mut Work) -> T,
        serve: impl FnOnce(&Arc<KeyQueue>, MutexGuard<'_, Work>),
    ) -> T {
        let added = loop {
            let mut work = queue.work();
            if !work.removed {
                let added = add(&mut work);
                serve(&queue, work);
                break added;
            }
            drop(work);
            self.remove(&queue);
            queue = self.queue_with(queue.id.clone());
        };
        if self.is_closed() {
            // `close` may have emptied the queue before its work was added.
            queue.drop_work();
        }
        added
    }

    /// Adds releases that nobody waits for. If the queue has no actor, one of a bounded number of tasks serves it (`background.rs`).
    /// A forked child adds none, because the tasks are the parent's.
    pub(crate) fn release_later(self: &Arc<Self>, queue: Arc<KeyQueue>, add: impl FnOnce(&mut Work)) {
        if self.check_process().is_ok() {
            self.add_work(queue, add, |queue, work| self.serve_later(queue, work));
        }
    }

    /// Makes sure that an actor sends the releases of a key queue, and removes a hold that has ended.
    fn serve_later(self: &Arc<Self>, queue: &Arc<KeyQueue>, work: MutexGuard<'_, Work>) {
        if work.has_actor {
            drop(work);
            queue.signal.nudge();
        } else if work.needs_cleanup() {
            drop(work);
            // Without its receiver the session is closed.
            let _ = self.unserved.send((self.clone(), queue.clone()));
        }
    }

    /// Releases a level without waiting for the outcome: that of a dropped guard, or of a grant that nobody took.
    pub(crate) fn return_level(self: &Arc<Self>, queue: &Arc<KeyQueue>, level: ReleasedLevel) {
        // A lost hold needs no release here: its loss handler has queued the release of its owner id. A gate is not held.
        if level.hold.kind.traits().access == Access::Gate || !level.hold.state().is_live() {
            return;
        }
        if self.is_closed() {
            level.hold.abandon();
        } else {
            self.release_later(queue.clone(), |work| work.queue_release(level));
        }
    }

    /// The key queue for the requests of `owner` for `kind`. It is made if there is none.
    pub(crate) fn queue(self: &Arc<Self>, kind: &dyn LockKind, owner: &LocalOwner) -> Arc<KeyQueue> {
        self.queue_with(QueueId::of(kind, owner))
    }

    /// The key queue with this id. It is made if there is none.
    pub(crate) fn queue_with(self: &Arc<Self>, id: QueueId) -> Arc<KeyQueue> {
        if let Some(queue) = self.existing_queue(&id) {
            return queue;
        }
        match self.queues.entry(Listed(KeyQueue::new(id))) {
            Entry::Occupied(other) => other.key().0.clone(),
            Entry::Vacant(place) => {
                let queue = place.key().0.clone();
                self.readers.add(&queue);
                place.insert(());
                queue
            }
        }
    }

    /// The key queue with this id, if it has work or a hold.
    pub(crate) fn existing_queue(&self, id: &QueueId) -> Option<Arc<KeyQueue>> {
        self.queues.get(id).map(|listed| listed.key().0.clone())
    }

    /// All key queues. Copied, because a queue's mutex must not be locked under a lock of the table.
    fn all_queues(&self) -> Vec<Arc<KeyQueue>> {
        self.queues.iter().map(|listed| listed.key().0.clone()).collect()
    }

    /// Frees what an idle key queue does not need. An unused one leaves the table.
    pub(crate) fn tidy(&self, queue: &Arc<KeyQueue>, mut work: MutexGuard<'_, Work>) {
        if work.tidy() {
            work.removed = true;
            drop(work);
            self.remove(queue);
        }
    }

    /// Removes a key queue from the table. Its `removed` must be set, and its mutex must not be locked.
    pub(crate) fn remove(&self, queue: &Arc<KeyQueue>) {
        let removed = self.queues.remove_if(&queue.id, |listed, ()| Arc::ptr_eq(&listed.0, queue));
        if removed.is_some() {
            self.readers.remove(queue);
        }
    }

    /// How long a hold with this lease lasts unless it is renewed.
    pub(crate) fn lease_duration(&self, lease: Lease) -> Duration {
        match lease {
            Lease::Watchdog => self.options.lease,
            Lease::WatchdogFor(max) => self.options.lease.min(whole_millis(max)),
            Lease::AtLeast(min) => self.options.lease.max(whole_millis(min)),
            Lease::Fixed(lease) => whole_millis(lease),
            Lease::Endless => ENDLESS,
        }
    }

    /// The generation that the owner ids of new holds carry.
    pub(crate) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// The owner id of a new hold of `owner`.
    pub(crate) fn owner_id(&self, owner: &LocalOwner) -> Arc<str> {
        self.owner_ids.get(owner, &self.id, self.generation())
    }

    /// Starts a new generation: from now on no earlier owner id is used for a new hold.
    ///
    /// Called whenever a request went unanswered or a hold was lost: a dead connection may still deliver a request for the earlier id, or
    /// the release of that id may not have been sent yet. The expected count in a request does not tell an old hold from a new one.
    pub(crate) fn rotate_owner_ids(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Makes sure that no later hold has the owner id of `hold`, which has ended, if a renewal in flight may still reach a record with it.
    /// An owner that has another hold in the same group keeps its owner id.
    pub(crate) fn retire_id_of(&self, hold: &Hold) {
        if hold.has_renewal_in_flight() {
            self.rotate_owner_ids();
        }
    }

    /// Keeps the record of `hold`, which names `owner_id`, until `end`. No later hold has this id, because its undo must not be spared.
    pub(crate) fn spare(&self, hold: &Hold, owner_id: &Arc<str>, end: Moment) {
        self.spared.add(hold.record(), owner_id, end);
        self.rotate_owner_ids();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the waits in Redis's queues with an error, and queues the removal of their entries there. Returns whether there were any.
    pub(crate) fn remove_queued_waiters(&self) -> bool {
        let mut left = false;
        for queue in self.all_queues() {
            // Dropping the waiters' senders ends their waits. This happens after the mutex is unlocked.
            let waiters = queue.work().remove_queued();
            left |= !waiters.is_empty();
            queue.signal.nudge();
        }
        left
    }

    /// Returns a guard that closes the session when it is dropped.
    pub(crate) fn closing(self: &Arc<Self>) -> impl Drop + use<> {
        CloseOnDrop(Arc::downgrade(self))
    }

    /// Waits until no key queue has an unfinished release, or an unfinished acquire of a caller that has left. Waits for at most the
    /// response timeout. Uses timers of the caller's runtime, because the client's runtime may not be running.
    pub(crate) async fn wait_for_releases(&self) {
        let idle = async {
            while self.all_queues().iter().any(|queue| queue.work().is_unsettled()) {
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
        self.all_queues().iter().for_each(|queue| queue.drop_work());
        self.abort_tasks();
    }

    fn abort_tasks(&self) {
        self.watchdog.report_losses();
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

/// Closes the session when dropped.
struct CloseOnDrop(Weak<Session>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(session) = self.0.upgrade() {
            session.close();
        }
    }
}

impl LossHandler for Session {
    /// The owner id of a lost hold is not used again, because its release has not been sent yet.
    fn losing(&self) {
        self.rotate_owner_ids();
    }

    /// Wakes the actor, because its waiters can no longer rely on the hold. Queues the release of a lost hold's owner id.
    fn doubted(self: Arc<Self>, hold: &Arc<Hold>) {
        let id = QueueId::of(&*hold.kind, &hold.owner);
        if !hold.state().is_live() {
            self.watchdog.note_loss(hold);
            match hold.kept_after(Moment::now()) {
                Some(end) => {
                    self.spared.add(hold.record(), &hold.owner_id, end);
                    if self.check_process().is_ok()
                        && let Some(queue) = self.existing_queue(&id)
                    {
                        self.serve_later(&queue, queue.work());
                    }
                }
                None => {
                    let undo = Release::undo(&hold.kind, &hold.owner_id, Moment::now() + self.options.lease);
                    self.release_later(self.queue_with(id.clone()), |work| work.releases.push_back(undo));
                }
            }
        }
        // The hold of permits does not keep its queue in the table.
        if let Some(queue) = self.existing_queue(&id) {
            queue.signal.look_again();
        }
    }
}
