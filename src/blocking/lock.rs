//! Locks for threads: [`Lock`], its guard, and [`ReadWriteLock`].

use super::background::Background;
use super::guard::{lost_for, run_held, run_methods};
use crate::error::Result;
use crate::holder::Holder;
use crate::kinds::kind::Inspection;
use crate::owner::Owner;
use crate::status::{HoldStatus, status_methods};
use std::sync::Arc;
use std::time::Duration;

/// A lock with an owner, for threads. See [`crate::Lock`].
///
/// The owner is the calling thread. The owner of a [mutex](super::Client::mutex) is its guard.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use std::time::Duration;
/// match client.lock("orders:42").try_lock_for(Duration::from_secs(2))? {
///     Some(guard) => guard.unlock()?,
///     None => println!("busy for two seconds"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct Lock {
    pub(super) lock: crate::Lock,
    pub(super) runtime: Arc<Background>,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl Lock {
    /// Returns this lock with a fixed lease, which the watchdog does not renew. See [`crate::Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), runtime: self.runtime.clone() }
    }

    /// Returns this lock with a limit for each hold, after which the watchdog does not renew it. See [`crate::Lock::with_max_hold`].
    pub fn with_max_hold(&self, max: Duration) -> Self {
        Self { lock: self.lock.with_max_hold(max), runtime: self.runtime.clone() }
    }

    /// Returns this lock with a minimum time for each hold, after which its record ends. See [`crate::Lock::with_min_hold`].
    pub fn with_min_hold(&self, min: Duration) -> Self {
        Self { lock: self.lock.with_min_hold(min), runtime: self.runtime.clone() }
    }

    /// Returns this lock with `owner` as its owner, in place of the calling thread. See [`crate::Lock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), runtime: self.runtime.clone() }
    }

    /// Returns this lock with the pipelined hand-off turned on or off. See [`crate::Lock::with_pipelined_hand_off`].
    pub fn with_pipelined_hand_off(&self, on: bool) -> Self {
        Self { lock: self.lock.with_pipelined_hand_off(on), runtime: self.runtime.clone() }
    }

    /// Returns the lock's name as stored in Redis. See [`crate::Lock::name`].
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// Acquires the lock, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::Lock::lock`].
    pub fn lock(&self) -> Result<LockGuard> {
        self.block_on(self.lock.lock()).map(|guard| self.guard(guard))
    }

    /// Acquires the lock if it is free, with a single attempt.
    ///
    /// Returns `None` if another owner holds the lock.
    ///
    /// # Errors
    /// As for [`crate::Lock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        Ok(self.block_on(self.lock.try_lock())?.map(|guard| self.guard(guard)))
    }

    /// Acquires the lock, waiting for at most `wait`.
    ///
    /// Returns `None` if the lock stayed busy, or if this client yielded it to another client (see
    /// [`HandOff`](crate::HandOff)). A `wait` of zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`crate::Lock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        Ok(self.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.guard(guard)))
    }

    /// Acquires the write side of a [`ReadWriteLock`] with a single attempt, even if the current owner reads.
    ///
    /// Returns `None` if another owner reads or writes.
    ///
    /// # Errors
    /// As for [`crate::Lock::try_upgrade`].
    pub fn try_upgrade(&self) -> Result<Option<LockGuard>> {
        Ok(self.block_on(self.lock.try_upgrade())?.map(|guard| self.guard(guard)))
    }

    /// Returns whether any owner holds the lock.
    ///
    /// # Errors
    /// As for [`crate::Lock::is_locked`].
    pub fn is_locked(&self) -> Result<bool> {
        self.block_on(self.lock.is_locked())
    }

    /// Returns whether the current owner holds the lock, according to the record.
    ///
    /// # Errors
    /// As for [`crate::Lock::is_held`].
    pub fn is_held(&self) -> Result<bool> {
        self.block_on(self.lock.is_held())
    }

    /// Returns how many times the current owner holds the lock, according to the record.
    ///
    /// Returns 0 if the owner does not hold the lock.
    ///
    /// # Errors
    /// As for [`crate::Lock::hold_count`].
    pub fn hold_count(&self) -> Result<u64> {
        self.block_on(self.lock.hold_count())
    }

    /// Returns the time until the lock's lease ends unless it is renewed, regardless of the holder.
    ///
    /// Returns `None` if the lock is free, and [`Duration::MAX`] for a record without an expiry, which Redisson never writes.
    ///
    /// # Errors
    /// As for [`crate::Lock::remaining_lease`].
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        self.block_on(self.lock.remaining_lease())
    }

    /// Returns the current holder and its hold count, or `None` if the lock is free.
    ///
    /// # Errors
    /// As for [`crate::Lock::holder`].
    pub fn holder(&self) -> Result<Option<Holder>> {
        self.block_on(self.lock.holder())
    }

    /// Returns the holders, the remaining lease and the number of waiters, all at the same moment and in one round trip.
    ///
    /// # Errors
    /// As for [`crate::Lock::inspect`].
    pub fn inspect(&self) -> Result<Inspection> {
        self.block_on(self.lock.inspect())
    }

    /// Releases the lock regardless of its holder, and notifies the waiters.
    ///
    /// Returns `true` if the lock was held. A holder that uses this library notices the loss at its next renewal; with a fixed
    /// lease, at its next operation or its deadline. A Java holder notices it when it unlocks.
    ///
    /// # Errors
    /// As for [`crate::Lock::force_unlock`].
    pub fn force_unlock(&self) -> Result<bool> {
        self.block_on(self.lock.force_unlock())
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn guard(&self, guard: crate::LockGuard) -> LockGuard {
        LockGuard { guard, runtime: self.runtime.clone() }
    }
}

