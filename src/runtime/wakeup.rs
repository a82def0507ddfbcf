//! How the one who drives a lane is woken: by a message, a confirmed subscription, or new work. No I/O.
//!
//! Invariants:
//! 5. A wake-up is never lost. Each bump of the epoch leaves a permit behind, so that a driver that was busy when it
//!    came sees it before it waits, and the epoch tells it whether what it learned before is still true.

use crate::runtime::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// What a lane listens to. One driver waits on it at a time.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    epoch: AtomicU64,
    messages: AtomicU64,
    notify: Notify,
}

/// How far a signal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Changes whenever what Redis last told may be out of date.
    pub epoch: u64,
    /// Messages heard.
    pub messages: u64,
}

impl Signal {
    pub(crate) fn mark(&self) -> Mark {
        Mark { epoch: self.epoch.load(Ordering::Acquire), messages: self.messages.load(Ordering::Acquire) }
    }

    /// A message came.
    pub(crate) fn hear(&self) {
        self.messages.fetch_add(1, Ordering::AcqRel);
        self.look_again();
    }

    /// A message may have been missed, or a hold of ours is not certain any more: look again.
    pub(crate) fn look_again(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// There is something new to do that Redis has no part in.
    pub(crate) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// Ends after any of the above, also one that came before the call.
    pub(crate) async fn woken(&self) {
        self.notify.notified().await;
    }
}
