//! Count-down latches for threads.

use super::background::Background;
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// A latch that opens when it has been counted down to zero, for threads. See [`crate::CountDownLatch`].
///
/// ```no_run
/// # fn f(client: redisson_lock::blocking::Client) -> redisson_lock::Result<()> {
/// let ready = client.count_down_latch("ready");
/// ready.try_set_count(3)?;
/// std::thread::spawn({
///     let ready = ready.clone();
///     move || ready.count_down()
/// });
/// ready.wait()?; // until three others have counted down
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CountDownLatch {
    pub(super) latch: crate::CountDownLatch,
    pub(super) runtime: Arc<Background>,
}

/// Methods that contact the server block the thread, and panic if called from inside async code.
impl CountDownLatch {
    /// Creates the latch with `count`, unless it exists.
    ///
    /// Returns `true` if this call created it. A `count` of 0 creates an open latch whose key remains.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::try_set_count`].
    pub fn try_set_count(&self, count: u32) -> Result<bool> {
        self.block_on(self.latch.try_set_count(count))
    }

    /// Counts the latch down by one.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::count_down`].
    pub fn count_down(&self) -> Result<()> {
        self.block_on(self.latch.count_down())
    }

    /// Returns the remaining count, which is 0 for an open latch.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::count`].
    pub fn count(&self) -> Result<u64> {
        self.block_on(self.latch.count())
    }

    /// Waits until the latch is open, without a limit.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::wait`].
    pub fn wait(&self) -> Result<()> {
        self.block_on(self.latch.wait())
    }

    /// Waits until the latch is open, for at most `wait`.
    ///
    /// Returns `false` if the latch was still closed. A `wait` of zero means a single attempt.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::wait_for`].
    pub fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.block_on(self.latch.wait_for(wait))
    }

    /// Deletes the latch, which opens it for all waiters.
    ///
    /// Returns `true` if the latch existed. After Redisson's own `delete`, Redisson's waiters continue to wait.
    ///
    /// # Errors
    /// As for [`crate::CountDownLatch::delete`].
    pub fn delete(&self) -> Result<bool> {
        self.block_on(self.latch.delete())
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}
