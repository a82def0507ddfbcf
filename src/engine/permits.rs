//! Permits pass from a holder to the next waiter of the same client without a request: the record of a semaphore has only the number of
//! free permits, and that does not change.
//!
//! Invariants:
//! 1. Permits pass only to the first waiter, and only if it wants as many. So no waiter is overtaken.
//! 2. A series is bounded like a series of hand-offs ([`HandOff`](crate::HandOff)). After it the permits are released with a message, so
//!    that other clients can acquire them. Until a release has counted the other subscribers, one is assumed.

use crate::engine::run::Run;
use crate::engine::session::{KeyQueue, Session};
use crate::lease::hold::Hold;
use crate::observer::Way;
use crate::runtime::clock::Moment;
use std::sync::Arc;

/// Passes the permits of `hold` to the next waiter. Returns false if the caller has to release them: passing is not allowed, or the
/// waiter has just left.
pub(crate) fn pass_on(session: &Session, queue: &KeyQueue, hold: &Arc<Hold>, permits: u32) -> bool {
    // The holds of a semaphore do not keep its key queue in the table, so the waiters may be in another one.
    let Some(queue) = session.existing_queue(&queue.id) else { return false };
    let now = Moment::now();
    let mut work = queue.work();
    let new = || Box::new(Run { others: Some(1), ..Run::new(now, None) });
    let run = **work.passing.get_or_insert_with(new);
    let (waiting, pollers) = (work.waiters.len() as u64, work.pollers(&*hold.kind));
    if !run.may_go_on(&session.options.hand_off, waiting, pollers, now) {
        return false;
    }
    let next = work.waiters.next_local().filter(|next| next.kind.permits() == Some(permits));
    let Some(waiter) = next.map(|next| next.ticket).and_then(|ticket| work.take(ticket)) else {
        return false;
    };
    if let Some(run) = &mut work.passing {
        run.count += 1;
    }
    let last = work.waiters.is_empty();
    drop(work);
    if last {
        // The actor has nothing to wait for.
        queue.signal.nudge();
    }
    hold.passes_on(now);
    waiter.receives(hold, Way::HandedOver)
}
