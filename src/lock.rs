//! The handle of a lock, of whatever kind.

use crate::config::options::Lease;
use crate::engine::acquire::{self, Wait};
use crate::engine::key_queue::Terms;
use crate::engine::pending::UnderWay;
use crate::engine::session::Session;
use crate::error::{Error, Holder, Phase, Result};
use crate::guard::{Holding, LockGuard};
use crate::kinds::kind::LockKind;
use crate::lease::hold::HoldState;
use crate::owner::{Owner, OwnerId};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, TimeToLive};
use crate::runtime::sync::select;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A lock that has an owner: Redisson's `RLock`, of the kind that the method of [`Client`](crate::Client) says which made
/// it. A handle: cheap to make and to clone, no I/O, no state of a hold.
///
/// # The owner is the task
///
/// In Java a thread owns a lock. Here the current tokio task does (the thread at the root of a `block_on`). An owner who holds
/// the lock may take it again, any number of times; the lock is free when every guard is gone. So users of a lock that share a
/// task do not exclude each other:
///
/// - **Branches of one task.** The futures of `join!` and `select!`, of `join_all`, `FuturesUnordered` and `buffer_unordered`
///   run in the task that polls them. A branch that asks for the lock while another branch is acquiring it gets
///   [`Error::Misuse`]. A branch that asks while another branch holds the lock is let in, because that is a re-entry.
/// - **Requests of one HTTP connection.** hyper, and so axum, serves a keep-alive connection in one task. A handler may spawn
///   work with the guard and answer at once; then the next request of that connection is let in while the work runs.
///
/// Use [`Client::mutex`](crate::Client::mutex) in these cases. It has the same record, but each acquire has an owner of its own,
/// the guard. Or name the owner of each branch or request by [`with_owner`](Self::with_owner).
///
/// The non-reentrant kinds let no owner in twice: they say [`Error::WouldDeadlock`].
///
/// # An acquire under way
///
/// A future of `lock` or `try_lock_for` that has been polled keeps its place in the queue, and what it is granted, until
/// it is dropped or polled again; a grant that nobody takes ends with one lease. Don't leave one lying about unpolled.
#[derive(Clone)]
pub struct Lock {
    session: Arc<Session>,
    /// An unusable name is told by the first call that would need it.
    kind: Result<Arc<dyn LockKind>>,
    lease: Lease,
    owner: Who,
    /// Where it is another than the client's.
    pipelined: Option<bool>,
}

/// Who acquires; and that the acquire is under way, until it is dropped.
pub(crate) struct Claim {
    owner: OwnerId,
    _under_way: Option<UnderWay>,
}

#[derive(Clone, PartialEq)]
enum Who {
    Current,
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    Thread,
    Explicit(Owner),
    /// Each acquire is an owner of its own: the lock is a mutex.
    Guard,
}

impl Lock {
    /// Of the kind that `kind` makes of the name.
    pub(crate) fn new<K: LockKind>(
        session: Arc<Session>,
        name: &str,
        kind: impl FnOnce(LockKeys) -> Result<K>,
    ) -> Self {
        let kind = session.keys(name).and_then(kind);
        let kind = kind.map(|kind| Arc::new(kind) as Arc<dyn LockKind>);
        Self { session, kind, lease: Lease::Watchdog, owner: Who::Current, pipelined: None }
    }

    /// The same record, held by the guard of each acquire.
    pub(crate) fn into_mutex(self) -> Self {
        Self { owner: Who::Guard, ..self }
    }

