//! The pipelined hand-off: a release gives the lock to the next local waiter at once, and the record follows. Many holds share one
//! round trip, and none of them waits for it. It is an option of a client or a lock.
//!
//! Trade-off: a hold that ends before the record has followed is never confirmed by itself. One task of this client holds the lock
//! at any time, but the record may not have named that task.
//!
//! Invariants. Together they ensure that no two owners believe at the same time that they hold the lock:
//! 1. While a hold is ahead of the record, the record belongs to this client: it names the owner of the last confirmed request, or the
//!    target of the one move in flight. The deadline of the hold is never later than the record's own, as confirmed or as a move in flight
//!    may have set it ([`LaggingRecord::until`]).
//! 2. A hold ends before the next one begins, both under the queue's mutex, and one waiter gets the level.
//! 3. One move is in flight at a time, from the owner in the record to the owner that holds when the move is sent. A repeat is marked as
//!    one (`lock_hand_off`). The next move starts from the owner that this one confirmed. Holds in between are never in the record. No hold
//!    begins with an owner id of the move in flight: a dead connection may deliver that move late, and it would act on such a hold.
//! 4. Only a hold with a count of 1 is passed on. A hold that is ahead of the record is neither re-entered nor checked, and its caller does
//!    not hand it off by a request itself (`direct.rs`). The actor may hand it off, from the owner id in the record.
//! 5. The watchdog neither renews a hold that is ahead of the record, nor ends it by what the record says.
//! 6. A move that finds the record gone or taken ends the current hold, even if that is a later one than its target. The lock is not
//!    passed on from there.
//! 7. A release frees the record under the owner id in the record. When a hold is lost, its queue clears that id, too.

use crate::connection::Limit;
use crate::engine::current::{Current, LaggingRecord};
use crate::engine::hand_off::successor;
use crate::engine::key_actor::{KeyActor, foreign_subscriptions};
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::ReleasedLevel;
use crate::engine::session::Session;
use crate::engine::waiters::{Outcome, Waiter};
use crate::error::{Error, LossReason, Phase};
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::observer::Way;
use crate::protocol::script::{self, Arg, HandedOff};
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The time from a refused move to the next one.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Passes the lock from `hold` to the next waiter at once. Returns false, and changes nothing, where that is not allowed.
pub(crate) fn hand_off_ahead(session: &Arc<Session>, queue: &Arc<KeyQueue>, hold: &Arc<Hold>) -> bool {
    // `state` may find that the deadline has passed and report that to the queue, so the queue must not be locked here.
    if hold.state() != HoldState::Held {
        return false;
    }
    let now = Moment::now();
    let mut work = queue.work();
    let only_level = |current: &&Current| {
        current.has_one_level(hold) && current.lagging().is_none_or(|lagging| lagging.retry_at.is_none())
    };
    let Some(current) = work.current.as_ref().filter(only_level) else { return false };
    if work.is_releasing() {
        return false;
    }
    let next = successor(session, &work, hold, hold.deadline(), &current.run(), now);
    // The next hold has only the rest of this lease until the record follows. A server that is silent for a moment must not cost it.
    let outlasts = |lease| hold.deadline().since(now) >= session.lease_duration(lease) / 2;
    let next = next.filter(|next| next.pipelined && outlasts(next.lease));
    let Some(ticket) = next.map(|next| next.ticket) else { return false };
    let Some(ending) = hold.release_if_held(now) else { return false };
    let (Some(waiter), Some(mut current)) = (work.leave(ticket), work.current.take()) else {
        unreachable!("both were found under the same lock")
    };
    let lagging = current.set_lagging(None);
    let lagging = lagging.unwrap_or_else(|| LaggingRecord::new(&hold.owner_id, hold.deadline()));
    session.retire_id_of(hold);
    let new_id = || hold.kind.owner_id(session.owner_id(&waiter.owner));
    let mut owner_id = new_id();
    if lagging.is_in_flight(&owner_id) {
        session.rotate_owner_ids();
        owner_id = new_id();
    }
    let length = session.lease_duration(waiter.lease);
    let deadline = lagging.until.min(now + length);
    // The record may name the next owner already, from an earlier hold. It will still do so if no move is in flight.
    let ahead = lagging.moving_to.is_some() || lagging.owner_id != owner_id;
    let owner = waiter.owner.clone();
    let next = Hold::passed_on(hold, owner, owner_id, now, length, deadline, ahead);
    current.run_mut().count += 1;
    (current.hold, current.since) = (next.clone(), now);
    current.set_lagging(ahead.then_some(lagging));
    work.set_current(current);
    drop(work);
    hold.report(ending);
    session.watchdog.forget(hold);
    queue.signal.nudge();
    if !waiter.receives(&next, Way::HandedOver) {
        session.return_level(queue, ReleasedLevel { hold: next, term: None, pipelined: true, reply: None });
    }
    true
}

