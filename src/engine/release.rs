//! The part of the wait loop that gives back: a level, the lock to the next waiter of this client (the hand-off), or
//! the lock to everyone.
//!
//! Handing a lock over among the waiters of one place before others get it, within bounds, is lock cohorting: Dice,
//! Marathe, Shavit, "Lock Cohorting: A General Technique for Designing NUMA Locks", PPoPP 2012. Here the place is a
//! client, and each owner's lease begins anew.
//!
//! Invariants:
//! 7. A hold is ended (and no longer renewed) before its release is sent.
//! - The record moves from owner to owner of this client in one script, so that it always names who holds, but for a hold
//!   that is ahead of it (see `pipelined`): that one's release goes by the owner whom the record names.

use crate::config::options::{Lease, millis};
use crate::connection::{Failure, Limit};
use crate::engine::actor::KeyActor;
use crate::engine::contention::{Pause, Turns};
use crate::engine::key_queue::{Current, Release, Returned, Run, Waiter, Work};
use crate::engine::session::Session;
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{Access, LockKind};
use crate::lease::hold::{Begun, Hold, HoldState};
use crate::owner::{self, OwnerId};
use crate::protocol::script::{self, HandedOver, Released, Request};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task;
use std::sync::Arc;
use std::time::Duration;
use tracing::{Instrument, debug, debug_span};

/// Who the lock is handed to, if the bounds allow it.
pub(crate) fn successor<'a>(
    session: &Session,
    work: &'a Work,
    hold: &Hold,
    deadline: Moment,
    run: &Run,
    now: Moment,
) -> Option<&'a Waiter> {
    let bounds = session.options.hand_off;
    let heir = |waiter: &&Waiter| !waiter.once && !waiter.reply.is_closed();
    let next = work.waiters.iter().find(heir).filter(|next| hold.kind.passes_to(&*next.kind))?;
    let waiting = work.waiters.len() as u64;
    let ran = now.since(run.since);
    let pollers = hold.kind.poll().is_some() || work.pollers_until.is_some_and(|until| until > now);
    let others = run.others.unwrap_or(0);
    let shared = others > 0 || pollers;
    let in_row = u64::from(bounds.max_in_row).min(waiting.div_ceil(others.max(1)));
    let left = deadline.since(now);
    let length = session.length(next.lease);
    let refused = bounds.max_in_row == 0
        || ran >= bounds.max_time_alone
        || (shared && (u64::from(run.count) >= in_row || ran >= bounds.max_time))
        || left < length / 3
        || left > length
        || next.owner == hold.owner;
    (!refused).then_some(next)
}

/// Who the lock is handed to.
struct Heir {
    ticket: u64,
    owner: OwnerId,
    lease: Lease,
}

/// From an unanswered removal from Redis' queue to the next attempt.
const LEAVE_AGAIN: Duration = Duration::from_millis(100);
/// How long a removal is retried: the longest allowance that a client may set.
const LEAVE_FOR: Duration = Duration::from_secs(24 * 3600);

/// A text that is being removed from Redis' queue.
pub(crate) struct Leaving {
    kind: Arc<dyn LockKind>,
    text: Arc<str>,
    until: Moment,
}

impl Leaving {
    pub(crate) fn new(kind: Arc<dyn LockKind>, text: Arc<str>) -> Self {
        Self { kind, text, until: Moment::now() + LEAVE_FOR }
    }
}

/// A hold that has just begun, and the waiter whose it is: not told yet.
type Handed = (Arc<Hold>, u64);

impl KeyActor {
    /// Who had the lock before, and has been told, may be on his way back to the queue: a lock that is being handed on goes to
    /// him, and is not freed.
    async fn let_others_come(&self, hold: &Arc<Hold>) {
        let handing_on = self.with_current(hold, |current| current.run.count > 0).unwrap_or_default();
        if handing_on && self.lane.work().waiters.is_empty() {
            task::yield_now().await;
        }
    }

