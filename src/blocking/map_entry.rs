//! The objects of one key of a map, for threads.

use super::{Client, CountDownLatch, ExpirableSemaphore, Lock, ReadWriteLock, Semaphore};

/// The locks, semaphores and latches of one key of a map, for threads. See [`crate::MapEntry`].
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::{Codec, Kryo5};
/// let article = client.map_entry("stock", Kryo5.encode("article-7"));
/// article.lock().run(|_| println!("Redisson's `map.getLock(\"article-7\")` is held"))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MapEntry {
    pub(super) entry: crate::MapEntry,
    pub(super) client: Client,
}

impl MapEntry {
    /// Returns the hash of the key, as it appears in the names. See [`crate::MapEntry::hash`].
    pub fn hash(&self) -> &str {
        self.entry.hash()
    }

    /// Returns the lock that `RMap.getLock(key)` returns. See [`crate::MapEntry::lock`].
    pub fn lock(&self) -> Lock {
        self.client.for_thread(&self.entry.lock())
    }

    /// Returns the lock that `RMap.getFairLock(key)` returns. See [`crate::MapEntry::fair_lock`].
    pub fn fair_lock(&self) -> Lock {
        self.client.for_thread(&self.entry.fair_lock())
    }

    /// Returns the lock that `RMap.getReadWriteLock(key)` returns. See [`crate::MapEntry::read_write_lock`].
    pub fn read_write_lock(&self) -> ReadWriteLock {
        self.client.read_write_for_thread(&self.entry.read_write_lock())
    }

    /// Returns the semaphore that `RMap.getSemaphore(key)` returns. See [`crate::MapEntry::semaphore`].
    pub fn semaphore(&self) -> Semaphore {
        Semaphore { semaphore: self.entry.semaphore(), runtime: self.client.runtime.clone() }
    }

    /// Returns the semaphore that `RMap.getPermitExpirableSemaphore(key)` returns. See
    /// [`crate::MapEntry::expirable_semaphore`].
    pub fn expirable_semaphore(&self) -> ExpirableSemaphore {
        ExpirableSemaphore {
            semaphore: self.entry.expirable_semaphore(),
            runtime: self.client.runtime.clone(),
        }
    }

    /// Returns the latch that `RMap.getCountDownLatch(key)` returns. See [`crate::MapEntry::count_down_latch`].
    pub fn count_down_latch(&self) -> CountDownLatch {
        CountDownLatch { latch: self.entry.count_down_latch(), runtime: self.client.runtime.clone() }
    }
}