impl KeyActor {
    /// Moves the record to the current hold.
    pub(crate) async fn move_record(&mut self) {
        let ahead = self.queue.work().current.as_mut().and_then(|current| {
            let hold = current.hold.clone();
            // A level that is taken already may end before the lease does.
            let end = hold.end().min(Moment::now() + hold.lease());
            let lagging = current.lagging_mut()?;
            lagging.moving_to = Some(hold.owner_id.clone());
            let until = lagging.until;
            // The move may take effect before its reply comes.
            lagging.until = until.min(end);
            Some((hold, lagging.owner_id.clone(), until, end))
        });
        let Some((hold, from, until, end)) = ahead else { return };
        let lease = Arg::Until(end + Duration::from_millis(1)); // Redis counts whole milliseconds
        let Some(mut request) = hold.kind.hand_off(&from, &hold.owner_id, lease) else { return };
        let answer = self.session.connection.call_within(&mut request, Limit::Until(until)).await;
        self.rotate_if_repeated(&request);
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) if failure.unanswered => {
                // No reply came before the record's lease ended.
                self.undo_both(&hold.kind, [from, hold.owner_id.clone()], until + hold.lease());
                return self.lose_current_hold(LossReason::Unreachable);
            }
            Err(failure) => {
                debug!(lock = ?hold.record(), code = failure.code(), "move of the record refused, retrying later");
                let retry_at = Some(Moment::now() + RETRY_AFTER);
                let mut work = self.queue.work();
                if let Some(lagging) = work.current.as_mut().and_then(Current::lagging_mut) {
                    (lagging.moving_to, lagging.retry_at) = (None, retry_at);
                }
                drop(work);
                return self.report_refusal(&self.session.connection.error(failure, Phase::Acquire));
            }
        };
        match script::handed_off(&answer.reply) {
            Ok(HandedOff::Moved { subscriptions, .. }) => {
                let own = self.own_subscriptions();
                let others = foreign_subscriptions(&self.session, subscriptions, own).or(Some(1));
                let mut work = self.queue.work();
                let Some(current) = &mut work.current else { return };
                current.run_mut().others = others;
                let behind = current.hold.owner_id != hold.owner_id;
                current.set_lagging(behind.then(|| LaggingRecord::new(&hold.owner_id, end)));
                if !behind {
                    let now = current.hold.clone();
                    drop(work);
                    let lease = end.since(answer.sent);
                    if now.confirm(answer.sent, answer.data_epoch, lease) == HoldState::Held
                        && now.is_renewed()
                    {
                        self.session.watchdog.watch(&now);
                    }
                    let connection = &self.session.connection;
                    self.session.watchdog.doubt_if_cut([now], answer.data_epoch, connection);
                }
            }
            Ok(HandedOff::Gone) => self.lose_current_hold(hold.gone_in(answer.data_epoch)),
            Ok(HandedOff::Other | HandedOff::Mismatch | HandedOff::Freed) | Err(script::Undecodable) => {
                self.lose_current_hold(LossReason::Taken);
            }
        }
    }

    /// Ends the waits that need the record to follow: the re-entries of the holder, and single attempts. The latter find the lock
    /// busy, because this client holds it.
    fn report_refusal(&self, refusal: &Error) {
        let outcomes: Vec<_> = {
            let work = self.queue.work();
            let holder = work.current.as_ref().map(|current| &current.hold.owner);
            let outcome = |waiter: &Waiter| match Some(&waiter.owner) == holder {
                true => Some((waiter.ticket, Outcome::failed(refusal.clone()))),
                false => waiter.once.then_some((waiter.ticket, Outcome::Busy)),
            };
            work.waiters.iter().filter_map(outcome).collect()
        };
        for (ticket, outcome) in outcomes {
            self.tell(ticket, outcome);
        }
    }

    /// Ends the current hold as lost. It may be a later hold than the one that the move was for.
    fn lose_current_hold(&self, reason: LossReason) {
        let holds = {
            let mut work = self.queue.work();
            work.current.as_mut().map(|current| {
                if let Some(lagging) = current.lagging_mut() {
                    // A hold with a retry time is not passed on.
                    lagging.retry_at = Some(Moment::FAR);
                }
                current.hold.clone()
            })
        };
        if let Some(hold) = holds {
            hold.lose(reason);
        }
    }
}
