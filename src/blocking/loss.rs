//! The wait of a thread for the loss of its hold.

use crate::error::LossReason;
use crate::lease::status::HoldState;
use crate::status::HoldStatus;
use std::time::Duration;

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
                self.$runtime.block_on($crate::blocking::loss::lost_within(self.status(), wait))
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
