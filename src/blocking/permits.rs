//! Semaphores for threads.

use super::background::Background;
use super::guard::lost_for;
use crate::error::Result;
use crate::status::status_methods;
use std::sync::Arc;
use std::time::Duration;

/// A number of permits that all clients share, for threads. See [`crate::Semaphore`].
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// let connections = client.semaphore("connections");
/// connections.try_set_permits(10)?; // has an effect only once
/// connections.acquire()?.release()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) semaphore: crate::Semaphore,
    pub(super) runtime: Arc<Background>,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl Semaphore {
    /// Returns the semaphore's name as stored in Redis. See [`crate::Semaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// Acquires one permit, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<SemaphorePermit> {
        self.acquire_many(1)
    }

    /// Acquires `permits` permits at once, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::acquire_many`].
    pub fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        self.block_on(self.semaphore.acquire_many(permits)).map(|permit| self.permit(permit))
    }

    /// Acquires one permit if it is free, with a single attempt.
    ///
    /// Returns `None` if no permit is free or if other threads of this client wait.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many(1)
    }

    /// Acquires `permits` permits at once if they are free, with a single attempt.
    ///
    /// Returns `None` if too few permits are free or if other threads of this client wait.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_acquire_many`].
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire_many(permits))?.map(|permit| self.permit(permit)))
    }

    /// Acquires one permit, waiting for at most `wait`.
    ///
    /// Returns `None` if no permit became free. A `wait` of zero means [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_acquire_for`].
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many_for(1, wait)
    }

    /// Acquires `permits` permits at once, waiting for at most `wait`.
    ///
    /// Returns `None` if too few permits became free. A `wait` of zero means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_acquire_many_for`].
    pub fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<SemaphorePermit>> {
        let permit = self.block_on(self.semaphore.try_acquire_many_for(permits, wait))?;
        Ok(permit.map(|permit| self.permit(permit)))
    }

    /// Releases `permits` permits for which no guard exists, for example after [`SemaphorePermit::forget`]. Creates the semaphore if it
    /// does not exist.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::release`].
    pub fn release(&self, permits: u32) -> Result<()> {
        self.block_on(self.semaphore.release(permits))
    }

    /// Releases `permits` permits for which no guard exists, unless the semaphore does not exist. Returns `true` if it existed.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::release_if_exists`].
    pub fn release_if_exists(&self, permits: u32) -> Result<bool> {
        self.block_on(self.semaphore.release_if_exists(permits))
    }

    /// Returns how many permits are free.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::available_permits`].
    pub fn available_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.available_permits())
    }

    /// Creates the semaphore with `permits` permits, unless it exists.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_set_permits`].
    pub fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits(permits))
    }

    /// If the semaphore does not exist, creates it with `permits` permits; Redis deletes it after `time`.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::try_set_permits_for`].
    pub fn try_set_permits_for(&self, permits: u32, time: Duration) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits_for(permits, time))
    }

    /// Adds `permits` permits, or removes them if the number is negative. Returns how many permits are then free.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::add_permits`].
    pub fn add_permits(&self, permits: i32) -> Result<i64> {
        self.block_on(self.semaphore.add_permits(permits))
    }

    /// Removes all free permits permanently, and returns their number. A negative number becomes 0, too.
    ///
    /// # Errors
    /// As for [`crate::Semaphore::drain_permits`].
    pub fn drain_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.drain_permits())
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn permit(&self, permit: crate::SemaphorePermit) -> SemaphorePermit {
        SemaphorePermit { permit, runtime: self.runtime.clone() }
    }
}

/// Permits of a [`Semaphore`], for threads. See [`crate::SemaphorePermit`].
///
/// Dropped permits are released in the background.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// if let Some(permit) = client.semaphore("connections").try_acquire_many(3)? {
///     println!("{} permits", permit.permits());
///     permit.release()?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the permits are released as soon as this is dropped"]
pub struct SemaphorePermit {
    // Fields drop in this order, so the runtime gets the release before it can end.
    permit: crate::SemaphorePermit,
    runtime: Arc<Background>,
}

impl SemaphorePermit {
    /// Returns the number of permits. See [`crate::SemaphorePermit::permits`].
    pub fn permits(&self) -> u32 {
        self.permit.permits()
    }

    /// Releases the permits.
    ///
    /// # Errors
    /// As for [`crate::SemaphorePermit::release`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn release(self) -> Result<()> {
        self.runtime.block_on(self.permit.release())
    }

    /// Drops the guard without a release. The permits stay taken until [`Semaphore::release`] releases them. See
    /// [`crate::SemaphorePermit::forget`].
    pub fn forget(self) {
        self.permit.forget();
    }
}