    /// Gives back one level.
    pub(crate) async fn release(&mut self, Returned { hold, renewing, pipelined, reply }: Returned) {
        if !pipelined {
            self.let_others_come(&hold).await;
        }
        let span = debug_span!("release", lock = ?hold.record(), owner = %hold.text);
        let (outcome, handed) = match self.release_level(&hold, renewing).instrument(span).await {
            Ok(handed) => (Ok(()), handed),
            Err(error) => {
                debug!(lock = ?hold.record(), owner = %hold.text, %error, "not released");
                (Err(error), None)
            }
        };
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
        // Whoever is woken last runs next: the one who holds now.
        if let Some((hold, ticket)) = handed {
            self.grant(&hold, &[ticket]);
        }
    }

    async fn release_level(&mut self, hold: &Arc<Hold>, renewing: bool) -> Result<Option<Handed>> {
        let still_renewed = if renewing { hold.end_renewal() } else { hold.is_renewed() };
        let current = self.with_current(hold, |current| {
            current.levels = current.levels.saturating_sub(1);
            (current.recorded, current.levels)
        });
        match current {
            None if hold.kind.manner().access == Access::Exclusive => Err(self.not_held()),
            None => self.release_shared(hold).await,
            Some((recorded, 0)) => self.release_last(hold, recorded).await,
            Some(_) if !hold.state().is_live() => Err(self.not_held()),
            Some((recorded, levels)) => {
                // A level that only had a fixed lease adds nothing when it ends.
                let lease = if still_renewed { self.session.options.lease } else { Duration::ZERO };
                self.release_partly(hold, recorded, levels, lease).await.map(|()| None)
            }
        }
    }

    /// Gives back what others may hold beside.
    async fn release_shared(&mut self, hold: &Arc<Hold>) -> Result<Option<Handed>> {
        let (now, deadline) = (Moment::now(), hold.deadline());
        let was = hold.release();
        self.session.watchdog.forget(hold);
        if !was.is_live() {
            return Err(self.not_held());
        }
        self.free(hold, &hold.text, deadline, was, Run::new(now, None)).await
    }

    async fn release_partly(
        &mut self,
        hold: &Arc<Hold>,
        recorded: u64,
        levels: u64,
        lease: Duration,
    ) -> Result<()> {
        if recorded == levels {
            return Ok(());
        }
        match self.recount(hold, recorded, levels, lease, Phase::Release).await {
            // A server out of memory refuses it; the next change of the count makes up for it.
            Err(error) if error.code() == Some("OOM") => Ok(()),
            outcome => outcome,
        }
    }

    /// Gives the lock back: to the next waiter of this client, or to everyone.
    async fn release_last(&mut self, hold: &Arc<Hold>, recorded: u64) -> Result<Option<Handed>> {
        let (now, deadline) = (Moment::now(), hold.deadline());
        // From here on nobody renews it.
        let was = hold.release();
        self.session.watchdog.forget(hold);
        if hold.is_haunted() {
            self.session.retire_texts();
        }
        let Some((mut run, text)) = self.lane.work().end_hold(now).filter(|_| was.is_live()) else {
            return Err(self.not_held());
        };
        self.listen_for_the_unheard(&mut run);
        let next = successor(&self.session, &self.lane.work(), hold, deadline, &run, now)
            .filter(|_| was == HoldState::Held && recorded == 1)
            .map(|next| Heir { ticket: next.ticket, owner: next.owner.clone(), lease: next.lease });
        if let Some(heir) = next
            && let Some(outcome) = self.hand_over(hold, &text, deadline, heir, run).await
        {
            return outcome;
        }
        self.free(hold, &text, deadline, was, run).await
    }

