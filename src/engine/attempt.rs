//! The part of the wait loop that asks for the lock: the first hold of an owner, a further level of it, and who is told of
//! what came of that.
//!
//! Invariants:
//! 1. A level is given out only after its request was confirmed, and for one owner at a time. (What `pipelined` gives out
//!    ahead of that has an argument of its own there.)
//! 3. A request that went unanswered is repeated as itself, or undone; its text is never used for a new hold.
//! 4. What was won for a waiter that left goes to the next, or back.

use crate::config::options::{Lease, millis};
use crate::connection::{Answer, Limit};
use crate::engine::actor::KeyActor;
use crate::engine::key_queue::{Busy, Current, Outcome, Run, Waiter, Work};
use crate::engine::level::Level;
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{Access, Ask, LockKind, Waiting, would_deadlock};
use crate::lease::hold::{Begun, Hold};
use crate::owner::OwnerId;
use crate::protocol::script::{self, Acquired, Recounted};
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Mark;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// One attempt, for the waiter of `ticket`.
pub(crate) struct Attempt {
    pub ticket: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: OwnerId,
    pub lease: Lease,
    pub once: bool,
    /// The last of those who waited when it was made. The answer may be out of date for whoever comes later.
    newest: u64,
}

impl Attempt {
    /// Of a waiter of `work`.
    pub(crate) fn of(waiter: &Waiter, work: &Work) -> Self {
        let Waiter { ticket, kind, owner, lease, once, .. } = waiter;
        let (kind, owner, newest) = (kind.clone(), owner.clone(), work.newest());
        Self { ticket: *ticket, kind, owner, lease: *lease, once: *once, newest }
    }
}

impl KeyActor {
    /// Asks for the lock.
    pub(crate) async fn attempt(&mut self, attempt: Attempt) {
        let before = self.lane.signal.mark();
        let length = self.session.length(attempt.lease);
        let partner = self.partner(&*attempt.kind, &attempt.owner);
        let (text, waiting) = self.present(&attempt);
        let mut request =
            attempt.kind.acquire(&Ask { text: &text, lease_ms: millis(length), waiting, partner });
        let Attempt { ticket, ref kind, once, .. } = attempt;
        if once || self.told.is_some() {
            // It may well be busy, and then only the script says for how long.
            request.go_by_script();
        }
        loop {
            let answer = self.session.connection.call(&mut request).await;
            if answer.is_ok() && request.repeated {
                self.session.retire_texts();
            }
            let (session, lane) = (&self.session, &self.lane);
            let failure = match answer {
                Ok(answer) => {
                    let in_vain = matches!(script::acquired(&answer.reply), Ok(Acquired::Busy(_)));
                    if in_vain && request.repeated && kind.manner().access == Access::Shared {
                        // An earlier send may still come, and find it free; and no record tells whose that would be.
                        lane.work().undo(kind, text.clone(), Moment::now() + length);
                    }
                    if let Ok(Acquired::Taken(_)) = script::acquired(&answer.reply)
                        && kind.manner().access != Access::Gate
                        && let Err(error) =
                            session.connection.check_replicas(lane.record(), answer.life).await
                    {
                        debug!(lock = ?lane.record(), owner = %text, %error, "taken, and given back");
                        lane.work().undo(kind, text, Moment::now() + length);
                        return self.tell(ticket, Outcome::Failed(error));
                    }
                    return self.attempted(attempt, &answer, before, text, length);
                }
                Err(failure) => failure,
            };
            let refused = failure.code().is_some();
            if failure.unanswered {
                session.retire_texts();
                let waits = lane.work().waiters.iter().any(|w| w.ticket == ticket);
                if !refused && !once && waits && !session.is_closed() {
                    // The same request again, so that what it may have done already counts once.
                    debug!(lock = ?lane.record(), "an acquire went unanswered, asking again");
                    continue;
                }
                lane.work().undo(kind, text, Moment::now() + length);
            }
            if refused || once || session.is_closed() {
                let error = session.connection.error(failure, Phase::Acquire);
                self.tell(ticket, Outcome::Failed(error));
            }
            return;
        }
    }

    /// What the owner holds beside it, as the record names it.
    fn partner(&self, kind: &dyn LockKind, owner: &OwnerId) -> Option<Arc<str>> {
        let lane = self.session.existing_lane(&kind.partner(owner)?)?;
        let work = lane.work();
        let held = work.current.as_ref().filter(|current| current.hold.owner == *owner);
        held.map(|current| current.hold.text.clone())
    }

    /// Whether the owner has what it holds beside it in hand.
    fn has_partner(&self, kind: &dyn LockKind, owner: &OwnerId) -> bool {
        let lane = kind.partner(owner).and_then(|key| self.session.existing_lane(&key));
        let in_hand = lane.and_then(|lane| lane.work().in_hand());
        in_hand.is_some_and(|hold| hold.owner == *owner && hold.state().is_live())
    }

