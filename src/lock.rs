//! The handles of all locks with an owner: [`Lock`] and [`ReadWriteLock`].

mod read_write;
pub(crate) mod run;

pub use read_write::ReadWriteLock;

use crate::config::options::Lease;
use crate::engine::acquire::{self, Wait};
use crate::engine::claim::Claim;
use crate::engine::names::KnownClients;
use crate::engine::queue_id::QueueId;
use crate::engine::session::Session;
use crate::engine::work::Terms;
use crate::error::{Error, Phase, Result};
use crate::guard::LockGuard;
use crate::holder::Holder;
use crate::kinds::kind::{Inspection, LockKind, OwnedKind};
use crate::observer::Way;
use crate::owner::{LocalOwner, Owner};
use crate::protocol::script;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

/// A lock with an owner: Redisson's `RLock`.
///
/// The method of [`Client`](crate::Client) that returned the handle determines its kind. A handle is cheap to create and to clone,
/// does no I/O, and stores no state of a hold.
///
/// # The owner is the task
///
/// In Java a thread owns a lock. Here the owner is the current tokio task. For code that runs directly under `block_on`, outside every
/// spawned task, the owner is the thread. An owner that holds the lock may acquire it again, any number of times. The lock is free when
/// every guard has been released or dropped. Code that runs in one task is therefore one owner, and does not exclude itself:
///
/// - **Branches of one task.** The futures of `join!` and `select!`, of `join_all`, `FuturesUnordered` and `buffer_unordered`
///   run in the task that polls them. A branch that asks for the lock while another branch is acquiring it gets
///   [`Error::Misuse`]. A branch that asks while another branch holds the lock succeeds, because that is a re-entry.
/// - **Requests of one HTTP connection.** hyper, and therefore axum, serves a keep-alive connection in one task. If a handler spawns
///   work with the guard and responds at once, the next request of that connection re-enters the lock while the work runs.
///
/// Use [`Client::mutex`](crate::Client::mutex) in these cases. It uses the same record, but each acquire has an owner of its own,
/// the guard. Alternatively, give each branch or request an owner with [`with_owner`](Self::with_owner).
///
/// Non-reentrant kinds refuse a second acquire by their owner with [`Error::WouldDeadlock`].
///
/// # Pending acquires
///
/// A future of `lock` or `try_lock_for` that is no longer polled keeps its place in the queue until it is dropped. If the lock is granted
/// to such a future, the watchdog does not renew it, and the hold ends after one lease. So poll the future, or drop it.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let lock = client.lock("invoices").with_lease(std::time::Duration::from_secs(60));
/// if let Some(guard) = lock.try_lock().await? {
///     println!("{} is held until {:?}", guard.name(), guard.deadline());
///     guard.unlock().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct Lock {
    session: Arc<Session>,
    /// The error of an invalid name, which the first call that needs the name returns.
    kind: Result<Arc<dyn OwnedKind>, Box<Error>>,
    lease: Lease,
    owner: OwnerMode,
    /// Overrides the client's setting.
    pipelined: Option<bool>,
}

#[derive(Clone, PartialEq)]
enum OwnerMode {
    Current,
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    Thread,
    Explicit(Owner),
    /// A new owner for each acquire: the lock is a mutex.
    Guard,
}

// For the reason given at `Client`.
impl UnwindSafe for Lock {}
impl RefUnwindSafe for Lock {}

impl Lock {
    /// Creates the handle of a lock. With an error in place of the kind, each call returns the error.
    pub(crate) fn new<K: OwnedKind>(session: Arc<Session>, kind: Result<K>) -> Self {
        let kind = kind.map(|kind| Arc::new(kind) as Arc<dyn OwnedKind>).map_err(Box::new);
        Self { session, kind, lease: Lease::Watchdog, owner: OwnerMode::Current, pipelined: None }
    }

    /// Returns the mutex with this lock's record.
    pub(crate) fn into_mutex(self) -> Self {
        Self { owner: OwnerMode::Guard, ..self }
    }