    /// Moves the record, which names `named`, to its heir. `None` where it must be freed instead.
    async fn hand_over(
        &mut self,
        from: &Arc<Hold>,
        named: &Arc<str>,
        deadline: Moment,
        heir: Heir,
        mut run: Run,
    ) -> Option<Result<Option<Handed>>> {
        let Heir { ticket, owner, lease } = heir;
        let text = from.kind.text(owner.text(&self.session.id, self.session.era()));
        let length = self.session.length(lease);
        let mut request = from.kind.hand_over(named, &text, millis(length))?;
        let answer = match self.session.connection.call_within(&mut request, Limit::Until(deadline)).await {
            Ok(answer) => answer,
            Err(failure) if failure.unanswered => {
                // The record is the one's or the other's: both are cleared.
                self.session.retire_texts();
                let until = Moment::now() + length;
                let mut work = self.lane.work();
                work.releases.push_back(Release::Text(from.kind.clone(), named.clone(), until));
                work.releases.push_back(Release::Text(from.kind.clone(), text, until));
                drop(work);
                return Some(Err(self.undecided(failure)));
            }
            Err(failure) => {
                debug!(lock = ?self.lane.record(), code = failure.code(), "no hand-off");
                return None;
            }
        };
        if request.repeated {
            self.session.retire_texts();
        }
        match script::handed_over(&answer.reply) {
            Ok(HandedOver::Moved { subscriptions, token }) => {
                run.count += 1;
                run.others = Some(self.others_among(subscriptions));
                let (kind, life, sent, lease) = (from.kind.clone(), answer.life, answer.sent, length);
                let hold = self.begin(Begun { kind, owner, text, life, sent, lease, token }, run);
                Some(Ok(Some((hold, ticket))))
            }
            Ok(HandedOver::Gone) => Some(self.vanished(&request, HoldState::Held, from.gone_in(answer.life))),
            Ok(HandedOver::Other) => Some(self.vanished(&request, HoldState::Held, LossReason::Taken)),
            Ok(HandedOver::Mismatch) | Err(script::Undecodable) => None,
        }
    }

    /// How many of the channel's subscriptions are others'. Not known: taken for one.
    pub(crate) fn others_among(&self, subscriptions: Option<u64>) -> u64 {
        let known = subscriptions.filter(|_| self.session.connection.knows_listeners());
        known.map_or(1, |all| all.saturating_sub(self.own_subscriptions()))
    }

    /// Frees the record, and stays away for a little if others were told.
    async fn free(
        &mut self,
        hold: &Arc<Hold>,
        named: &Arc<str>,
        deadline: Moment,
        was: HoldState,
        run: Run,
    ) -> Result<Option<Handed>> {
        let before = self.lane.signal.mark();
        let own = self.own_subscriptions();
        let mut request = hold.kind.release(named);
        let limit = Limit::Longer(deadline, self.session.options.response_timeout);
        let answer = match self.session.connection.call_within(&mut request, limit).await {
            Ok(answer) => answer,
            Err(failure) => return Err(self.undecided(failure)),
        };
        if request.repeated {
            self.session.retire_texts();
        }
        match script::released(&answer.reply) {
            Ok(Released::Freed(told)) => {
                // Where nobody counts those who were told, somebody was while the lock went from hand to hand.
                let told = if self.session.connection.knows_listeners() {
                    told
                } else {
                    own + u64::from(run.count > 0)
                };
                self.session.connection.report_replicas(self.lane.record(), answer.life).await;
                self.told = None;
                if let Some(busy) = &mut self.lane.work().busy {
                    busy.still = false;
                }
                let bounds = self.session.options.hand_off;
                let pollers = self.pollers() || hold.kind.poll().is_some() && run.count > 0;
                let ran_out = answer.sent.since(run.since) >= bounds.max_time_alone;
                let manner = hold.kind.manner();
                let takes_turns = !manner.queued && manner.access == Access::Exclusive;
                if takes_turns && (told > own || pollers || ran_out) {
                    // Those who poll tell nothing when they leave, so what they get is time alone. Our own message
                    // reaches us too.
                    let (time, turns) = if pollers {
                        (bounds.pause_for_pollers, None)
                    } else {
                        let heard = before.messages;
                        let paid = heard + own + told.saturating_sub(own).max(1);
                        (bounds.pause, Some(Turns { time: bounds.pause, heard, paid }))
                    };
                    self.pause = Some(Pause { until: Moment::now() + time, turns });
                }
                Ok(None)
            }
            Ok(Released::Gone) => self.vanished(&request, was, hold.gone_in(answer.life)),
            Ok(Released::Other) => self.vanished(&request, was, LossReason::Taken),
            Err(script::Undecodable) => Err(self.session.connection.strange(Phase::Release)),
        }
    }

