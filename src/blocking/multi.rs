//! Locks of several locks, for threads.

use super::{Background, Lock};
use crate::MultiHolding;
use crate::error::Result;
use crate::owner::Owner;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// The runtimes of all clients that have a part in it. The first one waits.
#[derive(Clone, Debug)]
struct Runtimes(Arc<[Arc<Background>]>);

impl Runtimes {
    /// With the locks that its clients run.
    fn of(locks: impl IntoIterator<Item = Lock>) -> (Vec<crate::Lock>, Self) {
        let (locks, runtimes): (Vec<_>, Vec<_>) =
            locks.into_iter().map(|Lock { lock, runtime }| (lock, runtime)).unzip();
        (locks, Self(runtimes.into()))
    }

    fn block_on<T>(&self, asked: impl Future<Output = T>) -> T {
        // There is no lock of no locks.
        self.0[0].get().block_on(asked)
    }

    fn guard(&self, guard: crate::MultiLockGuard) -> MultiLockGuard {
        MultiLockGuard { guard, runtimes: self.clone() }
    }
}

/// [`crate::MultiLock`] for threads. The owner is the calling thread.
#[derive(Clone, Debug)]
pub struct MultiLock {
    lock: crate::MultiLock,
    runtimes: Runtimes,
}

/// All but `new` and those that begin with `with` block the thread, and panic if called from inside async code; errors are those
/// of [`crate::MultiLock`].
impl MultiLock {
    /// See [`crate::MultiLock::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let (locks, runtimes) = Runtimes::of(locks);
        Ok(Self { lock: crate::MultiLock::new(locks)?, runtimes })
    }

    /// See [`crate::MultiLock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), ..self.clone() }
    }

    /// See [`crate::MultiLock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), ..self.clone() }
    }

    /// See [`crate::MultiLock::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.runtimes.block_on(self.lock.lock()).map(|guard| self.runtimes.guard(guard))
    }

    /// See [`crate::MultiLock::try_lock`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock())?.map(|guard| self.runtimes.guard(guard)))
    }

    /// See [`crate::MultiLock::try_lock_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.runtimes.guard(guard)))
    }
}

/// [`crate::RedLock`] for threads. The owner is the calling thread.
#[derive(Clone, Debug)]
pub struct RedLock {
    lock: crate::RedLock,
    runtimes: Runtimes,
}

/// All but `new` and those that begin with `with` block the thread, and panic if called from inside async code; errors are those
/// of [`crate::RedLock`].
impl RedLock {
    /// See [`crate::RedLock::new`].
    ///
    /// # Errors
    /// As there.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let (locks, runtimes) = Runtimes::of(locks);
        Ok(Self { lock: crate::RedLock::new(locks)?, runtimes })
    }

    /// See [`crate::RedLock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), ..self.clone() }
    }

    /// See [`crate::RedLock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), ..self.clone() }
    }

    /// See [`crate::RedLock::with_node_timeout`].
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { lock: self.lock.with_node_timeout(timeout), ..self.clone() }
    }

    /// See [`crate::RedLock::with_minimum_validity`].
    pub fn with_minimum_validity(&self, validity: Duration) -> Self {
        Self { lock: self.lock.with_minimum_validity(validity), ..self.clone() }
    }

    /// See [`crate::RedLock::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.runtimes.block_on(self.lock.lock()).map(|guard| self.runtimes.guard(guard))
    }

    /// See [`crate::RedLock::try_lock`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock())?.map(|guard| self.runtimes.guard(guard)))
    }

    /// See [`crate::RedLock::try_lock_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.runtimes.guard(guard)))
    }
}

/// [`crate::MultiLockGuard`] for threads. Dropping it releases in the background.
#[derive(Debug)]
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiLockGuard {
    // Dropped in this order: the releases are handed to the runtimes before those can end.
    guard: crate::MultiLockGuard,
    runtimes: Runtimes,
}

impl MultiLockGuard {
    /// See [`crate::MultiLockGuard::unlock`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn unlock(self) -> Result<()> {
        self.runtimes.block_on(self.guard.unlock())
    }
}

impl Deref for MultiLockGuard {
    type Target = MultiHolding;
    fn deref(&self) -> &MultiHolding {
        &self.guard
    }
}
