//! The locks, semaphores and latches of one key of a map.

use crate::client::Client;
use crate::latch::CountDownLatch;
use crate::lock::{Lock, ReadWriteLock};
use crate::protocol::keys;
use crate::semaphore::{ExpirableSemaphore, Semaphore};

/// The locks, semaphores and latches of one key of a map: Redisson's `RMap.getLock(key)` and similar methods.
///
/// They are ordinary locks whose names derive from the map and the hash of the key. [`Client::map_entry`] returns the handle.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let stock = client.map_entry("stock", "article-7");
/// let guard = stock.lock().lock().await?; // the lock of Redisson's `map.getLock(key)`
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MapEntry {
    client: Client,
    map: String,
    hash: String,
}

impl Client {
    /// Returns the locks, semaphores and latches that Redisson associates with one key of a map.
    ///
    /// Pass the key as the bytes that the codec of the Java side produces: see [`Codec`](crate::Codec).
    pub fn map_entry(&self, map: impl AsRef<str>, key: impl AsRef<[u8]>) -> MapEntry {
        let (map, hash) = (self.mapped(map.as_ref()), keys::hash(key.as_ref()));
        MapEntry { client: self.clone(), map, hash }
    }
}

impl MapEntry {
    /// Returns the hash of the key, as it appears in the names.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Returns the lock that `RMap.getLock(key)` returns. See [`Client::lock`].
    pub fn lock(&self) -> Lock {
        self.client.lock(self.name("lock"))
    }

    /// Returns the lock that `RMap.getFairLock(key)` returns. See [`Client::fair_lock`].
    pub fn fair_lock(&self) -> Lock {
        self.client.fair_lock(self.name("fairlock"))
    }

    /// Returns the lock that `RMap.getReadWriteLock(key)` returns. See [`Client::read_write_lock`].
    pub fn read_write_lock(&self) -> ReadWriteLock {
        self.client.read_write_lock(self.name("rw_lock"))
    }

    /// Returns the semaphore that `RMap.getSemaphore(key)` returns. See [`Client::semaphore`].
    pub fn semaphore(&self) -> Semaphore {
        self.client.semaphore(self.name("semaphore"))
    }

    /// Returns the semaphore that `RMap.getPermitExpirableSemaphore(key)` returns. See [`Client::expirable_semaphore`].
    pub fn expirable_semaphore(&self) -> ExpirableSemaphore {
        self.client.expirable_semaphore(self.name("permitexpirablesemaphore"))
    }

    /// Returns the latch that `RMap.getCountDownLatch(key)` returns. See [`Client::count_down_latch`].
    pub fn count_down_latch(&self) -> CountDownLatch {
        self.client.count_down_latch(self.name("countdownlatch"))
    }

    fn name(&self, kind: &str) -> String {
        keys::of_entry(&self.map, &self.hash, kind)
    }
}