    /// Makes sure that `text` does not hold the record, unless it is that of a hold: who found it there cannot know.
    pub(crate) async fn clear(&mut self, kind: &Arc<dyn LockKind>, text: &Arc<str>, until: Moment) {
        let named = |current: &Current| {
            let behind = current.behind.as_ref().is_some_and(|behind| behind.text == *text);
            (current.hold.text == *text || behind).then(|| current.hold.clone())
        };
        let named = self.lane.work().current.as_ref().and_then(named);
        if named.is_some_and(|hold| hold.state().is_live()) {
            return;
        }
        // A late send of the request below would free a later hold by this text, so no waiter keeps it. The
        // waiter loses its place in Redis' queue, but only after a request of its owner failed or a hold was lost.
        if self.lane.work().wait_anew(text) && !owner::is_retired(text, &self.session.id, self.session.era())
        {
            self.session.retire_texts();
        }
        let mut request = kind.undo(text);
        request.go_by_script();
        let answer = self.session.connection.call_within(&mut request, Limit::Until(until)).await;
        if request.repeated {
            // An earlier send of it may still come, and free what is held by that text then.
            self.session.retire_texts();
        }
        debug!(lock = ?self.lane.record(), owner = %text, cleared = answer.is_ok(), "text released");
    }

    /// Removes a text from Redis' queue, unless a waiter uses it again. The script notifies the new head if the lock is free.
    /// A removal without an answer is retried, because every other client waits behind the entry until it lapses. The lane
    /// goes on meanwhile.
    pub(crate) async fn leave_queue(&mut self, leaving: Leaving) {
        let Leaving { kind, text, until } = &leaving;
        if self.lane.work().waits_by(text) {
            return;
        }
        let Some(mut request) = kind.abandon(text) else { return };
        // Without a connection only the first removal waits for one, or each would hold up the lane.
        let waits = self.leaving.is_empty() || self.session.connection.is_up(self.lane.record());
        let again = if waits {
            let answer = self.session.connection.call(&mut request).await;
            if request.repeated {
                self.session.retire_texts();
            }
            debug!(lock = ?self.lane.record(), owner = %text, left = answer.is_ok(), "left the queue");
            answer.is_err_and(|failure| failure.code().is_none())
        } else {
            true
        };
        if again && !until.passed() {
            self.leaving.push_back(leaving);
            self.leave_at = Moment::now() + LEAVE_AGAIN;
        }
        // Those behind it may be first now.
        self.told = None;
    }

    /// A release found nothing of the owner: the hold was lost before it. Unless an earlier send of it went
    /// unanswered, which may have done it: the record cannot tell.
    fn vanished(&self, request: &Request, was: HoldState, reason: LossReason) -> Result<Option<Handed>> {
        if request.repeated && was == HoldState::Held {
            return Ok(None);
        }
        self.session.retire_texts();
        Err(Error::Lost { name: self.lane.record().to_string(), reason, holder: None })
    }

    fn not_held(&self) -> Error {
        Error::NotHeld { name: self.lane.record().to_string(), holder: None }
    }

    /// A release without an answer, or refused. One that was refused only when it was repeated may have been done.
    pub(crate) fn undecided(&self, failure: Failure) -> Error {
        if !failure.unanswered {
            return self.session.connection.error(failure, Phase::Release);
        }
        self.session.retire_texts();
        Error::Ambiguous { phase: Phase::Release, node: self.session.connection.node().into() }
    }
}
