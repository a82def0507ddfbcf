//! The same API for threads without an async runtime.
//!
//! The owner is the thread: it re-enters what it holds, as a Java thread does. A [`Client`] owns a runtime of one
//! thread for its background work. Its calls block, so they panic inside async code (as tokio's `block_on` does);
//! in `spawn_blocking` they are fine.

mod permits;

pub use permits::{CountDownLatch, ExpirablePermit, ExpirableSemaphore, Semaphore, SemaphorePermit};

use crate::error::{Holder, Result};
use crate::guard::Holding;
use crate::owner::Owner;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

mod multi;

pub use multi::{MultiLock, MultiLockGuard, RedLock};

/// [`crate::Client`] for threads.
#[derive(Clone, Debug)]
pub struct Client {
    client: crate::Client,
    runtime: Arc<Background>,
}

impl Client {
    /// Connects with the default settings. See [`crate::Client::connect`].
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::connect_with(crate::Client::builder(), url)
    }

    /// Connects with the settings of `builder`.
    ///
    /// # Errors
    /// As for [`crate::ClientBuilder::connect`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn connect_with(builder: crate::ClientBuilder, url: impl AsRef<str>) -> Result<Self> {
        Self::connect_by(builder.connect(url))
    }

    /// Connects in another way:
    ///
    /// ```no_run
    /// # fn f(yours: redisson_lock::redis::Client) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Client, blocking};
    /// let server = yours.get_connection_info().clone();
    /// let client = blocking::Client::connect_by(Client::builder().connect_to(server))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of `connecting`.
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn connect_by(connecting: impl Future<Output = Result<crate::Client>>) -> Result<Self> {
        let mut runtime = Background::start()?;
        let client = runtime.get().block_on(connecting)?;
        runtime.client = Some(client.clone());
        Ok(Self { client, runtime: Arc::new(runtime) })
    }

    /// The reentrant lock of that name. No I/O.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.lock(name))
    }

    /// See [`crate::Client::mutex`]. It excludes the thread that holds it, too.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock { lock: self.client.mutex(name), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::fair_lock`].
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.fair_lock(name))
    }

    /// See [`crate::Client::fenced_lock`].
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.fenced_lock(name))
    }

    /// See [`crate::Client::spin_lock`].
    pub fn spin_lock(&self, name: impl AsRef<str>, back_off: crate::BackOff) -> Lock {
        self.of_thread(&self.client.spin_lock(name, back_off))
    }

    /// See [`crate::Client::non_reentrant_lock`].
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.non_reentrant_lock(name))
    }

    /// See [`crate::Client::non_reentrant_fair_lock`].
    pub fn non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.non_reentrant_fair_lock(name))
    }

    /// See [`crate::Client::read_write_lock`].
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        self.both_of_thread(&self.client.read_write_lock(name))
    }

    /// See [`crate::Client::value_lock`].
    pub fn value_lock(&self, name: impl AsRef<str>) -> Lock {
        self.of_thread(&self.client.value_lock(name))
    }

    /// See [`crate::Client::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore { semaphore: self.client.semaphore(name), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::expirable_semaphore`].
    pub fn expirable_semaphore(&self, name: impl AsRef<str>) -> ExpirableSemaphore {
        ExpirableSemaphore { semaphore: self.client.expirable_semaphore(name), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::count_down_latch`].
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch { latch: self.client.count_down_latch(name), runtime: self.runtime.clone() }
    }

    /// See [`crate::Client::group_lock`].
    pub fn group_lock(
        &self,
        group: impl AsRef<str>,
        values: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Lock {
        self.of_thread(&self.client.group_lock(group, values))
    }

    /// See [`crate::Client::map_entry`].
    pub fn map_entry(&self, map: impl AsRef<str>, key: impl AsRef<[u8]>) -> MapEntry {
        MapEntry { entry: self.client.map_entry(map, key), client: self.clone() }
    }

    fn of_thread(&self, lock: &crate::Lock) -> Lock {
        Lock { lock: lock.with_thread(), runtime: self.runtime.clone() }
    }

    fn both_of_thread(&self, lock: &crate::ReadWriteLock) -> ReadWriteLock {
        ReadWriteLock { read: self.of_thread(lock.read()), write: self.of_thread(lock.write()) }
    }

    /// The uuid by which this client's holds are known.
    pub fn id(&self) -> uuid::Uuid {
        self.client.id()
    }

    /// See [`crate::Client::close`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn close(&self) {
        self.runtime.get().block_on(self.client.close());
    }
}

/// [`crate::Lock`] for threads. The owner is the calling thread; of a [mutex](Client::mutex) the guard.
#[derive(Clone, Debug)]
pub struct Lock {
    lock: crate::Lock,
    runtime: Arc<Background>,
}

/// All of these block the thread, and panic if called from inside async code; errors are those of [`crate::Lock`].
impl Lock {
    /// See [`crate::Lock::with_lease`].
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { lock: self.lock.with_lease(lease), runtime: self.runtime.clone() }
    }

    /// See [`crate::Lock::with_owner`].
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { lock: self.lock.with_owner(owner), runtime: self.runtime.clone() }
    }

    /// See [`crate::Lock::with_pipelined_hand_off`].
    pub fn with_pipelined_hand_off(&self, on: bool) -> Self {
        Self { lock: self.lock.with_pipelined_hand_off(on), runtime: self.runtime.clone() }
    }

    /// See [`crate::Lock::lock`].
    ///
    /// # Errors
    /// As there.
    pub fn lock(&self) -> Result<LockGuard> {
        self.block_on(self.lock.lock()).map(|guard| self.guard(guard))
    }

    /// See [`crate::Lock::try_lock`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        Ok(self.block_on(self.lock.try_lock())?.map(|guard| self.guard(guard)))
    }

    /// See [`crate::Lock::try_lock_for`].
    ///
    /// # Errors
    /// As there.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        Ok(self.block_on(self.lock.try_lock_for(wait))?.map(|guard| self.guard(guard)))
    }

    /// See [`crate::Lock::is_locked`].
    ///
    /// # Errors
    /// As there.
    pub fn is_locked(&self) -> Result<bool> {
        self.block_on(self.lock.is_locked())
    }

    /// See [`crate::Lock::is_held`].
    ///
    /// # Errors
    /// As there.
    pub fn is_held(&self) -> Result<bool> {
        self.block_on(self.lock.is_held())
    }

    /// See [`crate::Lock::hold_count`].
    ///
    /// # Errors
    /// As there.
    pub fn hold_count(&self) -> Result<u64> {
        self.block_on(self.lock.hold_count())
    }

    /// See [`crate::Lock::remaining_lease`].
    ///
    /// # Errors
    /// As there.
    pub fn remaining_lease(&self) -> Result<Option<Duration>> {
        self.block_on(self.lock.remaining_lease())
    }

    /// See [`crate::Lock::holder`].
    ///
    /// # Errors
    /// As there.
    pub fn holder(&self) -> Result<Option<Holder>> {
        self.block_on(self.lock.holder())
    }

    /// See [`crate::Lock::force_unlock`].
    ///
    /// # Errors
    /// As there.
    pub fn force_unlock(&self) -> Result<bool> {
        self.block_on(self.lock.force_unlock())
    }

    fn block_on<T>(&self, asked: impl Future<Output = T>) -> T {
        self.runtime.get().block_on(asked)
    }

    fn guard(&self, guard: crate::LockGuard) -> LockGuard {
        LockGuard { guard, runtime: self.runtime.clone() }
    }
}

/// [`crate::ReadWriteLock`] for threads.
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    /// See [`crate::ReadWriteLock::read`].
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// See [`crate::ReadWriteLock::write`].
    pub fn write(&self) -> &Lock {
        &self.write
    }
}

/// [`crate::MapEntry`] for threads.
#[derive(Clone, Debug)]
pub struct MapEntry {
    entry: crate::MapEntry,
    client: Client,
}

impl MapEntry {
    /// See [`crate::MapEntry::hash`].
    pub fn hash(&self) -> &str {
        self.entry.hash()
    }

    /// See [`crate::MapEntry::lock`].
    pub fn lock(&self) -> Lock {
        self.client.of_thread(&self.entry.lock())
    }

    /// See [`crate::MapEntry::fair_lock`].
    pub fn fair_lock(&self) -> Lock {
        self.client.of_thread(&self.entry.fair_lock())
    }

    /// See [`crate::MapEntry::read_write_lock`].
    pub fn read_write_lock(&self) -> ReadWriteLock {
        self.client.both_of_thread(&self.entry.read_write_lock())
    }

    /// See [`crate::MapEntry::semaphore`].
    pub fn semaphore(&self) -> Semaphore {
        Semaphore { semaphore: self.entry.semaphore(), runtime: self.client.runtime.clone() }
    }

    /// See [`crate::MapEntry::expirable_semaphore`].
    pub fn expirable_semaphore(&self) -> ExpirableSemaphore {
        ExpirableSemaphore {
            semaphore: self.entry.expirable_semaphore(),
            runtime: self.client.runtime.clone(),
        }
    }

    /// See [`crate::MapEntry::count_down_latch`].
    pub fn count_down_latch(&self) -> CountDownLatch {
        CountDownLatch { latch: self.entry.count_down_latch(), runtime: self.client.runtime.clone() }
    }
}

/// [`crate::LockGuard`] for threads. Dropping it releases in the background.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    // Dropped in this order: the release is handed to the runtime before that can end.
    guard: crate::LockGuard,
    runtime: Arc<Background>,
}

impl LockGuard {
    /// See [`crate::LockGuard::unlock`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn unlock(self) -> Result<()> {
        self.runtime.get().block_on(self.guard.unlock())
    }
}

impl Deref for LockGuard {
    type Target = Holding;
    fn deref(&self) -> &Holding {
        &self.guard
    }
}

/// The runtime of a client's background work. Ends without blocking whoever drops it last.
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
            .map_err(|e| crate::Error::misuse(format!("no thread for the client's runtime: {e}")))?;
        Ok(Self { runtime: Some(runtime), client: None })
    }

    fn get(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("only taken by drop"),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let (Some(runtime), client) = (self.runtime.take(), self.client.take()) else { return };
        let Some(client) = client else { return runtime.shutdown_background() };
        // Releases of guards dropped just now are still to be sent. The wait for them is the runtime's own thread's.
        let handle = runtime.handle().clone();
        let ending = async move {
            client.close().await;
            std::thread::spawn(move || runtime.shutdown_background());
        };
        handle.spawn(ending);
    }
}
