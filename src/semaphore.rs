//! The handles of semaphores: of permits that are no more than a number, and of permits with ids and leases.

use crate::config::options::{Lease, check_lease, millis};
use crate::engine::acquire::{self, Wait};
use crate::engine::key_queue::Terms;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::guard::{Holding, give_back};
use crate::kinds::kind::LockKind;
use crate::kinds::{ID, Leased, Permits};
use crate::owner::{OwnerId, entered};
use crate::protocol::keys::PermitKeys;
use crate::protocol::script;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Redisson's `RSemaphore`: a number of permits that all clients share. A handle: cheap to clone, no I/O.
///
/// A permit has no owner and no lease: one that a process takes with it when it dies is gone, until somebody adds another.
/// Where that may not be, use an [`ExpirableSemaphore`].
///
/// Waiters of one client are served in the order in which they came, whatever they want: one who wants many is not passed
/// by those who want few.
#[derive(Clone)]
pub struct Semaphore {
    session: Arc<Session>,
    keys: Result<Arc<PermitKeys>>,
}

impl Semaphore {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        let keys = session.keys(name);
        let keys = keys.map(|keys| Arc::new(PermitKeys::semaphore(keys, session.mark)));
        Self { session, keys }
    }

    /// Takes a permit, waiting for as long as it takes.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is sent; [`Error::Refused`] if the server refuses; [`Error::Unavailable`] if
    /// the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and gives back what was already on its way.
    pub async fn acquire(&self) -> Result<SemaphorePermit> {
        self.acquire_many(1).await
    }

    /// Takes `permits` at once, waiting for as long as it takes.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); [`Error::Misuse`] for 0.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        match self.take(permits, Wait::Forever).await? {
            Some(permit) => Ok(permit),
            None => Err(self.session.closed_error(Phase::Acquire)),
        }
    }

    /// Takes a permit if there is one, with one look at the server. `None` if there is none, or others of this client wait.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire), and [`Error::TimedOut`] or [`Error::Unavailable`] if the server did not answer
    /// within the response timeout.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many(1).await
    }

    /// The same for `permits` at once.
    ///
    /// # Errors
    /// As for [`try_acquire`](Self::try_acquire); [`Error::Misuse`] for 0.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>> {
        self.take(permits, Wait::once(&self.session)).await
    }

    /// Takes `permits` at once, waiting for at most `wait`.
    ///
    /// # Errors
    /// As for [`try_acquire`](Self::try_acquire); [`Error::Misuse`] for 0.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<SemaphorePermit>> {
        self.take(permits, Wait::within(&self.session, wait)?).await
    }

    /// Adds `permits` that no guard of this process gives back: those of a forgotten one, say. It makes the semaphore if there
    /// is none, as Redisson does.
    ///
    /// # Errors
    /// As for [`SemaphorePermit::release`]; [`Error::Misuse`] for 0.
    ///
    /// # Cancel safety
    /// Once polled, it goes on in the background.
    pub async fn release(&self, permits: u32) -> Result<()> {
        let kind = self.permits(permits)?;
        entered()?;
        give_back(&mut Level::outstanding(&self.session, &kind)?).await
    }

    /// How many permits are free; below 0 if more were [taken away](Self::add_permits) than there were.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for a bad name.
    pub async fn available_permits(&self) -> Result<i64> {
        self.session.inspect(script::value(self.keys()?), script::number).await
    }

    /// Makes the semaphore with so many permits, if there is none. True if it did.
    ///
    /// # Errors
    /// As for [`available_permits`](Self::available_permits), and [`Error::Ambiguous`] if the request was sent and not
    /// answered: it is not repeated, because the answer would be another.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.session.ask_once(script::set_permits(self.keys()?, permits, 0), script::yes, Phase::Adjust).await
    }

    /// The same for `time` only: then the semaphore is gone.
    ///
    /// # Errors
    /// As for [`try_set_permits`](Self::try_set_permits); [`Error::Misuse`] for a time that Redis can't count.
    ///
    /// # Cancel safety
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn try_set_permits_for(&self, permits: u32, time: Duration) -> Result<bool> {
        check_lease(time)?;
        let request = script::set_permits(self.keys()?, permits, millis(time));
        self.session.ask_once(request, script::yes, Phase::Adjust).await
    }

    /// Adds permits, or takes them away, which may leave fewer than none. Returns how many are free then.
    ///
    /// # Errors
    /// As for [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn add_permits(&self, permits: i32) -> Result<i64> {
        let request = script::add_permits(self.keys()?, permits, false);
        self.session.ask_once(request, script::number, Phase::Adjust).await
    }

    /// Takes all permits that are free, for good. Returns how many those were.
    ///
    /// # Errors
    /// As for [`try_set_permits`](Self::try_set_permits).
    ///
    /// # Cancel safety
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn drain_permits(&self) -> Result<i64> {
        self.session.ask_once(script::drain_permits(self.keys()?), script::number, Phase::Adjust).await
    }

    async fn take(&self, permits: u32, wait: Wait) -> Result<Option<SemaphorePermit>> {
        let kind = self.permits(permits)?;
        let level = take(&self.session, &kind, Lease::Endless, wait).await?;
        Ok(level.map(|level| SemaphorePermit { level, permits }))
    }

    fn permits(&self, permits: u32) -> Result<Arc<dyn LockKind>> {
        at_least_one(permits)?;
        Ok(Arc::new(Permits { keys: self.keys()?.clone(), permits }))
    }

    fn keys(&self) -> Result<&Arc<PermitKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