/// Permits with ids and leases, for threads. See [`crate::ExpirableSemaphore`].
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use std::time::Duration;
/// let downloads = client.expirable_semaphore("downloads").with_lease(Duration::from_secs(60));
/// downloads.try_set_permits(4)?; // has an effect only once
/// downloads.acquire()?.release()?; // a permit of a dead process is free after 60 s
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct ExpirableSemaphore {
    pub(super) semaphore: crate::ExpirableSemaphore,
    pub(super) runtime: Arc<Background>,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl ExpirableSemaphore {
    /// Returns this semaphore with a fixed lease for its permits, which the watchdog does not renew. See
    /// [`crate::ExpirableSemaphore::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { semaphore: self.semaphore.with_lease(lease), runtime: self.runtime.clone() }
    }

    /// Returns this semaphore with permits that do not expire. The permits of a dead holder stay taken. See
    /// [`crate::ExpirableSemaphore::without_lease`].
    pub fn without_lease(&self) -> Self {
        Self { semaphore: self.semaphore.without_lease(), runtime: self.runtime.clone() }
    }

    /// Returns the semaphore's name as stored in Redis. See [`crate::ExpirableSemaphore::name`].
    pub fn name(&self) -> &str {
        self.semaphore.name()
    }

    /// Acquires one permit, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::acquire`].
    pub fn acquire(&self) -> Result<ExpirablePermit> {
        self.acquire_many(1)
    }

    /// Acquires `permits` permits at once, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::acquire_many`].
    pub fn acquire_many(&self, permits: u32) -> Result<ExpirablePermit> {
        self.block_on(self.semaphore.acquire_many(permits)).map(|permit| self.permit(permit))
    }

    /// Acquires one permit if it is free, with a single attempt.
    ///
    /// Returns `None` if no permit is free or if other threads of this client wait.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<ExpirablePermit>> {
        self.try_acquire_many(1)
    }

    /// Acquires `permits` permits at once if they are free, with a single attempt.
    ///
    /// Returns `None` if too few permits are free or if other threads of this client wait.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::try_acquire_many`].
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<ExpirablePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire_many(permits))?.map(|permit| self.permit(permit)))
    }

    /// Acquires one permit, waiting for at most `wait`.
    ///
    /// Returns `None` if no permit became free. A `wait` of zero means [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::try_acquire_for`].
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<ExpirablePermit>> {
        self.try_acquire_many_for(1, wait)
    }

    /// Acquires `permits` permits at once, waiting for at most `wait`.
    ///
    /// Returns `None` if too few permits became free. A `wait` of zero means [`try_acquire_many`](Self::try_acquire_many).
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::try_acquire_many_for`].
    pub fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<ExpirablePermit>> {
        let permit = self.block_on(self.semaphore.try_acquire_many_for(permits, wait))?;
        Ok(permit.map(|permit| self.permit(permit)))
    }

    /// Releases the permit `id`, whichever client or process took it. Returns `false` if the permit was not taken.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::release`].
    pub fn release(&self, id: impl AsRef<str>) -> Result<bool> {
        self.block_on(self.semaphore.release(id))
    }

    /// Returns the time until the lease of the permit `id` ends unless it is renewed, or `None` if the permit is not taken.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::remaining_lease`].
    pub fn remaining_lease(&self, id: impl AsRef<str>) -> Result<Option<Duration>> {
        self.block_on(self.semaphore.remaining_lease(id))
    }

    /// Replaces the lease of the permit `id`: it ends `lease` from now. Returns `false` if the permit is not taken.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::update_lease`].
    pub fn update_lease(&self, id: impl AsRef<str>, lease: Duration) -> Result<bool> {
        self.block_on(self.semaphore.update_lease(id, lease))
    }

    /// Returns how many permits are free. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::available_permits`].
    pub fn available_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.available_permits())
    }

    /// Returns how many permits are taken. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::acquired_permits`].
    pub fn acquired_permits(&self) -> Result<u64> {
        self.block_on(self.semaphore.acquired_permits())
    }

    /// Returns the number of all permits, free and taken. First frees the permits whose leases have expired.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::permits`].
    pub fn permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.permits())
    }

    /// Sets the number of all permits, free and taken, and returns how many are then free. Creates the semaphore if it does not exist.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::set_permits`].
    pub fn set_permits(&self, permits: u32) -> Result<i64> {
        self.block_on(self.semaphore.set_permits(permits))
    }

    /// Creates the semaphore with `permits` permits, unless it exists.
    ///
    /// Returns `true` if this call created it.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::try_set_permits`].
    pub fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits(permits))
    }

    /// Adds `permits` permits, or removes them if the number is negative. Returns how many permits are then free.
    ///
    /// # Errors
    /// As for [`crate::ExpirableSemaphore::add_permits`].
    pub fn add_permits(&self, permits: i32) -> Result<i64> {
        self.block_on(self.semaphore.add_permits(permits))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn permit(&self, permit: crate::ExpirablePermit) -> ExpirablePermit {
        ExpirablePermit { permit, runtime: self.runtime.clone() }
    }
}

/// Permits of an [`ExpirableSemaphore`], for threads. See [`crate::ExpirablePermit`].
///
/// Dropped permits are released in the background.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// let permit = client.expirable_semaphore("downloads").acquire()?;
/// println!("permit {:?} lasts for {:?}", permit.ids(), permit.validity());
/// permit.release()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the permits are released as soon as this is dropped"]
pub struct ExpirablePermit {
    // Fields drop in this order, so the runtime gets the release before it can end.
    permit: crate::ExpirablePermit,
    runtime: Arc<Background>,
}

impl ExpirablePermit {
    /// Returns the ids of the permits in the form that Redisson's methods use: each id's bytes in hexadecimal. See
    /// [`crate::ExpirablePermit::ids`].
    pub fn ids(&self) -> Vec<String> {
        self.permit.ids()
    }

    /// Releases the permits.
    ///
    /// # Errors
    /// As for [`crate::ExpirablePermit::release`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn release(self) -> Result<()> {
        self.runtime.block_on(self.permit.release())
    }

    /// Drops the guard without a release. The permits stay taken until their lease ends, if they have one. See
    /// [`crate::ExpirablePermit::forget`].
    pub fn forget(self) {
        self.permit.forget();
    }
}

status_methods!(ExpirablePermit, permit);
lost_for!(ExpirablePermit, runtime);
