//! `run` and `try_run_for` of all locks: a body that runs while the lock is held.

use super::Lock;

/// Gives a lock the methods that run a body.
macro_rules! run_methods {
    ($lock:ident, $(#[$example:meta])*) => {
        /// Bodies that run while the lock is held.
        impl $lock {
            /// Acquires the lock, runs `body`, and releases the lock. A lost hold cancels `body`.
            ///
            /// # Errors
            /// As for [`lock`](Self::lock) while waiting. After that:
            /// - [`Error::Lost`] or [`Error::NotHeld`] if the hold was lost before `body` ended or before the lock was released. `body` was
            ///   dropped, or had just ended: treat its work as unprotected.
            ///
            /// If the client is closed while `body` runs, the hold is no longer renewed: the call returns [`Error::Lost`] at its deadline,
            /// or the value of `body` if that comes first.
            ///
            /// Unlike with [`LockGuard::unlock`], an unconfirmed release is not an error here: the hold lasted until `body` ended. The
            /// client logs a warning. If the release went unanswered, the client continues to release the lock in the background. If the
            /// server refused the release, or the client is closed, the hold ends with its lease.
            ///
            /// # Cancel safety
            /// Dropping the future drops `body` and releases the lock in the background.
            ///
            /// [`Error::Lost`]: crate::Error::Lost
            /// [`Error::NotHeld`]: crate::Error::NotHeld
            /// [`LockGuard::unlock`]: crate::LockGuard::unlock
            pub async fn run<F, Fut, T>(&self, body: F) -> $crate::error::Result<T>
            where
                F: FnOnce($crate::status::HoldStatus) -> Fut,
                Fut: Future<Output = T>,
            {
                let guard = self.lock().await?;
                $crate::guard::run_held(guard.status(), body, guard.unlock()).await
            }

            /// Acquires the lock, waiting for at most `wait`, runs `body`, and releases the lock. A lost hold cancels `body`.
            ///
            /// Returns `None`, without a call of `body`, if [`try_lock_for`](Self::try_lock_for) would. The limit is for the wait alone:
            /// `body` may run for as long as it likes.
            ///
            $(#[$example])*
            ///
            /// # Errors
            /// As for [`try_lock_for`](Self::try_lock_for) while waiting. After that, as for [`run`](Self::run).
            ///
            /// # Cancel safety
            /// As for [`run`](Self::run).
            pub async fn try_run_for<F, Fut, T>(
                &self,
                wait: std::time::Duration,
                body: F,
            ) -> $crate::error::Result<Option<T>>
            where
                F: FnOnce($crate::status::HoldStatus) -> Fut,
                Fut: Future<Output = T>,
            {
                match self.try_lock_for(wait).await? {
                    Some(guard) => {
                        $crate::guard::run_held(guard.status(), body, guard.unlock()).await.map(Some)
                    }
                    None => Ok(None),
                }
            }
        }
    };
}
pub(crate) use run_methods;

run_methods!(
    Lock,
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<&'static str> {
    /// use std::time::Duration;
    /// let order = client.mutex("orders:42");
    /// let shipped = order.try_run_for(Duration::from_secs(2), |_| async { "shipped" }).await?;
    /// Ok(shipped.unwrap_or("busy, try again later"))
    /// # }
    /// ```
);
