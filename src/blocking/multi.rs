//! Composite locks for threads: [`MultiLock`] and [`RedLock`].

use super::background::Background;
use super::guard::{lost_for, run_held, run_methods};
use super::lock::Lock;
use crate::error::Result;
use crate::owner::Owner;
use crate::status::{HoldStatus, status_methods};
use std::sync::Arc;
use std::time::Duration;

/// The runtimes of all clients whose locks are members. The first one blocks on the calls.
#[derive(Clone, Debug)]
struct Runtimes(Arc<[Arc<Background>]>);

impl Runtimes {
    /// Separates blocking locks into their async locks and the runtimes of these.
    fn split(locks: impl IntoIterator<Item = Lock>) -> (Vec<crate::Lock>, Self) {
        let (locks, runtimes): (Vec<_>, Vec<_>) =
            locks.into_iter().map(|Lock { lock, runtime }| (lock, runtime)).unzip();
        (locks, Self(runtimes.into()))
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        // A composite lock has at least one member.
        self.0[0].block_on(future)
    }

    fn guard(&self, guard: crate::MultiLockGuard) -> MultiLockGuard {
        MultiLockGuard { guard, runtimes: self.clone() }
    }
}

/// Several locks that are acquired and released as one, for threads. See [`crate::MultiLock`].
///
/// The owner is the calling thread.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::blocking::MultiLock;
/// let both = MultiLock::new([client.lock("from"), client.lock("to")])?;
/// both.run(|_| println!("both are held"))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct MultiLock {
    lock: crate::MultiLock,
    runtimes: Runtimes,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl MultiLock {
    /// Creates a multi lock from `locks`, with their leases and their owner.
    ///
    /// # Errors
    /// As for [`crate::MultiLock::new`].
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let (locks, runtimes) = Runtimes::split(locks);
        Ok(Self { lock: crate::MultiLock::new(locks)?, runtimes })
    }

    /// Returns this multi lock with a fixed lease for each lock, which the watchdog does not renew (see [`Lock::with_lease`]).
    /// See [`crate::MultiLock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), ..self.clone() }
    }

    /// Returns this multi lock with `owner` as its owner, in place of the calling thread. See [`crate::MultiLock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), ..self.clone() }
    }

    /// Acquires all locks, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::MultiLock::lock`].
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.runtimes.block_on(self.lock.lock()).map(|guard| self.runtimes.guard(guard))
    }

    /// Acquires all locks if they are free, with a single attempt for each.
    ///
    /// Returns `None` if another owner holds one of them.
    ///
    /// # Errors
    /// As for [`crate::MultiLock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock())?.map(|guard| self.runtimes.guard(guard)))
    }

    /// Acquires all locks, waiting for at most `wait` in total.
    ///
    /// Returns `None` if one of them stayed busy. A `wait` of zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`crate::MultiLock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.runtimes.guard(guard)))
    }
}

run_methods!(MultiLock,);

/// A lock on several independent servers, for threads. See [`crate::RedLock`].
///
/// The owner is the calling thread.
///
/// ```no_run
/// # fn f() -> redisson_lock::Result<()> {
/// use redisson_lock::blocking::{Client, RedLock};
/// let urls = ["redis://10.0.0.1/", "redis://10.0.0.2/", "redis://10.0.0.3/"];
/// let clients = urls.map(Client::connect).into_iter().collect::<Result<Vec<_>, _>>()?;
/// let lock = RedLock::new(clients.iter().map(|client| client.lock("orders:42")))?;
/// lock.lock()?.unlock()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct RedLock {
    lock: crate::RedLock,
    runtimes: Runtimes,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl RedLock {
    /// Creates a red lock from `locks`, with their leases and their owner.
    ///
    /// # Errors
    /// As for [`crate::RedLock::new`].
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let (locks, runtimes) = Runtimes::split(locks);
        Ok(Self { lock: crate::RedLock::new(locks)?, runtimes })
    }

    /// Returns this red lock with a fixed lease for each lock, which the watchdog does not renew (see [`Lock::with_lease`]).
    /// See [`crate::RedLock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), ..self.clone() }
    }

    /// Returns this red lock with `owner` as its owner, in place of the calling thread. See [`crate::RedLock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), ..self.clone() }
    }

    /// Returns this red lock with another limit for the reply of a server in each attempt. Default 50 ms. See
    /// [`crate::RedLock::with_node_timeout`].
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { lock: self.lock.with_node_timeout(timeout), ..self.clone() }
    }

    /// Returns this red lock with a minimum [validity](MultiLockGuard::validity) for a guard to be returned. Default 0. See
    /// [`crate::RedLock::with_minimum_validity`].
    pub fn with_minimum_validity(&self, validity: Duration) -> Self {
        Self { lock: self.lock.with_minimum_validity(validity), ..self.clone() }
    }

    /// Acquires the lock, waiting without a limit.
    ///
    /// # Errors
    /// As for [`crate::RedLock::lock`].
    pub fn lock(&self) -> Result<MultiLockGuard> {
        self.runtimes.block_on(self.lock.lock()).map(|guard| self.runtimes.guard(guard))
    }

    /// Acquires the lock if it is free, with a single attempt at each server.
    ///
    /// Returns `None` if other owners hold the lock at so many servers that a majority is impossible.
    ///
    /// # Errors
    /// As for [`crate::RedLock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock())?.map(|guard| self.runtimes.guard(guard)))
    }

    /// Acquires the lock, waiting for at most `wait`.
    ///
    /// If no attempt succeeded, returns `None` if other owners prevented a majority in the last complete attempt, and the error of that
    /// attempt otherwise. A `wait` of zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`crate::RedLock::try_lock_for`].
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        Ok(self.runtimes.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.runtimes.guard(guard)))
    }
}

run_methods!(RedLock,);

/// The locks that a [`MultiLock`] or a [`RedLock`] has acquired, for threads. See [`crate::MultiLockGuard`].
///
/// A dropped guard releases its locks in the background.
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::blocking::MultiLock;
/// let guard = MultiLock::new([client.mutex("from"), client.mutex("to")])?.lock()?;
/// for member in guard.members() {
///     println!("{} is {:?}", member.name(), member.state());
/// }
/// guard.unlock()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiLockGuard {
    // Fields drop in this order, so the runtimes get the releases before they can end.
    guard: crate::MultiLockGuard,
    runtimes: Runtimes,
}

impl MultiLockGuard {
    /// Returns the holds that count towards the required number. See [`HoldStatus::members`].
    pub fn members(&self) -> &[HoldStatus] {
        self.guard.members()
    }

    /// Releases all locks at once.
    ///
    /// # Errors
    /// As for [`crate::MultiLockGuard::unlock`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn unlock(self) -> Result<()> {
        self.runtimes.block_on(self.guard.unlock())
    }

    fn run<T>(self, body: impl FnOnce(HoldStatus) -> T) -> Result<T> {
        self.runtimes.block_on(run_held(self.guard.status(), body, self.guard.unlock()))
    }
}

status_methods!(MultiLockGuard, guard);
lost_for!(MultiLockGuard, runtimes);
