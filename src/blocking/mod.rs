//! The API for threads without an async runtime.
//!
//! The owner of a lock is the calling thread, which re-enters its own holds, as a Java thread does. A [`Client`] owns a tokio
//! runtime with one thread for its background work.
//!
//! Calls block the thread. Inside async code they panic, as tokio's `block_on` does. From async code, call them in `spawn_blocking`.

mod latch;
mod locks;
mod loss;
mod map_entry;
mod multi;
mod permits;

pub use latch::CountDownLatch;
pub use map_entry::MapEntry;
pub use multi::{MultiLock, MultiLockGuard, RedLock};
pub use permits::{ExpirablePermit, ExpirableSemaphore, Semaphore, SemaphorePermit};

use crate::connection::Servers;
use crate::error::{Holder, Result};
use crate::guard::end_run;
use crate::kinds::kind::Inspection;
use crate::owner::Owner;
use crate::status::{HoldStatus, status_methods};
use loss::lost_for;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A connection to Redis that creates lock handles for threads. See [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<Background>,
}

impl Client {
    /// Connects to Redis with the default settings.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(crate::Client::builder(), url)
    }

    /// Connects to `servers` with the settings of `builder`. See [`crate::ClientBuilder::connect_with`].
    ///
    /// ```no_run
    /// # fn f() -> redisson_lock::Result<()> {
    /// use redisson_lock::{Client, blocking};
    /// use std::time::Duration;
    /// let builder = Client::builder().response_timeout(Duration::from_secs(1));
    /// let client = blocking::Client::connect_with(builder, "redis://127.0.0.1/")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`crate::ClientBuilder::connect_with`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn connect_with(builder: crate::ClientBuilder, servers: impl Into<Servers>) -> Result<Self> {
        Self::start(|runtime| runtime.block_on(builder.connect_with(servers)))
    }

    /// Returns a client that connects to `servers` in the background. See [`crate::ClientBuilder::connect_lazy`].
    ///
    /// # Errors
    /// As for [`crate::ClientBuilder::connect_lazy`].
    pub fn connect_lazy(builder: crate::ClientBuilder, servers: impl Into<Servers>) -> Result<Self> {
        Self::start(|runtime| {
            let _entered = runtime.enter();
            builder.connect_lazy(servers)
        })
    }

    fn start(connect: impl FnOnce(&Runtime) -> Result<crate::Client>) -> Result<Self> {
        let mut runtime = Background::start()?;
        let client = connect(runtime.get())?;
        runtime.client = Some(client.clone());
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// Returns the reentrant lock `name`, owned by the calling thread. See [`crate::Client::lock`].
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.lock(name))
    }

    /// Returns the mutex `name`. Each guard is its own owner. See [`crate::Client::mutex`].
    ///
    /// A second acquire by the same thread waits, too.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock { lock: self.client.mutex(name), runtime: self.runtime.clone() }
    }

    /// Returns the fair lock `name`, which serves waiters of all clients in order of arrival. See [`crate::Client::fair_lock`].
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.fair_lock(name))
    }

    /// Returns the fenced lock `name`, whose guards carry a fencing [token](crate::LockGuard::token). See
    /// [`crate::Client::fenced_lock`].
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.fenced_lock(name))
    }

    /// Returns the spin lock `name`, which sends no messages. See [`crate::Client::spin_lock`].
    pub fn spin_lock(&self, name: impl AsRef<str>, back_off: crate::BackOff) -> Lock {
        self.for_thread(&self.client.spin_lock(name, back_off))
    }

    /// Returns the non-reentrant lock `name`: a [`lock`](Self::lock) that its owner cannot acquire twice. See
    /// [`crate::Client::non_reentrant_lock`].
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.non_reentrant_lock(name))
    }

    /// Returns the non-reentrant fair lock `name`: a [`fair_lock`](Self::fair_lock) that its owner cannot acquire twice. See
    /// [`crate::Client::non_reentrant_fair_lock`].
    pub fn non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.non_reentrant_fair_lock(name))
    }

    /// Returns the read/write lock `name`: any number of readers, or one writer. See [`crate::Client::read_write_lock`].
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        self.read_write_for_thread(&self.client.read_write_lock(name))
    }

    /// Returns the value lock `name`: the classic Redis lock, a string that `SET name token NX PX lease` creates. See
    /// [`crate::Client::value_lock`].
    pub fn value_lock(&self, name: impl AsRef<str>) -> Lock {
        self.for_thread(&self.client.value_lock(name))
    }

    /// Returns the semaphore `name`. Create it once with [`Semaphore::try_set_permits`]. See [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore { semaphore: self.client.semaphore(name), runtime: self.runtime.clone() }
    }

    /// Returns the expirable semaphore `name`, whose permits have ids and leases. See [`crate::Client::expirable_semaphore`].
    pub fn expirable_semaphore(&self, name: impl AsRef<str>) -> ExpirableSemaphore {
        ExpirableSemaphore { semaphore: self.client.expirable_semaphore(name), runtime: self.runtime.clone() }
    }

    /// Returns the count-down latch `name`. Create it once with [`CountDownLatch::try_set_count`]. See
    /// [`crate::Client::count_down_latch`].
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch { latch: self.client.count_down_latch(name), runtime: self.runtime.clone() }
    }

    /// Returns a lock on `values` of a group: it acquires all of them or none. See [`crate::Client::group_lock`].
    pub fn group_lock(
        &self,
        group: impl AsRef<str>,
        values: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Lock {
        self.for_thread(&self.client.group_lock(group, values))
    }

    /// Returns the locks, semaphores and latches that Redisson associates with one key of a map. See [`crate::Client::map_entry`].
    pub fn map_entry(&self, map: impl AsRef<str>, key: impl AsRef<[u8]>) -> MapEntry {
        MapEntry { entry: self.client.map_entry(map, key), client: self.clone() }
    }

    fn for_thread(&self, lock: &crate::Lock) -> Lock {
        Lock { lock: lock.with_thread(), runtime: self.runtime.clone() }
    }

    fn read_write_for_thread(&self, lock: &crate::ReadWriteLock) -> ReadWriteLock {
        ReadWriteLock { read: self.for_thread(lock.read()), write: self.for_thread(lock.write()) }
    }

    /// Returns the UUID that identifies this client in owner ids.
    pub fn id(&self) -> uuid::Uuid {
        self.client.id()
    }

    /// Returns whether the client is connected. See [`crate::Client::is_connected`].
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    /// Waits for the server to answer a `PING`. See [`crate::Client::ping`].
    ///
    /// # Errors
    /// As for [`crate::Client::ping`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn ping(&self) -> Result<()> {
        self.runtime.get().block_on(self.client.ping())
    }

    /// Waits for pending releases, and then closes the client. See [`crate::Client::close`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn close(&self) {
        self.runtime.get().block_on(self.client.close());
    }
}

