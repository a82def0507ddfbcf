//! [`Semaphore`], which counts permits, and [`ExpirableSemaphore`], which issues permits with ids and leases.

mod expirable;

pub use expirable::{ExpirablePermit, ExpirableSemaphore};

use crate::config::options::{Lease, check_lease, millis};
use crate::engine::acquire::{self, Wait};
use crate::engine::claim::Claim;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::engine::work::Terms;
use crate::error::{Error, Phase, Result};
use crate::kinds::Permits;
use crate::kinds::kind::LockKind;
use crate::owner::entered;
use crate::protocol::keys::{CounterKeys, LockKeys};
use crate::protocol::script;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A number of permits that all clients share: Redisson's `RSemaphore`.
///
/// A handle is cheap to clone and does no I/O.
///
/// A permit has no owner and no lease. If a process dies, its permits stay taken until a client [releases](Self::release) them. Use an
/// [`ExpirableSemaphore`] to avoid this.
///
/// Waiters of one client are served in order of arrival, whatever number of permits they request: a waiter that requests many is not
/// overtaken by waiters that request few.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let connections = client.semaphore("connections");
/// connections.try_set_permits(10).await?; // only the first caller sets them
/// let two = connections.acquire_many(2).await?;
/// two.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    session: Arc<Session>,
    keys: Result<Arc<CounterKeys>>,
}

impl Semaphore {
    pub(crate) fn new(session: Arc<Session>, keys: Result<LockKeys>) -> Self {
        let keys = keys.map(|keys| Arc::new(CounterKeys::semaphore(keys, session.instance)));
        Self { session, keys }
    }

    /// Returns the semaphore's name as stored in Redis, after the name mapper.
    ///
    /// Returns an empty string if the name, or another argument of the handle, is invalid.
    pub fn name(&self) -> &str {
        self.keys.as_ref().map_or("", |keys| &keys.record)
    }

    /// Acquires one permit, waiting without a limit.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for an invalid argument or outside a tokio runtime, before anything is sent.
    /// - [`Error::Refused`] if the server refuses the request.
    /// - [`Error::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the caller leaves the queue, and permits that were just granted are released.
    pub async fn acquire(&self) -> Result<SemaphorePermit> {
        self.acquire_many(1).await
    }