    /// A hold of the owner, where its holds stand beside each other. A new one takes the same text: under another text the
    /// owner would wait for itself.
    fn beside(&self, owner: &OwnerId) -> Option<Arc<Hold>> {
        // A look at a state can find the deadline passed and tell the lane, so the lane is not locked for it.
        let holds = self.lane.work().beside.clone();
        holds.into_iter().find(|hold| hold.owner == *owner && hold.state().is_live())
    }

    /// The text under which the lock is asked for, and what Redis knows of it.
    fn present(&self, Attempt { ticket, kind, owner, once, .. }: &Attempt) -> (Arc<str>, Waiting) {
        let beside = self.beside(owner);
        let fresh = || owner.text(&self.session.id, self.session.era());
        let text = || kind.text(beside.map_or_else(fresh, |hold| kind.owner(&hold.text).into()));
        let mut work = self.lane.work();
        let Some(waiter) = work.waiters.iter_mut().find(|waiter| waiter.ticket == *ticket) else {
            return (text(), Waiting::No);
        };
        waiter.attempts += 1;
        if *once || !kind.manner().queued {
            return (text(), Waiting::No);
        }
        if let Some(text) = &waiter.text {
            return (text.clone(), if waiter.queued { Waiting::Queued } else { Waiting::New });
        }
        let text = text();
        let same = work.waiters.iter().filter(|waiter| waiter.text.as_ref() == Some(&text));
        let turn = same.map(|waiter| waiter.turn).min();
        if let Some(waiter) = work.waiters.iter_mut().find(|waiter| waiter.ticket == *ticket) {
            // From here on its place is left by `Work::leave`, wherever the request has come to.
            waiter.text = Some(text.clone());
            waiter.turn = turn.unwrap_or(waiter.turn);
        }
        (text, Waiting::New)
    }