    /// The same lock with a fixed lease: the hold ends after `lease` unless it is unlocked before, and the watchdog
    /// does not renew it. Without one, the client's lease (by default 30 s) is renewed while the guard lives.
    ///
    /// The lease is at least 1 ms; fractions of a millisecond are cut off. One that Redis can't count is an
    /// [`Error::Misuse`] of the acquire.
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Lease::Fixed(lease), ..self.clone() }
    }

    /// The same lock, held by `owner` instead of the current task.
    ///
    /// A [mutex](crate::Client::mutex) takes no owner: each call that uses the returned handle fails with
    /// [`Error::Misuse`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        if self.is_mutex() {
            let message =
                "a mutex is held by its guard, not by an owner: use `Client::lock` with `with_owner`";
            let refused = |kind: &Arc<dyn LockKind>| Err(misuse(&**kind, message));
            return Self { kind: self.kind().and_then(refused), ..self.clone() };
        }
        Self { owner: Who::Explicit(owner.clone()), ..self.clone() }
    }

    /// The same lock with [`HandOff::pipelined`](crate::HandOff::pipelined) or without, whatever its client has.
    pub fn with_pipelined_hand_off(&self, on: bool) -> Self {
        Self { pipelined: Some(on), ..self.clone() }
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn with_thread(&self) -> Self {
        Self { owner: Who::Thread, ..self.clone() }
    }

    /// Takes the lock, waiting for as long as it takes; also through restarts of the server.
    ///
    /// Waiters of one client are served in the order in which they came. The message of a release wakes them. Some holders send
    /// none, so the client also looks at the holder of a busy lock after 10 ms, 20 ms, 40 ms and so on: one read for all waiters.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is sent, also where another branch of the task is acquiring the lock;
    /// [`Error::Refused`] if the server refuses; [`Error::Unavailable`] if
    /// the client is closed; [`Error::Lost`] if a re-entry finds that the owner's hold is lost;
    /// [`Error::WouldDeadlock`] where the owner would wait for itself.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and gives back what was already on its way.
    pub async fn lock(&self) -> Result<LockGuard> {
        match self.acquire(Wait::Forever).await? {
            Some(guard) => Ok(guard),
            None => Err(self.session.closed_error(Phase::Acquire)),
        }
    }

    /// Takes the lock if it is free, with one look at the server. `None` if another holds it.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`Error::TimedOut`] or [`Error::Unavailable`] if the server did not answer
    /// within the response timeout.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.acquire(Wait::once(&self.session)).await
    }

    /// Takes the lock, waiting for at most `wait`. `None` if another held it, or was to have it after a hold of this
    /// client (see [`HandOff`](crate::HandOff)); a `wait` of zero is [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and [`Error::TimedOut`] or [`Error::Unavailable`] if the server told nothing in that
    /// time.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        self.acquire(Wait::within(&self.session, wait)?).await
    }

    /// Runs `body` while the lock is held, and cancels it when the lease is lost.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock) while waiting. [`Error::Lost`] if the hold was lost before the body and the release
    /// were done: the body was dropped where it stood, or had just ended, and what it did was not protected to the
    /// end. A release that could not be confirmed is not an error here: the lock was held throughout, and the library
    /// goes on releasing it.
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and releases the lock in the background.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(Holding) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.lock().await?;
        let holding = Holding::clone(&guard);
        let done = select! {
            biased;
            state = holding.lost() => Err(state),
            value = body(holding.clone()) => Ok(value),
        };
        let lost = |reason, holder| Error::Lost { name: guard_name(&holding), reason, holder };
        match (done, holding.state()) {
            (Err(HoldState::Lost(reason)), _) | (_, HoldState::Lost(reason)) => {
                drop(guard);
                Err(lost(reason, self.holder().await.ok().flatten()))
            }
            (Err(_), _) => Err(self.session.closed_error(Phase::Release)),
            (Ok(value), _) => match guard.unlock().await {
                Err(error) if error.is_lost() => Err(error),
                Err(error) => {
                    tracing::warn!(lock = ?holding.name(), %error, "released without confirmation");
                    Ok(value)
                }
                Ok(()) => Ok(value),
            },
        }
    }

    /// Whether anyone holds the lock.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for a bad name.
    pub async fn is_locked(&self) -> Result<bool> {
        let kind = self.kind()?;
        self.session.inspect(kind.is_locked(), |reply| kind.locked(reply)).await
    }

    /// Whether the current owner holds the lock, as the record says.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked), and as for the owner of [`lock`](Self::lock). [`Error::Misuse`] for a
    /// [mutex](crate::Client::mutex), which no task holds: ask its guard.
    pub async fn is_held(&self) -> Result<bool> {
        Ok(self.hold_count().await? > 0)
    }

    /// How often the current owner holds the lock, as the record says; 0 if it does not.
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
        let own = self.session.existing_lane(&kind.lane(&owner)).and_then(|lane| {
            let work = lane.work();
            let levels = work.current.as_ref().map_or(0, |current| current.levels);
            work.text_of(&owner).map(|text| (text, levels))
        });
        let fresh = || (kind.text(owner.text(&self.session.id, self.session.era())), 0);
        let (text, levels) = own.unwrap_or_else(fresh);
        let recorded =
            self.session.inspect(kind.hold_count(&text), |reply| kind.counted(&text, reply)).await?;
        Ok(if recorded == 0 || kind.manner().counts { recorded } else { levels })
    }

    /// Time until the lock's lease ends unless it is renewed, whoever holds it. `None` if nobody does;
    /// [`Duration::MAX`] for a record without an expiry, which Redisson never leaves.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked).
    pub async fn remaining_lease(&self) -> Result<Option<Duration>> {
        let kind = self.kind()?;
        let left = self.session.inspect(kind.time_to_live(), |reply| kind.lives(reply)).await?;
        Ok(match left {
            TimeToLive::Absent => None,
            TimeToLive::Never => Some(Duration::MAX),
            TimeToLive::Left(left) => Some(left),
        })
    }

    /// Who holds the lock, and how often. `None` if nobody does.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked); [`Error::Refused`] with code `WRONGTYPE` if the name is in use for a
    /// value that is no lock.
    pub async fn holder(&self) -> Result<Option<Holder>> {
        let kind = self.kind()?;
        self.session.inspect(kind.holder(), |reply| kind.held_by(reply)).await
    }

    /// Frees the lock whoever holds it, and tells the waiters. True if somebody held it.
    ///
    /// A holder in this library learns of it at its next renewal, one with a fixed lease at its next operation or
    /// its deadline; a Java holder when it unlocks.
    ///
    /// # Errors
    /// As for [`is_locked`](Self::is_locked), and [`Error::Ambiguous`] if the request was sent and not answered: it
    /// is not repeated, because a repeat could free a later holder's lock.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn force_unlock(&self) -> Result<bool> {
        let kind = self.kind()?;
        let request = kind.force_unlock().unwrap_or_else(|| unreachable!("a lock has an owner"));
        self.session.ask_once(request, script::yes, Phase::ForceUnlock).await
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<LockGuard>> {
        let claim = self.claim()?;
        self.acquire_for(&claim, wait).await
    }

    /// An acquire begins, by an owner who may take others with it.
    pub(crate) fn claim(&self) -> Result<Claim> {
        let (kind, owner) = (self.kind()?, self.owner()?);
        let under_way = self.session.pending.begin(&**kind, &owner)?;
        Ok(Claim { owner, _under_way: under_way })
    }

    pub(crate) async fn acquire_for(&self, claim: &Claim, wait: Wait) -> Result<Option<LockGuard>> {
        let (kind, owner) = (self.kind()?, claim.owner.clone());
        self.lease.check()?;
        let pipelined =
            self.pipelined.unwrap_or(self.session.options.hand_off.pipelined) && kind.manner().pipelined;
        let terms = Terms { lease: self.lease, pipelined };
        let level = acquire::acquire(&self.session, kind, owner, terms, wait).await?;
        Ok(level.map(LockGuard::new))
    }

    /// How long a hold of it lasts unless it is renewed.
    pub(crate) fn length(&self) -> Duration {
        self.session.length(self.lease)
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn has_owner_of(&self, other: &Self) -> bool {
        self.owner == other.owner
    }

    pub(crate) fn is_mutex(&self) -> bool {
        self.owner == Who::Guard
    }

    pub(crate) fn kind(&self) -> Result<&Arc<dyn LockKind>> {
        self.kind.as_ref().map_err(Error::clone)
    }

    fn owner(&self) -> Result<OwnerId> {
        match &self.owner {
            Who::Current => OwnerId::current(),
            Who::Thread => Ok(OwnerId::thread()),
            Who::Explicit(owner) => OwnerId::explicit(owner),
            Who::Guard => OwnerId::guard(),
        }
    }
}

