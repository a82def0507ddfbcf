//! [`ReadWriteLock`], which has a [`Lock`] for each side.

use super::Lock;

/// A read/write lock: any number of readers, or one writer. Redisson's `RReadWriteLock`.
///
/// [`Client::read_write_lock`](crate::Client::read_write_lock) returns the handle.
///
/// # Java readers with a shorter lease
/// Each renewal of a Java reader sets the record's expiry to that reader's `lockWatchdogTimeout`, even if another reader
/// has a longer lease. A client of this library detects this when it acquires and when it renews, and then renews at a third
/// of the shorter lease. Two gaps remain:
/// - A Java reader may join, shorten the expiry and die between two renewals of this client.
/// - A process that is paused, or has no connection, for longer than the shorter lease does not renew in time.
///
/// In both cases the record can expire before [`HoldStatus::deadline`](crate::HoldStatus::deadline), and a writer can enter. The next
/// renewal reports the loss. Set the same watchdog timeout on both sides to close the gaps, or use
/// [`Client::fenced_lock`](crate::Client::fenced_lock) and let the resource check the token.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let prices = client.read_write_lock("prices");
/// let reading = prices.read().lock().await?; // other readers may hold it, too
/// reading.unlock().await?;
/// let writing = prices.write().lock().await?; // nobody else holds either side
/// writing.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    pub(crate) fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// Returns the lock's name as stored in Redis, after the name mapper.
    ///
    /// Returns an empty string if the name, or another argument of the handle, is invalid.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// Returns the read side, which readers share.
    ///
    /// The writer may acquire the read side, too, and continue as a reader when its write guard is gone. Other readers can then enter.
    ///
    /// The client counts the re-entries of a read lock. The record stores a count of 1 for each reader, because a bug in Redisson 3.44 to
    /// 3.52 frees the lock at any greater count.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// Returns the write side, which excludes every other owner.
    ///
    /// An owner that holds the read side cannot wait for the write side: the acquire fails with
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock). [`try_upgrade`](Lock::try_upgrade) acquires it if nobody else reads.
    pub fn write(&self) -> &Lock {
        &self.write
    }
}