run_methods!(
    Lock,
    /// ```no_run
    /// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
    /// let answer = client.mutex("orders:42").run(|hold| {
    ///     if hold.state().is_live() { "protected" } else { "too late" }
    /// })?; // an error if the hold was lost
    /// # Ok(()) }
    /// ```
);

/// A read/write lock for threads. See [`crate::ReadWriteLock`].
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// let prices = client.read_write_lock("prices");
/// prices.read().lock()?.unlock()?; // other readers may hold it, too
/// prices.write().lock()?.unlock()?; // nobody else holds either side
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    pub(super) read: Lock,
    pub(super) write: Lock,
}

impl ReadWriteLock {
    /// Returns the lock's name as stored in Redis. See [`crate::ReadWriteLock::name`].
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// Returns the read side, which readers share. See [`crate::ReadWriteLock::read`].
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// Returns the write side, which excludes every other owner. See [`crate::ReadWriteLock::write`].
    pub fn write(&self) -> &Lock {
        &self.write
    }
}

/// The guard of an acquired lock, for threads. See [`crate::LockGuard`].
///
/// A dropped guard releases the lock in the background.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use std::time::Duration;
/// let guard = client.mutex("nightly-report").lock()?;
/// for step in 0..10 {
///     if let Some(reason) = guard.lost_for(Duration::ZERO) {
///         println!("stopped before step {step}: {reason}");
///         break;
///     }
/// }
/// guard.unlock()?; // an error if the hold was lost
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    // Fields drop in this order, so the runtime gets the release before it can end.
    guard: crate::LockGuard,
    runtime: Arc<Background>,
}

impl LockGuard {
    /// Releases this guard's level. Releasing the last level releases the lock.
    ///
    /// # Errors
    /// As for [`crate::LockGuard::unlock`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn unlock(self) -> Result<()> {
        self.runtime.block_on(self.guard.unlock())
    }

    fn run<T>(self, body: impl FnOnce(HoldStatus) -> T) -> Result<T> {
        self.runtime.block_on(run_held(self.guard.status(), body, self.guard.unlock()))
    }
}

status_methods!(LockGuard, guard);
lost_for!(LockGuard, runtime);
