//! Begins the hold that a request was confirmed for, and grants it to waiters.

use crate::engine::current::Current;
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::ReleasedLevel;
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::lease::hold::{Begun, Hold};
use crate::observer::Way;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// The hold of an acquire. `number` is its token, or the time that the record had left, depending on the kind.
pub(crate) fn acquired(session: &Session, begun: Begun, number: u64) -> Arc<Hold> {
    let (traits, lease) = (begun.kind.traits(), begun.lease);
    let hold = Hold::new(Begun { token: traits.fenced.then_some(number), ..begun }, &session.listeners);
    if traits.renews_fixed_leases {
        hold.found_left(Duration::from_millis(number), lease);
    }
    hold
}

/// Makes `hold` the current one, whose request was sent at `sent`.
pub(crate) fn begin(queue: &KeyQueue, hold: &Arc<Hold>, sent: Moment, run: Run) {
    let before = queue.work().current.take();
    if let Some(before) = before {
        // The server granted a new hold, so the earlier one has ended.
        before.hold.lose(before.hold.gone_in(hold.data_epoch()));
    }
    queue.work().set_current(Current::new(hold.clone(), sent, run));
}

/// Grants a level of `hold` to each of `tickets`. The level of a waiter that has left is released.
pub(crate) fn grant(
    session: &Arc<Session>,
    queue: &Arc<KeyQueue>,
    hold: &Arc<Hold>,
    tickets: &[u64],
    way: Way,
) {
    // Counts all levels before one of them is taken, because that one may limit the hold. Shared holds are never current.
    if let Some(current) = queue.work().current.as_mut().filter(|current| Arc::ptr_eq(&current.hold, hold)) {
        current.levels += tickets.len() as u32;
    }
    for &ticket in tickets {
        // A re-entry may have waited in Redis's queue under another owner id.
        let waiter = queue.work().leave(ticket);
        if !waiter.is_some_and(|waiter| waiter.receives(hold, way)) {
            let (hold, term, pipelined) = (hold.clone(), None, false);
            session.return_level(queue, ReleasedLevel { hold, term, pipelined, reply: None });
        }
    }
}