    /// Returns this lock with a fixed lease, which the watchdog does not renew.
    ///
    /// The hold ends after `lease` unless it is released earlier. Without a fixed lease, the watchdog renews the client's lease (30 s by
    /// default) while the guard lives.
    ///
    /// A hold with several levels lasts as long as the longest of them. If an owner acquires the lock again without a fixed lease, the
    /// watchdog renews the hold until that inner guard is released. Then the deadline of the outer guard counts again; if it has passed
    /// meanwhile, the hold is lost.
    ///
    /// The lease is at least 1 ms. Fractions of a millisecond are ignored. An acquire with a lease out of range fails with
    /// [`Error::Misuse`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Lease::Fixed(lease), ..self.clone() }
    }

    /// Returns this lock with a limit for each hold: the watchdog renews it for at most `max`, and then the hold is lost.
    ///
    /// Use it for work that may hang: a live process no longer keeps the lock forever. The record ends at the limit, too, even if the
    /// process dies before. [`HoldStatus::ending`](crate::HoldStatus::ending) warns the holder one lease before the end. This replaces a
    /// [fixed lease](Self::with_lease), which is not renewed at all.
    ///
    /// `max` is at least 1 ms. Fractions of a millisecond are ignored. An acquire with a `max` out of range fails with [`Error::Misuse`].
    pub fn with_max_hold(&self, max: Duration) -> Self {
        Self { lease: Lease::WatchdogFor(max), ..self.clone() }
    }

    /// Returns this lock with a minimum time for each hold: if it is released earlier, the record stays for the rest of `min`.
    ///
    /// Use it for a job that must run once although several processes start it at about the same time. Nobody holds the lock after the
    /// release, but it stays busy, even if the process ends. The record then names an owner id that ends in `:kept`. `min` is measured
    /// from the acquire. While the lock is held, the watchdog renews it, and its lease is never shorter than `min`. No message announces
    /// the end of `min`. Waiters of this library notice the end when they check the lock, and those of Java when the lease that they saw
    /// has passed.
    ///
    /// A release that goes unanswered is repeated for as long as the hold would have lasted. It takes effect once, and does not prolong
    /// `min`. If it never reaches the server, or if the server refuses it, the record ends with the lease instead: `min` after the acquire,
    /// or [a lease](crate::ClientBuilder::watchdog_timeout) after the last renewal, whichever is later. The same holds for a hold that is
    /// lost. The lock is never free before `min` has passed, unless somebody force-unlocks it, the server loses its data, or the hold began
    /// by a [pipelined hand-off](crate::HandOff::pipelined) and the server did not confirm that before the previous hold's lease ended.
    ///
    /// This replaces a [fixed lease](Self::with_lease) and a [limit](Self::with_max_hold). An acquire fails with [`Error::Misuse`] for a
    /// `min` below 1 ms or out of range, and for kinds that cannot be kept: fair locks, read/write locks and groups.
    pub fn with_min_hold(&self, min: Duration) -> Self {
        Self { lease: Lease::AtLeast(min), ..self.clone() }
    }

    /// Returns this lock with `owner` as its owner, in place of the current task.
    ///
    /// A [mutex](crate::Client::mutex) takes no owner: each call that uses the returned handle fails with
    /// [`Error::Misuse`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        if self.is_mutex() {
            let message =
                "a mutex is held by its guard, not by an owner: use `Client::lock` with `with_owner`";
            let fail = |kind: &Arc<dyn OwnedKind>| Err(misuse(&**kind, message));
            return Self { kind: self.kind().and_then(fail).map_err(Box::new), ..self.clone() };
        }
        Self { owner: OwnerMode::Explicit(owner.clone()), ..self.clone() }
    }

    /// Returns this lock with the pipelined hand-off turned on or off.
    ///
    /// This overrides [`HandOff::pipelined`](crate::HandOff::pipelined) of the client.
    pub fn with_pipelined_hand_off(&self, on: bool) -> Self {
        Self { pipelined: Some(on), ..self.clone() }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn with_thread(&self) -> Self {
        Self { owner: OwnerMode::Thread, ..self.clone() }
    }

    /// Returns the lock's name as stored in Redis, after the name mapper.
    ///
    /// Returns an empty string if the name, or another argument of the handle, is invalid.
    pub fn name(&self) -> &str {
        self.kind.as_ref().map_or("", |kind| kind.record())
    }

    /// Acquires the lock, waiting without a limit.
    ///
    /// The wait survives restarts of the server. Waiters of one client are served in order of arrival. Exceptions: re-entries and
    /// `try_lock` do not queue, readers and owners of a group have no order, and a waiter that left the queue of a fair lock may rejoin
    /// behind a later one. A release publishes a message, which wakes the waiters. Some holders publish no message, so the client also
    /// checks a busy lock after 10 ms, 20 ms, 40 ms and so on, with one read for all its waiters. In a crowd of clients, the first check
    /// comes later. Fair and group locks are not checked.
    ///
    /// # Errors
    /// - [`Error::Misuse`], before anything is sent: for an invalid argument, outside a tokio runtime, or if another branch of the task is
    ///   acquiring the lock. Also if a reply shows that another client uses this client's UUID.
    /// - [`Error::WouldDeadlock`] if the owner would wait for itself.
    /// - [`Error::Lost`] if a re-entry finds that the owner's hold is lost.
    /// - [`Error::NotReplicated`] if too few replicas confirmed the acquire.
    /// - [`Error::Refused`] if the server refuses the request.
    /// - [`Error::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the caller leaves the queue, and a lock that was just granted is released.
    pub async fn lock(&self) -> Result<LockGuard> {
        self.acquire(Wait::Forever).await?.ok_or(Error::Closed { phase: Phase::Acquire })
    }

    /// Acquires the lock if it is free, with a single attempt.
    ///
    /// Returns `None` if another owner holds the lock.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock); also [`Error::TimedOut`] if the server does not answer within the response timeout, and
    /// [`Error::Unavailable`] at once if there is no connection. To wait for one, set a time limit.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.acquire(Wait::once(&self.session)).await
    }

    /// Acquires the lock, waiting for at most `wait`.
    ///
    /// Returns `None` if the lock stayed busy, or if this client yielded it to another client (see [`HandOff`](crate::HandOff)). A `wait`
    /// of zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`lock`](Self::lock); also [`Error::TimedOut`] or [`Error::Unavailable`] if the server did not answer within `wait`.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        self.acquire(Wait::within(&self.session, wait)?).await
    }

    /// Acquires the write side of a [`ReadWriteLock`] with a single attempt, even if the current owner reads.
    ///
    /// Returns `None` if another owner reads or writes. The call never waits for other readers, so two readers that upgrade at the same
    /// time do not block each other: both get `None`, and one of them must release its read guard. A read guard of the owner stays valid.
    /// When the write guard is released before it, the owner continues as a reader.
    ///
    /// A reader that died without a release counts for as long as others keep the record, as in Redisson. If only such readers are left, the
    /// release of the owner's read guard frees the lock.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// let lock = client.read_write_lock("catalogue");
    /// let reading = lock.read().lock().await?;
    /// // Read, and find that something must change. Without a write guard, release the read guard and take the write side.
    /// if let Some(writing) = lock.write().try_upgrade().await? {
    ///     writing.unlock().await?;
    /// }
    /// reading.unlock().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`try_lock`](Self::try_lock); also [`Error::Misuse`] for any lock but the write side of a read/write lock.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_upgrade(&self) -> Result<Option<LockGuard>> {
        let kind = self.kind()?;
        let message = "only the write side of a read/write lock can upgrade a reader: use `try_lock`";
        let kind = kind.upgrade().ok_or_else(|| Box::new(misuse(&**kind, message)));
        Self { kind, ..self.clone() }.try_lock().await
    }

    /// Returns whether any owner holds the lock.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for an invalid name.
    pub async fn is_locked(&self) -> Result<bool> {
        let kind = self.kind()?;
        self.session.inspect(kind.is_locked(), |reply| kind.locked(reply)).await
    }

    /// Returns whether the current owner holds the lock, according to the record.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked); also [`Error::Misuse`] for a [mutex](crate::Client::mutex), which no task owns. Ask its
    /// guard instead.
    pub async fn is_held(&self) -> Result<bool> {
        Ok(self.hold_count().await? > 0)
    }

    /// Returns how many times the current owner holds the lock, according to the record.
    ///
    /// Returns 0 if the owner does not hold the lock.
    ///
    /// # Errors
    /// As for [`is_held`](Self::is_held).
    pub async fn hold_count(&self) -> Result<u64> {
        let kind = self.kind()?;
        if self.is_mutex() {
            let message =
                "a mutex is held by its guard, not by a task: use `state` of the guard, or `is_locked`";
            return Err(misuse(&**kind, message));
        }
        let owner = self.owner()?;
        let own = self.session.existing_queue(&QueueId::of(&**kind, &owner)).and_then(|queue| {
            let work = queue.work();
            let levels = work.current.as_ref().map_or(0, |current| current.levels);
            work.owner_id_of(&owner).map(|id| (id, levels))
        });
        let fresh = || (kind.owner_id(self.session.owner_id(&owner)), 0);
        let (owner_id, levels) = own.unwrap_or_else(fresh);
        let recorded =
            self.session.inspect(kind.hold_count(&owner_id), |reply| kind.counted(&owner_id, reply)).await?;
        Ok(if recorded == 0 || kind.traits().counts { recorded } else { u64::from(levels) })
    }

    /// Returns the time until the lock's lease ends unless it is renewed, regardless of the holder.
    ///
    /// Returns `None` if the lock is free, and [`Duration::MAX`] for a record without an expiry, which Redisson never writes.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked).
    pub async fn remaining_lease(&self) -> Result<Option<Duration>> {
        let kind = self.kind()?;
        let left = self.session.inspect(kind.time_to_live(), |reply| kind.lives(reply)).await?;
        Ok(left.duration())
    }

    /// Returns the current holder and its hold count, or `None` if the lock is free.
    ///
    /// A second question reads the [description](Holder::client) of the holder's client.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked); also [`Error::Refused`] with the code `WRONGTYPE` if the key stores a value of another type.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        let kind = self.kind()?;
        let until = self.session.question_ends();
        let mut holder = self.session.inspect(kind.holder_probe(), |reply| kind.held_by(reply)).await?;
        self.session.name_holders(&mut holder, &mut KnownClients::default(), until).await;
        Ok(holder)
    }

    /// Returns the holders, the remaining lease and the number of waiters, all at the same moment and in one round trip. A second one reads
    /// the [descriptions](Holder::client) of the holders' clients.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// let seen = client.lock("orders:42").inspect().await?;
    /// for holder in &seen.holders {
    ///     println!("held {} times by {}", holder.count(), holder.owner());
    /// }
    /// println!("{:?} wait, the lease ends in {:?}", seen.waiters, seen.remaining_lease);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`holder`](Self::holder).
    pub async fn inspect(&self) -> Result<Inspection> {
        let kind = self.kind()?;
        let until = self.session.question_ends();
        let mut seen = self.session.inspect(kind.inspect(), |reply| kind.inspected(reply)).await?;
        self.session.name_holders(&mut seen.holders, &mut KnownClients::default(), until).await;
        Ok(seen)
    }

    /// Releases the lock regardless of its holder, and notifies the waiters.
    ///
    /// Returns `true` if the lock was held. A holder that uses this library notices the loss at its next renewal; with a fixed lease, at
    /// its next operation or its deadline. A Java holder notices it when it unlocks.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked); also [`Error::Ambiguous`] if the request was sent but not answered. The request is not
    /// repeated, because a repeat could release the lock of a later holder.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool> {
        let kind = self.kind()?;
        self.session.ask_once(kind.force_unlock(), script::yes, Phase::ForceUnlock).await
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<LockGuard>> {
        let claim = self.claim()?;
        Ok(self.acquire_for(&claim, wait).await?.map(|(guard, _)| guard))
    }

    /// Begins an acquire. A composite lock holds the claims of all its members.
    pub(crate) fn claim(&self) -> Result<Claim> {
        let kind = &**self.kind()?;
        self.lease.check()?;
        if self.is_kept() && !kind.traits().may_be_kept() {
            return Err(misuse(kind, "this kind of lock has no minimum time: remove `with_min_hold`"));
        }
        Claim::of_owner(&self.session, kind, self.owner()?)
    }

    /// Acquires the lock, and returns how the call came to it.
    pub(crate) async fn acquire_for(&self, claim: &Claim, wait: Wait) -> Result<Option<(LockGuard, Way)>> {
        let kind: Arc<dyn LockKind> = self.kind()?.clone();
        let pipelined =
            self.pipelined.unwrap_or(self.session.options.hand_off.pipelined) && kind.traits().pipelined;
        let terms = Terms { lease: self.lease, pipelined };
        let acquired = acquire::acquire(claim, &kind, terms, wait).await?;
        Ok(acquired.map(|(level, way)| (LockGuard::new(level), way)))
    }

    /// Returns how long a hold of this lock lasts unless it is renewed.
    pub(crate) fn lease_duration(&self) -> Duration {
        self.session.lease_duration(self.lease)
    }

    /// Returns how long a hold of this lock lasts at most, if it has a fixed lease or a maximum time.
    pub(crate) fn longest_hold(&self) -> Option<Duration> {
        match self.lease {
            Lease::Fixed(longest) | Lease::WatchdogFor(longest) => Some(longest),
            Lease::Watchdog | Lease::AtLeast(_) | Lease::Endless => None,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn has_same_owner_as(&self, other: &Self) -> bool {
        self.owner == other.owner
    }

    /// Whether the record stays for a minimum time.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.lease, Lease::AtLeast(_))
    }

    pub(crate) fn is_mutex(&self) -> bool {
        self.owner == OwnerMode::Guard
    }

    pub(crate) fn kind(&self) -> Result<&Arc<dyn OwnedKind>> {
        self.kind.as_ref().map_err(|error| Error::clone(error))
    }

    fn owner(&self) -> Result<LocalOwner> {
        match &self.owner {
            OwnerMode::Current => LocalOwner::current(),
            OwnerMode::Thread => Ok(LocalOwner::thread()),
            OwnerMode::Explicit(owner) => LocalOwner::explicit(owner),
            OwnerMode::Guard => LocalOwner::guard(),
        }
    }
}

fn misuse(kind: &dyn LockKind, message: &str) -> Error {
    Error::misuse(format!("`{}`: {message}", kind.record().escape_debug()))
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Lock");
        match &self.kind {
            Ok(kind) => shown.field("name", kind.record()),
            Err(error) => shown.field("error", error),
        };
        shown.field("lease", &self.lease).finish()
    }
}