/// Permits of a [`Semaphore`], given back when dropped: in the background, while the client's runtime runs.
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct SemaphorePermit {
    level: Level,
    permits: u32,
}

impl SemaphorePermit {
    /// How many permits it stands for.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Gives the permits back.
    ///
    /// # Errors
    /// [`Error::Ambiguous`] if the server did not take them within the response timeout, because no answer came, or its
    /// disk fails: the library goes on giving back in the background. [`Error::Unavailable`] if the client is closed,
    /// [`Error::Refused`] if the server refused for good: the permits are lost to the semaphore. [`Error::Misuse`] outside a tokio runtime (it goes on in the background), and in a forked child.
    ///
    /// # Cancel safety
    /// Dropping the future does not take it back: it goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        entered()?;
        give_back(&mut self.level).await
    }

    /// Keeps the permits: nobody gives them back, unless by [`Semaphore::release`].
    pub fn forget(self) {
        self.level.forget();
    }
}

/// Redisson's `RPermitExpirableSemaphore`: permits with ids and leases. One whose holder dies is free again when its lease ends.
/// A handle: cheap to clone, no I/O.
///
/// Without a [lease](Self::with_lease) of its own a permit has the client's, by default 30 s, and is renewed while its guard
/// lives. (Redisson's own permits that are taken without a lease never end.) Times are the server's, where Redisson goes by
/// its clients'.
#[derive(Clone)]
pub struct ExpirableSemaphore {
    session: Arc<Session>,
    keys: Result<Arc<PermitKeys>>,
    lease: Lease,
}

