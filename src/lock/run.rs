//! [`Lock::run`] and its relatives: a body that runs while the lock is held.

use super::Lock;
use crate::error::Result;
use crate::guard::run_held;
use crate::status::HoldStatus;
use std::time::Duration;

impl Lock {
    /// Acquires the lock, runs `body`, and releases the lock. A lost hold cancels `body`.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock) while waiting. After that:
    /// - [`Error::Lost`] or [`Error::NotHeld`] if the hold was lost before `body` ended or before the lock was released. `body` was dropped,
    ///   or had just ended: treat its work as unprotected.
    ///
    /// If the client is closed while `body` runs, the hold is no longer renewed: the call returns [`Error::Lost`] at its deadline, or the
    /// value of `body` if that comes first.
    ///
    /// Unlike with [`LockGuard::unlock`], an unconfirmed release is not an error here: the hold lasted until `body` ended. The client logs
    /// a warning. If the release went unanswered, the client continues to release the lock in the background. If the server refused the
    /// release, or the client is closed, the hold ends with its lease.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases the lock in the background.
    ///
    /// [`Error::Lost`]: crate::Error::Lost
    /// [`Error::NotHeld`]: crate::Error::NotHeld
    /// [`LockGuard::unlock`]: crate::LockGuard::unlock
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(HoldStatus) -> Fut,
        Fut: Future<Output = T>,
    {
        let guard = self.lock().await?;
        run_held(guard.status(), body, guard.unlock()).await
    }

    /// Acquires the lock, waiting for at most `wait`, runs `body`, and releases the lock. A lost hold cancels `body`.
    ///
    /// Returns `None`, without a call of `body`, if [`try_lock_for`](Self::try_lock_for) would. The limit applies to the wait only, and
    /// not to `body`.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<&'static str> {
    /// use std::time::Duration;
    /// let order = client.mutex("orders:42");
    /// let shipped = order.try_run_for(Duration::from_secs(2), |_| async { "shipped" }).await?;
    /// Ok(shipped.unwrap_or("busy, try again later"))
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`try_lock_for`](Self::try_lock_for) while waiting. After that, as for [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As for [`run`](Self::run).
    pub async fn try_run_for<F, Fut, T>(&self, wait: Duration, body: F) -> Result<Option<T>>
    where
        F: FnOnce(HoldStatus) -> Fut,
        Fut: Future<Output = T>,
    {
        match self.try_lock_for(wait).await? {
            Some(guard) => run_held(guard.status(), body, guard.unlock()).await.map(Some),
            None => Ok(None),
        }
    }
}