/// Redisson's `RReadWriteLock`: any number of readers, or one writer. A handle, made by
/// [`Client::read_write_lock`](crate::Client::read_write_lock).
///
/// # Java readers with a shorter lease
/// Each renewal of a Java reader sets the record's expiry to that reader's `lockWatchdogTimeout`, even if another reader
/// has a longer lease. A client of this library sees that when it acquires and when it renews, and then renews at a third
/// of the shorter lease. Two gaps remain:
/// - A Java reader may join, shorten the expiry and die between two renewals of this client.
/// - A process that is paused, or has no connection, for longer than the shorter lease does not renew in time.
///
/// In both the record can expire before [`Holding::deadline`](crate::Holding::deadline), and a writer can enter. The next
/// renewal reports the loss.
/// Set the same watchdog timeout on both sides to close the gaps, or use [`Client::fenced_lock`](crate::Client::fenced_lock)
/// and have the resource check the token.
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(crate) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The side that readers share. The writer itself may take it, too, and go on as a reader after its write guard is gone:
    /// then other readers come in.
    ///
    /// Further levels of an owner's hold are counted by its client alone, and the record says 1, because of an error in
    /// Redisson 3.44 to 3.52 that frees the lock at any greater count.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// The side that excludes everyone else. An owner that reads can't take it: [`Error::WouldDeadlock`].
    pub fn write(&self) -> &Lock {
        &self.write
    }
}

fn misuse(kind: &dyn LockKind, message: &str) -> Error {
    Error::misuse(format!("`{}`: {message}", kind.record().escape_debug()))
}

fn guard_name(holding: &Holding) -> String {
    holding.name().to_owned()
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
