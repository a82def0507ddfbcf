//! [`ExpirableSemaphore`], whose permits have ids and leases, and [`ExpirablePermit`], its guard.

use super::{at_least_one, take};
use crate::config::options::Lease;
use crate::engine::acquire::Wait;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::guard::{Holding, release};
use crate::kinds::kind::LockKind;
use crate::kinds::{ExpirablePermits, ID};
use crate::owner::entered;
use crate::protocol::keys::{CounterKeys, LockKeys};
use crate::protocol::script;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// Permits with ids and leases: Redisson's `RPermitExpirableSemaphore`.
///
/// A handle is cheap to clone and does no I/O.
///
/// If the holder of a permit dies, the permit is free again when its lease ends. Without [`with_lease`](Self::with_lease), a permit has the
/// client's lease (30 s by default), and the watchdog renews it while its guard lives. In Redisson, a permit that is acquired without a
/// lease never expires. Leases are measured by the server's clock, whereas Redisson uses its clients' clocks.
#[derive(Clone)]
pub struct ExpirableSemaphore {
    session: Arc<Session>,
    keys: Result<Arc<CounterKeys>>,
    lease: Lease,
}

impl ExpirableSemaphore {
    pub(crate) fn new(session: Arc<Session>, keys: Result<LockKeys>) -> Self {
        let keys = keys.map(|keys| Arc::new(CounterKeys::semaphore(keys, session.instance)));
        Self { session, keys, lease: Lease::Watchdog }
    }

    /// Returns this semaphore with a fixed lease for its permits, which the watchdog does not renew.
    ///
    /// The lease is at least 1 ms. Fractions of a millisecond are ignored. An acquire with a lease out of range fails with
    /// [`Error::Misuse`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Lease::Fixed(lease), ..self.clone() }
    }

    /// Returns this semaphore with permits that do not expire. The permits of a dead holder are lost.
    pub fn without_lease(&self) -> Self {
        Self { lease: Lease::Endless, ..self.clone() }
    }

    /// Acquires one permit, waiting without a limit.
    ///
    /// # Errors
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn acquire(&self) -> Result<ExpirablePermit> {
        self.acquire_many(1).await
    }

    /// Acquires `permits` permits at once, waiting without a limit.
    ///
    /// # Errors
    /// As for [`Semaphore::acquire_many`](crate::Semaphore::acquire_many); also [`Error::Misuse`] for more than 1,000 permits.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn acquire_many(&self, permits: u32) -> Result<ExpirablePermit> {
        match self.take(permits, Wait::Forever).await? {
            Some(permit) => Ok(permit),
            None => Err(self.session.closed_error(Phase::Acquire)),
        }
    }

    /// Acquires one permit if it is free, with a single attempt.
    ///
    /// Returns `None` if no permit is free or if other tasks of this client wait.
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire`](crate::Semaphore::try_acquire).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn try_acquire(&self) -> Result<Option<ExpirablePermit>> {
        self.try_acquire_many(1).await
    }

    /// Acquires `permits` permits at once if they are free, with a single attempt.
    ///
    /// Returns `None` if too few permits are free or if other tasks of this client wait.
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many); also [`Error::Misuse`] for more than 1,000 permits.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<ExpirablePermit>> {
        self.take(permits, Wait::once(&self.session)).await
    }

    /// Acquires one permit, waiting for at most `wait`.
    ///
    /// Returns `None` if no permit became free. A `wait` of zero means [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire_for`](crate::Semaphore::try_acquire_for).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<ExpirablePermit>> {
        self.try_acquire_many_for(1, wait).await
    }

    /// Acquires `permits` permits at once, waiting for at most `wait`.
    ///
    /// Returns `None` if too few permits became free. A `wait` of zero means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire_many_for`](crate::Semaphore::try_acquire_many_for); also [`Error::Misuse`] for more than 1,000 permits.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::acquire`](crate::Semaphore::acquire).
    pub async fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<ExpirablePermit>> {
        self.take(permits, Wait::within(&self.session, wait)?).await
    }

    /// Returns how many permits are free. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`Semaphore::available_permits`](crate::Semaphore::available_permits).
    pub async fn available_permits(&self) -> Result<i64> {
        self.session.inspect(script::free_permits(self.keys()?), script::number).await
    }

    /// Creates the semaphore with `permits` permits, unless it exists.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.session.ask_once(script::set_permits(self.keys()?, permits, 0), script::yes, Phase::Adjust).await
    }

    /// Adds `permits` permits, or removes them if the number is negative. Returns how many permits are then free.
    ///
    /// The result may be negative.
    ///
    /// # Errors
    /// As for [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::add_permits`](crate::Semaphore::add_permits).
    pub async fn add_permits(&self, permits: i32) -> Result<i64> {
        let request = script::add_permits(self.keys()?, permits, true);
        self.session.ask_once(request, script::number, Phase::Adjust).await
    }

    async fn take(&self, permits: u32, wait: Wait) -> Result<Option<ExpirablePermit>> {
        at_least_one(permits)?;
        if permits > 1000 {
            return Err(Error::misuse(
                "an expirable semaphore grants at most 1,000 permits at once: acquire them in several calls",
            ));
        }
        self.lease.check()?;
        let kind: Arc<dyn LockKind> = Arc::new(ExpirablePermits { keys: self.keys()?.clone(), permits });
        let level = take(&self.session, &kind, self.lease, wait).await?;
        Ok(level.map(|level| ExpirablePermit { holding: Holding::of(&level), level }))
    }

    fn keys(&self) -> Result<&Arc<CounterKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

/// Permits of an [`ExpirableSemaphore`].
///
/// Dropped permits are released in the background, while the client's runtime runs. The permits deref to [`Holding`], which reports
/// their state: they are lost if a lease expired, or if another program released them by their ids.
#[must_use = "the permits are released as soon as this is dropped"]
pub struct ExpirablePermit {
    level: Level,
    holding: Holding,
}

impl ExpirablePermit {
    /// Returns the ids of the permits in the form that Redisson's methods use: each id's bytes in hexadecimal.
    pub fn ids(&self) -> Vec<String> {
        let ids = self.level.hold.owner_id.as_bytes().chunks(ID);
        ids.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
    }

    /// Releases the permits.
    ///
    /// # Errors
    /// [`Error::NotHeld`] if the permits were already known to be lost, [`Error::Lost`] if the release found one of them lost. Other errors
    /// as for [`SemaphorePermit::release`](crate::SemaphorePermit::release); after [`Error::Refused`], permits with a lease become free when it ends.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the release, which continues in the background.
    pub async fn release(mut self) -> Result<()> {
        entered()?;
        release(&mut self.level).await
    }

    /// Drops the guard without a release. The permits stay taken and are no longer renewed. They become free when their lease ends, if they
    /// have one.
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

impl fmt::Debug for ExpirableSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirableSemaphore").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}

impl fmt::Debug for ExpirablePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirablePermit").field(&self.holding).finish()
    }
}
