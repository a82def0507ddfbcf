//! The log of lost holds. An outage may end a thousand holds at once, so the losses of a window are logged as one line for each reason.
//!
//! A fixed lease that ends is no warning, because its owner has chosen the end.

use crate::error::LossReason;
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The time from a loss to its line, which also counts the losses in between.
const WINDOW: Duration = Duration::from_secs(1);

/// The losses of a client that are not logged yet.
#[derive(Debug)]
pub(super) struct Losses(Mutex<Pending>);

#[derive(Debug)]
struct Pending {
    lost: Vec<Lost>,
    due: Moment,
}

/// The holds that were lost for one reason.
#[derive(Debug)]
struct Lost {
    reason: LossReason,
    holds: usize,
    /// The first of them.
    first: Arc<Hold>,
}

impl Losses {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Pending { lost: Vec::new(), due: Moment::FAR }))
    }

    /// When the next line is due. [`Moment::FAR`] if there is none.
    pub(super) fn due(&self) -> Moment {
        self.0.lock().due
    }

    /// Notes that `hold` is lost. Returns whether a line was not due before.
    pub(super) fn note(&self, hold: &Arc<Hold>) -> bool {
        let HoldState::Lost(reason) = hold.state() else { return false };
        debug!(lock = ?hold.record(), owner = %hold.owner_id, %reason, "hold lost");
        if reason == LossReason::Expired && hold.ends_as_planned() {
            return false;
        }
        let mut pending = self.0.lock();
        match pending.lost.iter_mut().find(|lost| lost.reason == reason) {
            Some(lost) => lost.holds += 1,
            None => pending.lost.push(Lost { reason, holds: 1, first: hold.clone() }),
        }
        let first = pending.due == Moment::FAR;
        if first {
            pending.due = Moment::now() + WINDOW;
        }
        first
    }

    /// Logs the losses.
    pub(super) fn report(&self) {
        let lost = {
            let mut pending = self.0.lock();
            pending.due = Moment::FAR;
            std::mem::take(&mut pending.lost)
        };
        for Lost { reason, holds, first } in lost {
            warn!(holds, %reason, lock = ?first.record(), owner = %first.owner_id, "holds lost");
        }
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        self.report();
    }
}