impl ExpirableSemaphore {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        let keys = session.keys(name);
        let keys = keys.map(|keys| Arc::new(PermitKeys::semaphore(keys, session.mark)));
        Self { session, keys, lease: Lease::Watchdog }
    }

    /// The same semaphore; its permits end after `lease`, without its fractions of a millisecond, and nobody renews them.
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Lease::Fixed(lease), ..self.clone() }
    }

    /// The same semaphore; its permits don't end before they are given back. One whose holder dies is lost.
    pub fn without_lease(&self) -> Self {
        Self { lease: Lease::Endless, ..self.clone() }
    }

    /// Takes a permit, waiting for as long as it takes.
    ///
    /// # Errors
    /// As for [`Semaphore::acquire`].
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`].
    pub async fn acquire(&self) -> Result<ExpirablePermit> {
        self.acquire_many(1).await
    }

    /// Takes `permits` at once, waiting for as long as it takes.
    ///
    /// # Errors
    /// As for [`Semaphore::acquire_many`]; [`Error::Misuse`] for more than 1,000, too.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<ExpirablePermit> {
        match self.take(permits, Wait::Forever).await? {
            Some(permit) => Ok(permit),
            None => Err(self.session.closed_error(Phase::Acquire)),
        }
    }

    /// Takes a permit if there is one, with one look at the server. `None` if there is none, or others of this client wait.
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire`].
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<ExpirablePermit>> {
        self.take(1, Wait::once(&self.session)).await
    }

    /// Takes `permits` at once, waiting for at most `wait`.
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire_for`]; [`Error::Misuse`] for more than 1,000, too.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`].
    pub async fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<ExpirablePermit>> {
        self.take(permits, Wait::within(&self.session, wait)?).await
    }

    /// How many permits are free. Those whose lease has ended become so.
    ///
    /// # Errors
    /// As for [`Semaphore::available_permits`].
    pub async fn available_permits(&self) -> Result<i64> {
        self.session.inspect(script::free_permits(self.keys()?), script::number).await
    }

    /// See [`Semaphore::try_set_permits`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.session.ask_once(script::set_permits(self.keys()?, permits, 0), script::yes, Phase::Adjust).await
    }

    /// See [`Semaphore::add_permits`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn add_permits(&self, permits: i32) -> Result<i64> {
        let request = script::add_permits(self.keys()?, permits, true);
        self.session.ask_once(request, script::number, Phase::Adjust).await
    }

    async fn take(&self, permits: u32, wait: Wait) -> Result<Option<ExpirablePermit>> {
        at_least_one(permits)?;
        if permits > 1000 {
            return Err(Error::misuse("more than 1,000 permits with ids at once"));
        }
        self.lease.check()?;
        let kind: Arc<dyn LockKind> = Arc::new(Leased { keys: self.keys()?.clone(), permits });
        let level = take(&self.session, &kind, self.lease, wait).await?;
        Ok(level.map(|level| ExpirablePermit { holding: Holding::of(&level), level }))
    }

    fn keys(&self) -> Result<&Arc<PermitKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

/// Permits of an [`ExpirableSemaphore`], given back when dropped: in the background, while the client's runtime runs.
///
/// It derefs to [`Holding`], which tells how they stand: they are lost when their lease ended unrenewed, or somebody else
/// gave them back by their ids.
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct ExpirablePermit {
    level: Level,
    holding: Holding,
}

impl ExpirablePermit {
    /// The ids of the permits as Redisson's methods take and give them: the bytes in hexadecimal.
    pub fn ids(&self) -> Vec<String> {
        let ids = self.level.hold.text.as_bytes().chunks(ID);
        ids.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
    }

    /// Gives the permits back.
    ///
    /// # Errors
    /// [`Error::NotHeld`] if they had already been told as lost, [`Error::Lost`] if one of them was found lost now. The others
    /// as for [`SemaphorePermit::release`].
    ///
    /// # Cancel safety
    /// Dropping the future does not take it back: it goes on in the background.
    pub async fn release(mut self) -> Result<()> {
        entered()?;
        give_back(&mut self.level).await
    }

    /// Keeps the permits: they are no longer renewed, and end with their lease, if they have one.
    pub fn forget(self) {
        self.level.forget();
    }
}

impl Deref for ExpirablePermit {
    type Target = Holding;
    fn deref(&self) -> &Holding {
        &self.holding
    }
}

/// Permits have no owner; who waits for them is as good as any.
async fn take(
    session: &Arc<Session>,
    kind: &Arc<dyn LockKind>,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Level>> {
    entered()?;
    let terms = Terms { lease, pipelined: false };
    acquire::acquire(session, kind, OwnerId::thread(), terms, wait).await
}

fn at_least_one(permits: u32) -> Result<()> {
    if permits == 0 { Err(Error::misuse("no permit at all")) } else { Ok(()) }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Semaphore").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}

impl fmt::Debug for ExpirableSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirableSemaphore").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}

impl fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit").field("permits", &self.permits).finish_non_exhaustive()
    }
}

impl fmt::Debug for ExpirablePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirablePermit").field(&self.holding).finish()
    }
}
