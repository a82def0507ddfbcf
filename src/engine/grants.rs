//! Begins the hold that a request was confirmed for, and grants it to waiters.

use crate::engine::busy::LastBusy;
use crate::engine::current::Current;
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::ReleasedLevel;
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::lease::hold::{Begun, Hold};
use crate::observer::Way;
use std::sync::Arc;

/// Begins a hold, and makes it the current one.
pub(crate) fn begin(session: &Session, queue: &KeyQueue, begun: Begun, run: Run) -> Arc<Hold> {
    let before = queue.work().current.take();
    if let Some(before) = before {
        // The server granted a new hold, so the earlier one has ended.
        before.hold.lose(before.hold.gone_in(begun.data_epoch));
    }
    let since = begun.sent;
    let hold = Hold::new(begun, &session.listeners);
    let mut work = queue.work();
    work.busy = LastBusy::at(since, Some(hold.owner.clone()));
    work.set_current(Current::new(hold.clone(), since, run));
    hold
}

/// Grants a level of `hold` to each of `tickets`. The level of a waiter that has left is released.
pub(crate) fn grant(
    session: &Arc<Session>,
    queue: &Arc<KeyQueue>,
    hold: &Arc<Hold>,
    tickets: &[u64],
    way: Way,
) {
    for &ticket in tickets {
        let mut work = queue.work();
        let waiter = work.take(ticket);
        if let Some(waiter) =
            waiter.as_ref().filter(|waiter| waiter.owner_id.as_ref() != Some(&hold.owner_id))
        {
            // A re-entry, which waited in Redis's queue under another owner id.
            work.vacate(waiter);
        }
        if let Some(current) = &mut work.current {
            // Shared holds are never current.
            current.levels += 1;
        }
        drop(work);
        if !waiter.is_some_and(|waiter| waiter.receives(hold, way)) {
            let (hold, term, pipelined) = (hold.clone(), None, false);
            session.return_level(queue, ReleasedLevel { hold, term, pipelined, reply: None });
        }
    }
}
