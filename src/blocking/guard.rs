//! The methods that locks and their guards for threads have in common: a body that runs while the lock is held, and the wait for a loss.

use crate::error::{LossReason, Result};
use crate::guard::end_run;
use crate::lease::status::HoldState;
use crate::status::HoldStatus;
use std::time::Duration;

/// Gives a lock for threads the methods that run a body. `run` of its guard does the work.
macro_rules! run_methods {
    ($lock:ident, $(#[$example:meta])*) => {
        /// Bodies that run while the lock is held. They run in the calling thread, and panic if called from inside async code.
        impl $lock {
            /// Acquires the lock, runs `body` in this thread, and releases the lock.
            ///
            /// Nothing can cancel a running thread, so `body` should check [`HoldStatus::state`] between its steps. If the hold was lost
            /// before the lock was released, the value of `body` is discarded and the call fails.
            ///
            /// [`HoldStatus::state`]: crate::HoldStatus::state
            ///
            $(#[$example])*
            ///
            /// # Errors
            /// As for [`crate::Lock::run`].
            pub fn run<T>(&self, body: impl FnOnce($crate::HoldStatus) -> T) -> $crate::error::Result<T> {
                self.lock()?.run(body)
            }

            /// Acquires the lock, waiting for at most `wait`, runs `body` in this thread as [`run`](Self::run) does, and releases the lock.
            ///
            /// Returns `None`, without a call of `body`, if [`try_lock_for`](Self::try_lock_for) would.
            ///
            /// # Errors
            /// As for [`crate::Lock::try_run_for`].
            pub fn try_run_for<T>(
                &self,
                wait: std::time::Duration,
                body: impl FnOnce($crate::HoldStatus) -> T,
            ) -> $crate::error::Result<Option<T>> {
                self.try_lock_for(wait)?.map(|guard| guard.run(body)).transpose()
            }
        }
    };
}
pub(super) use run_methods;

/// Runs `body` in this thread, at once. The returned future ends the hold by `unlock`.
pub(super) fn run_held<T>(
    status: HoldStatus,
    body: impl FnOnce(HoldStatus) -> T,
    unlock: impl Future<Output = Result<()>>,
) -> impl Future<Output = Result<T>> {
    let value = body(status.clone());
    async move { end_run(&status, Some(value), unlock).await }
}

/// Gives a guard for threads the wait for its loss. The second argument is the field that runs futures.
macro_rules! lost_for {
    ($guard:ident, $runtime:ident) => {
        impl $guard {
            /// Waits at most `wait` for the loss of the hold, and returns its reason. Returns `None` if the hold is not lost by then.
            ///
            /// A thread that works in steps calls this with a wait of zero between them. A thread that watches the work of others passes
            /// the time after which it checks something else.
            ///
            /// # Panics
            /// If called from inside async code.
            pub fn lost_for(&self, wait: std::time::Duration) -> Option<$crate::error::LossReason> {
                self.$runtime.block_on($crate::blocking::guard::lost_within(self.status(), wait))
            }
        }
    };
}
pub(super) use lost_for;

pub(super) async fn lost_within(status: HoldStatus, wait: Duration) -> Option<LossReason> {
    match tokio::time::timeout(wait, status.lost()).await {
        Ok(HoldState::Lost(reason)) => Some(reason),
        _ => None,
    }
}