    /// Acquires `permits` permits at once, waiting without a limit.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); also [`Error::Misuse`] for 0 permits.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        self.take(permits, Wait::Forever).await?.ok_or(Error::Closed { phase: Phase::Acquire })
    }

    /// Acquires one permit if it is free, with a single attempt.
    ///
    /// Returns `None` if no permit is free or if other tasks of this client wait.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire); also [`Error::TimedOut`] if the server does not answer within the response timeout, and
    /// [`Error::Unavailable`] at once if there is no connection. To wait for one, set a time limit.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many(1).await
    }

    /// Acquires `permits` permits at once if they are free, with a single attempt.
    ///
    /// Returns `None` if too few permits are free or if other tasks of this client wait.
    ///
    /// # Errors
    /// As for [`try_acquire`](Self::try_acquire); also [`Error::Misuse`] for 0 permits.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>> {
        self.take(permits, Wait::once(&self.session)).await
    }

    /// Acquires one permit, waiting for at most `wait`.
    ///
    /// Returns `None` if no permit became free. A `wait` of zero means [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As for [`try_acquire`](Self::try_acquire); also [`Error::Misuse`] for a `wait` that is too long for the clock.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many_for(1, wait).await
    }

    /// Acquires `permits` permits at once, waiting for at most `wait`.
    ///
    /// Returns `None` if too few permits became free. A `wait` of zero means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As for [`try_acquire_for`](Self::try_acquire_for); also [`Error::Misuse`] for 0 permits.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Self::acquire).
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<SemaphorePermit>> {
        self.take(permits, Wait::within(&self.session, wait)?).await
    }

    /// Releases `permits` permits for which no guard exists, for example after [`SemaphorePermit::forget`].
    ///
    /// Creates the semaphore if it does not exist, as Redisson does.
    ///
    /// # Errors
    /// As for [`SemaphorePermit::release`]; also [`Error::Misuse`] for 0 permits.
    ///
    /// # Cancel safety
    /// Once polled, the release continues in the background even if the future is dropped.
    pub async fn release(&self, permits: u32) -> Result<()> {
        let kind = self.permits(permits)?;
        entered()?;
        Level::outstanding(&self.session, &kind)?.release().await
    }

    /// Releases `permits` permits for which no guard exists, unless the semaphore does not exist.
    ///
    /// Returns `true` if the semaphore existed. Use this in place of [`release`](Self::release) if the semaphore may have
    /// [expired](Self::try_set_permits_for).
    ///
    /// # Errors
    /// As for [`try_set_permits`](Self::try_set_permits); also [`Error::Misuse`] for 0 permits.
    ///
    /// # Cancel safety
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn release_if_exists(&self, permits: u32) -> Result<bool> {
        at_least_one(permits)?;
        let request = script::give_permits_if_exists(self.keys()?, permits);
        self.session.ask_once(request, script::yes, Phase::Release).await
    }

    /// Returns how many permits are free.
    ///
    /// The number is negative if more permits were [removed](Self::add_permits) than were free.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for an invalid name.
    pub async fn available_permits(&self) -> Result<i64> {
        self.session.inspect(script::value(self.keys()?), script::number).await
    }

    /// Creates the semaphore with `permits` permits, unless it exists.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`available_permits`](Self::available_permits); also [`Error::Ambiguous`] if the request was sent but not answered. The
    /// request is not repeated, because a repeat would return another answer.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.session.ask_once(script::set_permits(self.keys()?, permits, 0), script::yes, Phase::Adjust).await
    }

    /// If the semaphore does not exist, creates it with `permits` permits; Redis deletes it after `time`.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`try_set_permits`](Self::try_set_permits); also [`Error::Misuse`] for a `time` below 1 ms or too long for Redis.
    ///
    /// # Cancel safety
    /// As for [`try_set_permits`](Self::try_set_permits).
    pub async fn try_set_permits_for(&self, permits: u32, time: Duration) -> Result<bool> {
        check_lease(time)?;
        let request = script::set_permits(self.keys()?, permits, millis(time));
        self.session.ask_once(request, script::yes, Phase::Adjust).await
    }

    /// Adds `permits` permits, or removes them if the number is negative. Returns how many permits are then free.
    ///
    /// The result may be negative.
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

    /// Removes all free permits permanently, and returns their number. A negative number becomes 0, too.
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

    fn keys(&self) -> Result<&Arc<CounterKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

/// Permits of a [`Semaphore`].
///
/// Dropped permits are released in the background, while the client's runtime runs.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let permit = client.semaphore("uploads").acquire().await?;
/// println!("{} permit", permit.permits());
/// permit.forget(); // another process releases it
/// client.semaphore("uploads").release(1).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the permits are released as soon as this is dropped"]
pub struct SemaphorePermit {
    level: Level,
    permits: u32,
}

impl SemaphorePermit {
    /// Returns the number of permits.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Releases the permits.
    ///
    /// # Errors
    /// - [`Error::Ambiguous`] if the release was not confirmed within the response timeout, because no answer came or the server's disk
    ///   fails; [`Error::Unavailable`] if there was no connection during that time and nothing was sent. The client continues to release
    ///   them in the background.
    /// - [`Error::Closed`] if the client is closed, [`Error::Refused`] if the server refused for good. The permits stay
    ///   taken.
    /// - [`Error::Misuse`] outside a tokio runtime, where the release continues in the background; and in a forked child process.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the release, which continues in the background.
    pub async fn release(mut self) -> Result<()> {
        entered()?;
        self.level.release().await
    }

    /// Drops the guard without a release. The permits stay taken until [`Semaphore::release`] releases them.
    pub fn forget(self) {
        self.level.forget();
    }
}

/// Permits have no owner, so any owner id serves for the wait.
async fn take(
    session: &Arc<Session>,
    kind: &Arc<dyn LockKind>,
    lease: Lease,
    wait: Wait,
) -> Result<Option<Level>> {
    entered()?;
    let terms = Terms { lease, pipelined: false };
    let taken = acquire::acquire(&Claim::of_anyone(session, &**kind)?, kind, terms, wait).await?;
    Ok(taken.map(|(level, _)| level))
}

fn at_least_one(permits: u32) -> Result<()> {
    if permits == 0 { Err(Error::misuse("the number of permits must be at least 1")) } else { Ok(()) }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Semaphore").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}

impl fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit").field("permits", &self.permits).finish_non_exhaustive()
    }
}
