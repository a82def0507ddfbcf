//! Semaphores and latches for threads.

use super::Background;
use crate::error::Result;
use crate::guard::Holding;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// [`crate::Semaphore`] for threads.
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) semaphore: crate::Semaphore,
    pub(super) runtime: Arc<Background>,
}

/// All of these block the thread, and panic if called from inside async code; errors are those of [`crate::Semaphore`].
impl Semaphore {
    /// See [`crate::Semaphore::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<SemaphorePermit> {
        self.acquire_many(1)
    }

    /// See [`crate::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit> {
        self.block_on(self.semaphore.acquire_many(permits)).map(|permit| self.permit(permit))
    }

    /// See [`crate::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<SemaphorePermit>> {
        self.try_acquire_many(1)
    }

    /// See [`crate::Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<SemaphorePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire_many(permits))?.map(|permit| self.permit(permit)))
    }

    /// See [`crate::Semaphore::try_acquire_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<SemaphorePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire_for(permits, wait))?.map(|permit| self.permit(permit)))
    }

    /// See [`crate::Semaphore::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(&self, permits: u32) -> Result<()> {
        self.block_on(self.semaphore.release(permits))
    }

    /// See [`crate::Semaphore::available_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn available_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.available_permits())
    }

    /// See [`crate::Semaphore::try_set_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits(permits))
    }

    /// See [`crate::Semaphore::try_set_permits_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_set_permits_for(&self, permits: u32, time: Duration) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits_for(permits, time))
    }

    /// See [`crate::Semaphore::add_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn add_permits(&self, permits: i32) -> Result<i64> {
        self.block_on(self.semaphore.add_permits(permits))
    }

    /// See [`crate::Semaphore::drain_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn drain_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.drain_permits())
    }

    fn block_on<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.get().block_on(asked)
    }

    fn permit(&self, permit: crate::SemaphorePermit) -> SemaphorePermit {
        SemaphorePermit { permit, runtime: self.runtime.clone() }
    }
}

/// [`crate::SemaphorePermit`] for threads. Dropping it gives back in the background.
#[derive(Debug)]
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct SemaphorePermit {
    // Dropped in this order: the release is handed to the runtime before that can end.
    permit: crate::SemaphorePermit,
    runtime: Arc<Background>,
}

impl SemaphorePermit {
    /// See [`crate::SemaphorePermit::permits`].
    pub fn permits(&self) -> u32 {
        self.permit.permits()
    }

    /// See [`crate::SemaphorePermit::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn release(self) -> Result<()> {
        self.runtime.get().block_on(self.permit.release())
    }

    /// See [`crate::SemaphorePermit::forget`].
    pub fn forget(self) {
        self.permit.forget();
    }
}

/// [`crate::ExpirableSemaphore`] for threads.
#[derive(Clone, Debug)]
pub struct ExpirableSemaphore {
    pub(super) semaphore: crate::ExpirableSemaphore,
    pub(super) runtime: Arc<Background>,
}

/// All of these block the thread, and panic if called from inside async code; errors are those of
/// [`crate::ExpirableSemaphore`].
impl ExpirableSemaphore {
    /// See [`crate::ExpirableSemaphore::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { semaphore: self.semaphore.with_lease(lease), runtime: self.runtime.clone() }
    }

    /// See [`crate::ExpirableSemaphore::without_lease`].
    pub fn without_lease(&self) -> Self {
        Self { semaphore: self.semaphore.without_lease(), runtime: self.runtime.clone() }
    }

    /// See [`crate::ExpirableSemaphore::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<ExpirablePermit> {
        self.acquire_many(1)
    }

    /// See [`crate::ExpirableSemaphore::acquire_many`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire_many(&self, permits: u32) -> Result<ExpirablePermit> {
        self.block_on(self.semaphore.acquire_many(permits)).map(|permit| self.permit(permit))
    }

    /// See [`crate::ExpirableSemaphore::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<ExpirablePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire())?.map(|permit| self.permit(permit)))
    }

    /// See [`crate::ExpirableSemaphore::try_acquire_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire_for(&self, permits: u32, wait: Duration) -> Result<Option<ExpirablePermit>> {
        Ok(self.block_on(self.semaphore.try_acquire_for(permits, wait))?.map(|permit| self.permit(permit)))
    }

    /// See [`crate::ExpirableSemaphore::available_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn available_permits(&self) -> Result<i64> {
        self.block_on(self.semaphore.available_permits())
    }

    /// See [`crate::ExpirableSemaphore::try_set_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.block_on(self.semaphore.try_set_permits(permits))
    }

    /// See [`crate::ExpirableSemaphore::add_permits`].
    ///
    /// # Errors
    /// As there.
    pub fn add_permits(&self, permits: i32) -> Result<i64> {
        self.block_on(self.semaphore.add_permits(permits))
    }

    fn block_on<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.get().block_on(asked)
    }

    fn permit(&self, permit: crate::ExpirablePermit) -> ExpirablePermit {
        ExpirablePermit { permit, runtime: self.runtime.clone() }
    }
}

/// [`crate::ExpirablePermit`] for threads. Dropping it gives back in the background.
#[derive(Debug)]
#[must_use = "the permits are given back as soon as this is dropped"]
pub struct ExpirablePermit {
    // Dropped in this order: the release is handed to the runtime before that can end.
    permit: crate::ExpirablePermit,
    runtime: Arc<Background>,
}

impl ExpirablePermit {
    /// See [`crate::ExpirablePermit::ids`].
    pub fn ids(&self) -> Vec<String> {
        self.permit.ids()
    }

    /// See [`crate::ExpirablePermit::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn release(self) -> Result<()> {
        self.runtime.get().block_on(self.permit.release())
    }

    /// See [`crate::ExpirablePermit::forget`].
    pub fn forget(self) {
        self.permit.forget();
    }
}

impl Deref for ExpirablePermit {
    type Target = Holding;
    fn deref(&self) -> &Holding {
        &self.permit
    }
}

/// [`crate::CountDownLatch`] for threads.
#[derive(Clone, Debug)]
pub struct CountDownLatch {
    pub(super) latch: crate::CountDownLatch,
    pub(super) runtime: Arc<Background>,
}

/// All of these block the thread, and panic if called from inside async code; errors are those of
/// [`crate::CountDownLatch`].
impl CountDownLatch {
    /// See [`crate::CountDownLatch::try_set_count`].
    ///
    /// # Errors
    /// As there.
    pub fn try_set_count(&self, count: u32) -> Result<bool> {
        self.block_on(self.latch.try_set_count(count))
    }

    /// See [`crate::CountDownLatch::count_down`].
    ///
    /// # Errors
    /// As there.
    pub fn count_down(&self) -> Result<()> {
        self.block_on(self.latch.count_down())
    }

    /// See [`crate::CountDownLatch::count`].
    ///
    /// # Errors
    /// As there.
    pub fn count(&self) -> Result<u64> {
        self.block_on(self.latch.count())
    }

    /// See [`crate::CountDownLatch::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<()> {
        self.block_on(self.latch.wait())
    }

    /// See [`crate::CountDownLatch::wait_for`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.block_on(self.latch.wait_for(wait))
    }

    /// See [`crate::CountDownLatch::delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(&self) -> Result<bool> {
        self.block_on(self.latch.delete())
    }

    fn block_on<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.get().block_on(asked)
    }
}
