//! The last busy reply and its age.

use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Reading;
use std::time::Duration;

/// The time from a busy reply to the first holder probe. Each further probe comes after twice the time.
pub(crate) const FIRST_PROBE: Duration = Duration::from_millis(10);

/// When the lock was last known to be held. This decides whether a wait without success ends as busy or with an error.
#[derive(Debug)]
pub(crate) struct LastBusy {
    at: Moment,
    /// The holder, if it is an owner of this client.
    by: Option<LocalOwner>,
    /// The lock is not known to have been freed since.
    pub still: bool,
}

impl LastBusy {
    /// Knowledge of this age still counts for a new waiter, so that the server is not asked again for each of them.
    pub(crate) const FRESH: Duration = Duration::from_millis(15);

    pub(crate) fn at(at: Moment, by: Option<LocalOwner>) -> Option<Self> {
        Some(Self { at, by, still: true })
    }

    /// Whether the lock was busy for `owner` during its wait, which began at `started`.
    pub(crate) fn was_for(&self, owner: &LocalOwner, started: Moment) -> bool {
        let counts = self.at >= started || self.still && self.at + Self::FRESH >= started;
        counts && self.by.as_ref() != Some(owner)
    }
}

/// The last busy reply, and when to look again.
#[derive(Clone)]
pub(crate) struct BusyReply {
    /// The signal's reading before the request, and when the first busy reply at that epoch arrived.
    pub before: Reading,
    pub since: Moment,
    /// The holder that the last probe found.
    pub holder: Option<String>,
    /// When to attempt again if the epoch does not move.
    pub attempt_at: Moment,
    /// When to probe the holder, which may leave without a message; and the time between two probes.
    pub probe_at: Moment,
    pub step: Duration,
    /// When the last reply arrived, and the ticket of the last waiter at that time.
    pub at: Moment,
    pub newest: u64,
    /// The only waiter for which the reply counts, of a kind with shared holds: another waiter may want less.
    pub only: Option<u64>,
}

impl BusyReply {
    /// Whether the reply counts although `newest` is the ticket of the last waiter. An old reply does not make the lock busy for that one,
    /// so it needs a newer reply: to an attempt of its own if the kind is queued, to a probe, or otherwise to another attempt.
    pub(crate) fn suits(&self, kind: &dyn LockKind, newest: u64) -> bool {
        newest <= self.newest || kind.traits().queued || self.probe_at < Moment::FAR
    }

    /// When to probe next. `newest` is the ticket of the last waiter. If that waiter came after the last reply, the probe comes
    /// early, because an old reply must not make the lock busy for it.
    pub(crate) fn next_probe(&self, newest: u64) -> Moment {
        if newest > self.newest && self.probe_at < Moment::FAR {
            self.probe_at.min(self.at + FIRST_PROBE)
        } else {
            self.probe_at
        }
    }
}
