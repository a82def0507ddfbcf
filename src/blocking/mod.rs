//! The API for threads without an async runtime.
//!
//! The owner of a lock is the calling thread, which re-enters its own holds, as a Java thread does. A [`Client`] owns a tokio
//! runtime with one thread for its background work.
//!
//! Calls block the thread. Inside async code they panic, as tokio's `block_on` does. From async code, call them in `spawn_blocking`.

mod background;
mod guard;
mod latch;
mod lock;
mod locks;
mod map_entry;
mod multi;
mod permits;

pub use latch::CountDownLatch;
pub use lock::{Lock, LockGuard, ReadWriteLock};
pub use map_entry::MapEntry;
pub use multi::{MultiLock, MultiLockGuard, RedLock};
pub use permits::{ExpirablePermit, ExpirableSemaphore, Semaphore, SemaphorePermit};

use crate::connection::Servers;
use crate::error::Result;
use background::Background;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// A connection to Redis that creates lock handles for threads. See [`crate::Client`].
///
/// ```no_run
/// # fn f() -> redisson_lock::Result<()> {
/// use redisson_lock::blocking::Client;
/// let client = Client::connect("redis://127.0.0.1/")?;
/// let guard = client.lock("orders:42").lock()?; // owned by this thread
/// guard.unlock()?;
/// client.close();
/// # Ok(()) }
/// ```
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

    /// Returns this client without its name mapper. See [`crate::Client::with_stored_names`].
    #[must_use]
    pub fn with_stored_names(&self) -> Self {
        Self { client: self.client.with_stored_names(), runtime: self.runtime.clone() }
    }

    /// Returns the UUID that identifies this client in owner ids.
    pub fn id(&self) -> uuid::Uuid {
        self.client.id()
    }

    /// Returns whether the client is connected. See [`crate::Client::is_connected`].
    pub fn is_connected(&self) -> bool {
        self.client.is_connected()
    }

    /// Returns what the client did so far, as numbers. See [`crate::Client::stats`].
    pub fn stats(&self) -> crate::Stats {
        self.client.stats()
    }

    /// Waits for the server to answer a `PING`. See [`crate::Client::ping`].
    ///
    /// # Errors
    /// As for [`crate::Client::ping`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn ping(&self) -> Result<()> {
        self.runtime.block_on(self.client.ping())
    }

    /// Waits for pending releases, and then closes the client. See [`crate::Client::close`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn close(&self) {
        self.runtime.block_on(self.client.close());
    }
}
