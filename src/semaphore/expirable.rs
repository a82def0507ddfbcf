//! [`ExpirableSemaphore`], whose permits have ids and leases, and [`ExpirablePermit`], its guard.

use super::{at_least_one, take};
use crate::config::options::{Lease, check_lease, millis};
use crate::engine::acquire::Wait;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::kinds::ExpirablePermits;
use crate::kinds::kind::LockKind;
use crate::owner::entered;
use crate::protocol::keys::{CounterKeys, LockKeys};
use crate::protocol::script::{self, PermitId, PermitsSeen, Released, Reply, TimeToLive};
use crate::status::{HoldStatus, status_methods};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Permits with ids and leases: Redisson's `RPermitExpirableSemaphore`.
///
/// A handle is cheap to clone and does no I/O.
///
/// If the holder of a permit dies, the permit is free again when its lease ends. Without [`with_lease`](Self::with_lease), a permit has the
/// client's lease (30 s by default), and the watchdog renews it while its guard lives. In Redisson, a permit that is acquired without a
/// lease never expires. Leases are measured by the server's clock, whereas Redisson uses its clients' clocks.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let slots = client.expirable_semaphore("slots");
/// slots.try_set_permits(4).await?;
/// let slot = slots.with_lease(std::time::Duration::from_secs(30)).acquire().await?;
/// slot.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a handle does nothing until one of its methods is called"]
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

    /// Returns this semaphore with permits that do not expire. The permits of a dead holder stay taken.
    pub fn without_lease(&self) -> Self {
        Self { lease: Lease::Endless, ..self.clone() }
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
        self.take(permits, Wait::Forever).await?.ok_or(Error::Closed { phase: Phase::Acquire })
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
    /// As for [`Semaphore::try_acquire_many_for`](crate::Semaphore::try_acquire_many_for); also [`Error::Misuse`] for more than 1,000
    /// permits.
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

    /// Releases the permit `id`, whichever client or process took it.
    ///
    /// `id` is one of [`ExpirablePermit::ids`], or an id that Redisson 3.17 or later returned. Returns `true` if the permit was taken, and
    /// `false` if it was unknown or its lease had ended. A guard of the permit reports the loss at its next renewal; with a fixed lease,
    /// at its release or its deadline.
    ///
    /// # Errors
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits); also [`Error::Misuse`] for an `id` that is not 32
    /// hexadecimal digits. After [`Error::Ambiguous`], call this again: no other permit has the id.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    pub async fn release(&self, id: impl AsRef<str>) -> Result<bool> {
        let request = script::give_id(self.keys()?, permit_id(id.as_ref())?);
        let held = |reply: &Reply| script::released(reply).map(|released| released != Released::Gone);
        self.session.ask_once(request, held, Phase::Release).await
    }

    /// Returns the time until the lease of the permit `id` ends unless it is renewed.
    ///
    /// Returns `None` if the permit is not taken, and [`Duration::MAX`] for a permit [without a lease](Self::without_lease). First frees
    /// the permits whose leases have expired. `id` is as in [`release`](Self::release).
    ///
    /// # Errors
    /// As for [`available_permits`](Self::available_permits); also [`Error::Misuse`] for an invalid `id`.
    pub async fn remaining_lease(&self, id: impl AsRef<str>) -> Result<Option<Duration>> {
        let request = script::permit_lease(self.keys()?, permit_id(id.as_ref())?);
        let seen = self.session.inspect(request, script::permits_seen).await?;
        Ok(seen.left.duration())
    }

    /// Replaces the lease of the permit `id`: it ends `lease` from now.
    ///
    /// Returns `false` if the permit is not taken. First frees the permits whose leases have expired. `id` is as in
    /// [`release`](Self::release), `lease` as in [`with_lease`](Self::with_lease). A guard of the permit does not learn of the change: its
    /// deadline stays, and its watchdog renews a lease that became shorter than its own.
    ///
    /// # Errors
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits); also [`Error::Misuse`] for an invalid `id` or `lease`.
    ///
    /// # Cancel safety
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    pub async fn update_lease(&self, id: impl AsRef<str>, lease: Duration) -> Result<bool> {
        check_lease(lease)?;
        let request = script::set_permit_lease(self.keys()?, permit_id(id.as_ref())?, millis(lease));
        let seen = self.session.ask_once(request, script::permits_seen, Phase::Adjust).await?;
        Ok(seen.left != TimeToLive::Absent)
    }

    /// Returns how many permits are free. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`Semaphore::available_permits`](crate::Semaphore::available_permits).
    pub async fn available_permits(&self) -> Result<i64> {
        Ok(self.counts().await?.free)
    }

    /// Returns how many permits are taken. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`available_permits`](Self::available_permits).
    pub async fn acquired_permits(&self) -> Result<u64> {
        Ok(self.counts().await?.taken)
    }

    /// Returns the number of all permits, free and taken. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`available_permits`](Self::available_permits).
    pub async fn permits(&self) -> Result<i64> {
        let seen = self.counts().await?;
        Ok(seen.free.saturating_add_unsigned(seen.taken))
    }

    async fn counts(&self) -> Result<PermitsSeen> {
        self.session.inspect(script::permit_counts(self.keys()?), script::permits_seen).await
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

    /// Sets the number of all permits, free and taken, to `permits`. Creates the semaphore if it does not exist.
    ///
    /// Returns how many permits are then free. The number is negative if more than `permits` are taken. Taken permits stay taken; those
    /// whose leases have expired count as taken until a call frees them.
    ///
    /// # Errors
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    ///
    /// # Cancel safety
    /// As for [`Semaphore::try_set_permits`](crate::Semaphore::try_set_permits).
    pub async fn set_permits(&self, permits: u32) -> Result<i64> {
        let request = script::set_all_permits(self.keys()?, permits);
        self.session.ask_once(request, script::number, Phase::Adjust).await
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
        Ok(level.map(|level| ExpirablePermit { status: HoldStatus::of(&level.hold), level }))
    }

    fn keys(&self) -> Result<&Arc<CounterKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

/// Permits of an [`ExpirableSemaphore`].
///
/// Dropped permits are released in the background, while the client's runtime runs. [`state`](Self::state) reports their state: they are
/// lost if a lease expired, or if another program released them by their ids.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let slots = client.expirable_semaphore("slots");
/// let slot = slots.acquire().await?;
/// let id = slot.ids().remove(0); // another process may release the permit by its id
/// slot.forget();
/// slots.release(&id).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the permits are released as soon as this is dropped"]
pub struct ExpirablePermit {
    level: Level,
    pub(crate) status: HoldStatus,
}

status_methods!(ExpirablePermit, status);

impl ExpirablePermit {
    /// Returns the ids of the permits in the form that Redisson's methods use: each id's bytes in hexadecimal.
    pub fn ids(&self) -> Vec<String> {
        let ids = self.level.hold.owner_id.as_bytes().chunks(size_of::<PermitId>());
        ids.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()).collect()
    }

    /// Releases the permits.
    ///
    /// # Errors
    /// [`Error::NotHeld`] if the permits were already known to be lost, [`Error::Lost`] if the release found one of them lost. Other errors
    /// as for [`SemaphorePermit::release`](crate::SemaphorePermit::release); after [`Error::Refused`], permits with a lease become free
    /// when it ends.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the release, which continues in the background.
    pub async fn release(mut self) -> Result<()> {
        entered()?;
        self.level.release().await
    }

    /// Drops the guard without a release. The permits stay taken and are no longer renewed. They become free when their lease ends, if they
    /// have one.
    pub fn forget(self) {
        self.level.forget();
    }
}

/// Reads an id in the form of [`ExpirablePermit::ids`].
fn permit_id(text: &str) -> Result<PermitId> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    match digits {
        Some(digits) if digits.len() == 2 * size_of::<PermitId>() => {
            Ok(std::array::from_fn(|at| (digits[2 * at] << 4 | digits[2 * at + 1]) as u8))
        }
        _ => Err(Error::misuse(
            "the id of a permit has 32 hexadecimal digits: pass one of `ExpirablePermit::ids`",
        )),
    }
}

impl fmt::Debug for ExpirableSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirableSemaphore").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}

impl fmt::Debug for ExpirablePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirablePermit").field(&self.status).finish()
    }
}
