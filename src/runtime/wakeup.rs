//! Wakes the actor of a key queue: on a message, a confirmed subscription, or new work. No I/O.
//!
//! Invariant: no wake-up is lost. Each wake-up leaves a permit, so an actor that was busy sees it before it waits. The epoch shows whether
//! an earlier reply may be out of date.

use crate::runtime::sync::atomic::{AtomicU64, Ordering};
use once_cell::race::OnceBox;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The signal of a key queue. At most one actor waits for it.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    epoch: AtomicU64,
    messages: AtomicU64,
    notify: Notify,
}

/// A reading of a signal's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Changes whenever the last reply of Redis may be out of date.
    pub epoch: u64,
    /// The number of messages heard.
    pub messages: u64,
}

impl Signal {
    pub(crate) fn reading(&self) -> Reading {
        Reading { epoch: self.epoch.load(Ordering::Acquire), messages: self.messages.load(Ordering::Acquire) }
    }

    /// Counts a message, and wakes the actor.
    pub(crate) fn hear(&self) {
        self.messages.fetch_add(1, Ordering::AcqRel);
        self.look_again();
    }

    /// Wakes the actor and makes it look at the lock again, because a message may have been missed or a hold is in doubt.
    pub(crate) fn look_again(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.notify.notify_one();
    }

    /// Wakes the actor for new work. Earlier replies stay valid.
    pub(crate) fn nudge(&self) {
        self.notify.notify_one();
    }

    /// Completes after any of these wake-ups, including one that came before the call.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

/// A signal that is created on first use, because a lock that is only held needs none. Until then its counters are 0.
#[derive(Debug, Default)]
pub(crate) struct LazySignal(OnceBox<Arc<Signal>>);

impl LazySignal {
    /// The signal. The actor calls this before it looks at its work, so later nudges reach it.
    pub(crate) fn get(&self) -> &Arc<Signal> {
        self.0.get_or_init(Box::default)
    }

    pub(crate) fn reading(&self) -> Reading {
        self.0.get().map_or(Reading { epoch: 0, messages: 0 }, |signal| signal.reading())
    }

    pub(crate) fn look_again(&self) {
        self.get().look_again();
    }

    /// See [`Signal::nudge`]. Without a signal there is no actor that waits.
    pub(crate) fn nudge(&self) {
        if let Some(signal) = self.0.get() {
            signal.nudge();
        }
    }
}