    fn attempted(
        &mut self,
        attempt: Attempt,
        answer: &Answer,
        before: Mark,
        text: Arc<str>,
        length: Duration,
    ) {
        let Attempt { ticket, kind, owner, newest, .. } = attempt;
        let ttl = match script::acquired(&answer.reply) {
            Ok(Acquired::Taken(number)) => {
                self.told = None;
                self.pause = None;
                self.checked = Some(before.epoch);
                self.listen_on();
                let run = Run::new(answer.sent, self.gone_unheard.take());
                let token = kind.manner().fenced.then_some(number);
                let (life, sent, lease) = (answer.life, answer.sent, length);
                let access = kind.manner().access;
                let begun = Begun { kind, owner, text, life, sent, lease, token };
                if access == Access::Exclusive {
                    let kept_up = begun.kind.manner().kept_up;
                    let hold = self.begin(begun, run);
                    if kept_up {
                        hold.found_left(Duration::from_millis(number), lease);
                    }
                    return self.grant(&hold, &[ticket]);
                }
                let hold = Hold::new(begun, self.lane.observer());
                if access == Access::Shared {
                    if hold.kind.manner().owned {
                        self.lane.work().keep_beside(&hold);
                    }
                    return self.grant(&hold, &[ticket]);
                }
                let tickets: Vec<_> = {
                    let work = self.lane.work();
                    work.waiters.iter().map(|w| w.ticket).take_while(|&ticket| ticket <= newest).collect()
                };
                return self.grant(&hold, &tickets);
            }
            Ok(Acquired::Busy(ttl)) => {
                if let Some(owner) = script::hindrance(&answer.reply) {
                    self.undo_a_ghost(&kind, owner);
                }
                ttl
            }
            Ok(Acquired::Stale(ttl)) => {
                warn!(lock = ?self.lane.record(), owner = %text, "the owner's text is in use by somebody else");
                self.session.retire_texts();
                ttl
            }
            Ok(Acquired::Own(_)) if self.has_partner(&*kind, &owner) => {
                return self.tell(ticket, Outcome::Failed(would_deadlock(&*kind)));
            }
            // It is on its way to somebody, or back.
            Ok(Acquired::Own(ttl)) => ttl,
            Err(script::Undecodable) => {
                let error = self.session.connection.strange(Phase::Acquire);
                return self.tell(ticket, Outcome::Failed(error));
            }
        };
        let mut work = self.lane.work();
        if let Some(waiter) = work.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.queued = waiter.text.is_some();
        }
        let first = work.first().is_none_or(|first| first.ticket == ticket);
        drop(work);
        if first || !kind.manner().queued {
            self.busy(&kind, before, ttl);
        } else {
            // It has to wait for those before it, whatever becomes of the lock.
            self.lane.work().busy = Busy::at(Moment::now(), None);
        }
        self.tell_busy_once(ticket);
    }

    /// Another level for waiters of the owner who holds the lock.
    pub(crate) async fn reenter(&mut self, waiters: Vec<(u64, Lease)>) {
        let Some((hold, from)) = self.change_current() else { return };
        let to = from + waiters.len() as u64;
        let length = waiters.iter().map(|&(_, lease)| self.session.length(lease)).max().unwrap_or_default();
        let changed = self.recount(&hold, from, to, length, Phase::Acquire).await;
        self.with_current(&hold, |current| current.changing = false);
        let failed = match changed {
            Ok(()) => {
                let tickets: Vec<_> = waiters.iter().map(|&(ticket, _)| ticket).collect();
                return self.grant(&hold, &tickets);
            }
            Err(error) => error,
        };
        for (ticket, _) in waiters {
            self.tell(ticket, Outcome::Failed(failed.clone()));
        }
    }

    /// Changes the count in the record, and asks until it is known what became of that, for as long as the lease may
    /// live.
    pub(crate) async fn recount(
        &mut self,
        hold: &Arc<Hold>,
        mut from: u64,
        to: u64,
        lease: Duration,
        phase: Phase,
    ) -> Result<()> {
        let connection = self.session.connection.clone();
        let Some(mut request) = hold.kind.recount(&hold.text, from, to, millis(lease)) else {
            return Err(would_deadlock(&*hold.kind));
        };
        loop {
            let answer = connection.call_within(&mut request, Limit::Until(hold.deadline())).await;
            if request.repeated {
                self.session.retire_texts();
                self.with_current(hold, |current| current.unsure = true);
            }
            let answer = match answer {
                Ok(answer) => answer,
                // A watchdog hold may have been renewed meanwhile.
                Err(failure)
                    if failure.unanswered
                        && failure.code().is_none()
                        && hold.state().is_live()
                        && !self.session.is_closed() =>
                {
                    continue;
                }
                Err(failure) if phase == Phase::Release => return Err(self.undecided(failure)),
                Err(failure) => return Err(connection.error(failure, phase)),
            };
            match script::recounted(&answer.reply) {
                Ok(Recounted::Done) => {
                    hold.confirm(answer.sent, answer.life, lease);
                    self.with_current(hold, |current| current.recorded = to);
                    return Ok(());
                }
                // A late send of an earlier change may have come in between. The text is this hold's alone, so what
                // is right is what this client knows.
                Ok(Recounted::Mismatch(Some(found)))
                    if found != from
                        && self.with_current(hold, |current| current.unsure).unwrap_or_default() =>
                {
                    from = found;
                    if let Some(again) = hold.kind.recount(&hold.text, from, to, millis(lease)) {
                        request = again;
                    }
                }
                Ok(Recounted::Mismatch(_)) => {
                    self.session.retire_texts();
                    return Err(Error::misuse(
                        "the record has another hold count than this client: its uuid is used by another client too",
                    ));
                }
                Ok(Recounted::Gone) => return Err(self.lost(hold, hold.gone_in(answer.life))),
                Ok(Recounted::Other) => return Err(self.lost(hold, LossReason::Taken)),
                Err(script::Undecodable) => return Err(connection.strange(phase)),
            }
        }
    }

    /// A new hold by a confirmed request.
    pub(crate) fn begin(&mut self, begun: Begun, run: Run) -> Arc<Hold> {
        let before = self.lane.work().current.take();
        if let Some(before) = before {
            // The server let another in, so it was not held any more.
            before.hold.lose(before.hold.gone_in(begun.life));
        }
        let since = begun.sent;
        let hold = Hold::new(begun, self.lane.observer());
        let mut work = self.lane.work();
        work.busy = Busy::at(since, Some(hold.owner.clone()));
        work.current = Some(Current {
            hold: hold.clone(),
            since,
            recorded: 1,
            levels: 0,
            changing: false,
            unsure: false,
            behind: None,
            run,
        });
        drop(work);
        hold
    }

    /// Gives a level of `hold` to each of `tickets`. Those who left give theirs back at once.
    pub(crate) fn grant(&mut self, hold: &Arc<Hold>, tickets: &[u64]) {
        for &ticket in tickets {
            let mut work = self.lane.work();
            let waiter = work.take(ticket);
            if let Some(waiter) = waiter.as_ref().filter(|waiter| waiter.text.as_ref() != Some(&hold.text)) {
                // A re-entry: it waited by a text of its own.
                work.vacate(waiter);
            }
            if let Some(current) = &mut work.current {
                // Of a kind that is shared there is none.
                current.levels += 1;
            }
            drop(work);
            let (lease, pipelined) = waiter
                .as_ref()
                .map_or((Lease::Fixed(Duration::ZERO), false), |waiter| (waiter.lease, waiter.pipelined));
            let level = Level::new(&self.session, &self.lane, hold, lease, pipelined);
            if let Some(waiter) = waiter {
                let _ = waiter.reply.send(Outcome::Granted(level, waiter.attempts));
            }
        }
    }

    pub(crate) fn tell(&self, ticket: u64, outcome: Outcome) {
        let waiter = self.lane.work().leave(ticket);
        if let Some(waiter) = waiter {
            let _ = waiter.reply.send(outcome);
        }
    }

    /// Tells the waiter of `ticket` that the lock is busy, if it wanted no more than one look.
    fn tell_busy_once(&self, ticket: u64) {
        if self.lane.work().waiters.iter().any(|waiter| waiter.ticket == ticket && waiter.once) {
            self.tell(ticket, Outcome::Busy);
        }
    }
}
