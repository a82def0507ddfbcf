//! The pipelined hand-off: who lets go gives the lock to the next waiter of this client on the spot, and the record
//! follows. Many holds share one round trip, and none of them waits for it.
//!
//! What it trades: a hold that began ahead of the record is confirmed later, or, if it ended before, never by itself.
//! Who holds is always this client, and one task of it; that the record named that very task is not certain. So it is
//! asked for, by client or by lock.
//!
//! Invariants, which together are why no two owners believe to hold at once:
//! 1. The record is this client's while a hold is ahead of it: it names the owner of the last confirmed request, or the
//!    target of the one move that is on its way; and no hold ahead of it has a deadline beyond the record's own, as
//!    confirmed ([`Behind::until`]).
//! 2. A hold ends before the next begins, both under the lane's lock, and one waiter is given the level.
//! 3. One move is on its way at a time, from the owner that the record names to who holds when it is sent. A repeat says
//!    so (`lock_move`), and the next move starts from what this one confirmed. Those between are in no record.
//! 4. Never past a re-entry: what is passed on has, and will have, a count of 1; and what is ahead of the record is not
//!    re-entered, handed over or asked about before the record has followed.
//! 5. The watchdog neither renews nor judges a hold that is ahead of the record.
//! 6. A record that is found gone, or another's, ends the hold that is current then, whoever the move was for, and
//!    nothing is passed on from there.
//! 7. A release frees the record by the owner that it names, and a lost hold's lane clears that one, too.

use crate::config::options::millis;
use crate::connection::Limit;
use crate::engine::actor::KeyActor;
use crate::engine::key_queue::{Behind, Busy, Current, Outcome, Release};
use crate::engine::level::Level;
use crate::engine::release::successor;
use crate::error::LossReason;
use crate::lease::hold::{Hold, HoldState};
use crate::protocol::script::{self, HandedOver};
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// From a move that was refused to the next.
const REFUSED_FOR: Duration = Duration::from_millis(500);

/// Gives the lock of `level` to the next waiter at once. False where that may not be; then nothing has changed.
pub(crate) fn pass_on(level: &Level) -> bool {
    let Level { session, lane, hold, .. } = level;
    // A look at the state can tell the lane, so the lane is not locked for it.
    if hold.state() != HoldState::Held || hold.is_haunted() {
        return false;
    }
    let now = Moment::now();
    let mut work = lane.work();
    let only_level = |current: &&Current| {
        Arc::ptr_eq(&current.hold, hold)
            && (current.recorded, current.levels) == (1, 1)
            && !current.changing
            && !current.unsure
            && current.behind.as_ref().is_none_or(|behind| behind.again_at.is_none())
    };
    let Some(current) = work.current.as_ref().filter(only_level) else { return false };
    if work.is_releasing() {
        return false;
    }
    let next = successor(session, &work, hold, hold.deadline(), &current.run, now);
    let Some(ticket) = next.filter(|next| next.pipelined).map(|next| next.ticket) else { return false };
    if !hold.end_before(now) {
        return false;
    }
    let (Some(waiter), Some(mut current)) = (work.take(ticket), work.current.take()) else {
        unreachable!("both were there under this lock")
    };
    let text = hold.kind.text(waiter.owner.text(&session.id, session.era()));
    let behind = current.behind.take().unwrap_or_else(|| Behind {
        text: hold.text.clone(),
        until: hold.deadline(),
        moving: false,
        again_at: None,
    });
    let length = session.length(waiter.lease);
    let deadline = behind.until.min(now + length);
    // The record may name this very owner, who held it before: it stays so if no move is on its way.
    let ahead = behind.moving || behind.text != text;
    let owner = waiter.owner.clone();
    let next = Hold::follows(hold, owner, text, now, length, deadline, ahead);
    work.busy = Busy::at(now, Some(waiter.owner.clone()));
    current.run.count += 1;
    work.current =
        Some(Current { hold: next.clone(), since: now, behind: ahead.then_some(behind), ..current });
    let place = work.place.take();
    drop(work);
    session.watchdog.forget(hold);
    if let Some(place) = place {
        place.want();
    }
    lane.signal.nudge();
    let level = Level::new(session, lane, &next, waiter.lease, waiter.pipelined);
    // Of a waiter that left, the level comes back when it is dropped.
    let _ = waiter.reply.send(Outcome::Granted(level, waiter.attempts));
    true
}

impl KeyActor {
    /// Lets the record follow who holds now.
    pub(crate) async fn follow(&mut self) {
        let ahead = self.lane.work().current.as_mut().and_then(|current| {
            let behind = current.behind.as_mut()?;
            behind.moving = true;
            Some((current.hold.clone(), behind.text.clone(), behind.until))
        });
        let Some((hold, from, until)) = ahead else { return };
        let Some(mut request) = hold.kind.hand_over(&from, &hold.text, millis(hold.lease)) else { return };
        let answer = self.session.connection.call_within(&mut request, Limit::Until(until)).await;
        if request.repeated {
            self.session.retire_texts();
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) if failure.unanswered => {
                // Until the record's own end nobody answered. It is the one's or the other's: both are cleared.
                self.session.retire_texts();
                let texts = [from, hold.text.clone()]
                    .map(|text| Release::Text(hold.kind.clone(), text, until + hold.lease));
                self.lane.work().releases.extend(texts);
                return self.lose_whoever_holds(LossReason::Unreachable);
            }
            Err(failure) => {
                debug!(lock = ?hold.record(), code = failure.code(), "the record does not follow for now");
                let again_at = Some(Moment::now() + REFUSED_FOR);
                if let Some(Current { behind: Some(behind), .. }) = &mut self.lane.work().current {
                    (behind.moving, behind.again_at) = (false, again_at);
                }
                return;
            }
        };
        match script::handed_over(&answer.reply) {
            Ok(HandedOver::Moved { subscriptions, .. }) => {
                let others = Some(self.others_among(subscriptions));
                let mut work = self.lane.work();
                let Some(current) = &mut work.current else { return };
                current.run.others = others;
                let (text, until) = (hold.text.clone(), answer.sent + hold.lease);
                current.behind = Some(Behind { text, until, moving: false, again_at: None });
                if current.hold.text == hold.text {
                    current.behind = None;
                    let now = current.hold.clone();
                    drop(work);
                    if now.confirm(answer.sent, answer.life, hold.lease) == HoldState::Held
                        && now.is_renewed()
                    {
                        self.session.watchdog.watch(&now);
                    }
                }
            }
            Ok(HandedOver::Gone) => self.lose_whoever_holds(hold.gone_in(answer.life)),
            Ok(HandedOver::Other | HandedOver::Mismatch) | Err(script::Undecodable) => {
                self.lose_whoever_holds(LossReason::Taken);
            }
        }
    }

    fn lose_whoever_holds(&self, reason: LossReason) {
        let holds = {
            let mut work = self.lane.work();
            work.current.as_mut().map(|current| {
                if let Some(behind) = &mut current.behind {
                    // It is not passed on any more.
                    behind.again_at = Some(Moment::FAR);
                }
                current.hold.clone()
            })
        };
        if let Some(hold) = holds {
            hold.lose(reason);
        }
    }
}