/// A lock with an owner, for threads. See [`crate::Lock`].
///
/// The owner is the calling thread. The owner of a [mutex](Client::mutex) is its guard.
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct Lock {
    lock: crate::Lock,
    runtime: Arc<Background>,
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

    /// Acquires the lock, runs `body` in this thread, and releases the lock.
    ///
    /// Nothing can cancel a running thread: between its steps, `body` should compare [`HoldStatus::state`] with what it is about to do. If the
    /// hold was lost before the lock was released, the value of `body` is discarded and the call fails.
    ///
    /// # Errors
    /// As for [`crate::Lock::run`].
    pub fn run<T>(&self, body: impl FnOnce(HoldStatus) -> T) -> Result<T> {
        self.lock()?.run(body)
    }

    /// Acquires the lock, waiting for at most `wait`, runs `body` in this thread as [`run`](Self::run) does, and releases the lock.
    ///
    /// Returns `None`, without a call of `body`, if [`try_lock_for`](Self::try_lock_for) would.
    ///
    /// # Errors
    /// As for [`crate::Lock::try_run_for`].
    pub fn try_run_for<T>(&self, wait: Duration, body: impl FnOnce(HoldStatus) -> T) -> Result<Option<T>> {
        self.try_lock_for(wait)?.map(|guard| guard.run(body)).transpose()
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
        self.runtime.get().block_on(future)
    }

    fn guard(&self, guard: crate::LockGuard) -> LockGuard {
        LockGuard { guard, runtime: self.runtime.clone() }
    }
}

/// A read/write lock for threads. See [`crate::ReadWriteLock`].
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
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
        self.runtime.get().block_on(self.guard.unlock())
    }

    fn run<T>(self, body: impl FnOnce(HoldStatus) -> T) -> Result<T> {
        let status = self.guard.status();
        let value = body(status.clone());
        self.runtime.get().block_on(end_run(&status, Some(value), self.guard.unlock()))
    }
}

status_methods!(LockGuard, guard.status);
lost_for!(LockGuard, runtime);

/// The runtime of a client's background work. Dropping it does not block.
#[derive(Debug)]
struct Background {
    runtime: Option<Runtime>,
    client: Option<crate::Client>,
}

impl Background {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redisson-lock")
            .enable_all()
            .build()
            .map_err(|e| {
                crate::Error::misuse(format!(
                    "cannot start a thread for the client's runtime ({e}): raise the process's limits on threads and memory"
                ))
            })?;
        Ok(Self { runtime: Some(runtime), client: None })
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.get().block_on(future)
    }

    fn get(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("only `drop` takes the runtime"),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let (Some(runtime), client) = (self.runtime.take(), self.client.take()) else { return };
        let Some(client) = client else { return runtime.shutdown_background() };
        // Releases of guards that were just dropped are still unsent, so the runtime's own thread waits for them.
        let handle = runtime.handle().clone();
        let ending = async move {
            client.close().await;
            std::thread::spawn(move || runtime.shutdown_background());
        };
        handle.spawn(ending);
    }
}
