//! Permits pass from a holder to the next waiter of the same client, because the number of free permits in the record does not change. If
//! the permits have no ids, this needs no request. Otherwise the waiter gets ids of its own: somebody else may know those of the holder.
//! One request replaces the ids of all holders that release at the same time.
//!
//! Invariants:
//! 1. Permits pass only to the first waiter, and only if it wants as many. So no waiter is overtaken.
//! 2. A series is bounded like a series of hand-offs ([`HandOff`](crate::HandOff)). After it the permits are released with a message, so
//!    that other clients can acquire them. Until a release has counted the other subscribers, one is assumed.
//! 3. Permits with ids pass only to a waiter whose lease does not end before theirs. Other clients may wait for the end that they know.

use crate::config::options::millis;
use crate::connection::{Answer, Limit};
use crate::engine::busy::BusyReply;
use crate::engine::grants::grant;
use crate::engine::key_actor::KeyActor;
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::{Release, ReleasedLevel};
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::engine::unfinished::{DirectRequest, Freeing, Successor};
use crate::engine::waiters::Waiter;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::HeldPermits;
use crate::lease::hold::{Begun, Hold};
use crate::lease::status::HoldState;
use crate::observer::Way;
use crate::protocol::script::{self, PassedIds};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task;
use std::iter;
use std::sync::Arc;
use tokio::sync::oneshot;
use tracing::debug;

/// The run of permits that pass before a release has counted the other subscribers.
fn new_run(now: Moment) -> Box<Run> {
    Box::new(Run { others: Some(1), ..Run::new(now, None) })
}

/// Passes the permits of `hold` to the next waiter. Returns false if the caller has to release them: passing is not allowed, the waiter has
/// just left, or an earlier caller waits for the reply to its own request.
pub(crate) fn pass_on(session: &Session, queue: &KeyQueue, hold: &Arc<Hold>) -> bool {
    // The holds of a semaphore do not keep its key queue in the table, so the waiters may be in another one.
    let Some(queue) = session.existing_queue(&queue.id) else { return false };
    let now = Moment::now();
    let mut work = queue.work();
    let run = **work.passing.get_or_insert_with(|| new_run(now));
    let has_earlier = work.direct.as_ref().is_some_and(DirectRequest::is_timely_acquire);
    if has_earlier || !work.may_go_on(&run, &*hold.kind, &session.options.hand_off, now) {
        return false;
    }
    let next = work.waiters.local().next().filter(|next| next.kind.permits() == hold.kind.permits());
    let Some(waiter) = next.map(|next| next.ticket).and_then(|ticket| work.leave(ticket)) else {
        return false;
    };
    if let Some(run) = &mut work.passing {
        run.count += 1;
    }
    // Then the actor has nothing to wait for, or the next waiter may find permits that were too few for this one.
    let next_differs = work.waiters.first().is_none_or(|next| next.kind.permits() != hold.kind.permits());
    drop(work);
    if next_differs {
        queue.signal.nudge();
    }
    hold.passes_on(now);
    waiter.receives(hold, Way::HandedOver)
}

/// The most holds whose permits pass by one request.
const MOST_AT_ONCE: usize = 64;

/// The most permits that pass by one request: the script puts their ids on Lua's stack, which is limited. One hold has no more permits than
/// this.
const MOST_IDS: u32 = 1000;

/// Permits with ids on their way from a hold that has ended to a waiter.
struct Pass {
    from: Freeing,
    reply: Option<oneshot::Sender<Result<()>>>,
    /// Its owner id has the new ids.
    to: Successor,
}

impl Pass {
    fn ids(&self) -> PassedIds<'_> {
        PassedIds { from: &self.from.named, to: &self.to.owner_id, lease_ms: millis(self.to.lease) }
    }
}

impl KeyActor {
    /// Passes permits with ids, and those whose release follows in the queue, to the next waiters by one request. Returns the release if that
    /// is not allowed.
    pub(crate) async fn pass_permits(&mut self, level: ReleasedLevel) -> Option<ReleasedLevel> {
        let is_passing = self.queue.work().passing.as_ref().is_some_and(|run| run.count > 0);
        if is_passing {
            // Other holders that got their permits by the last request may be about to release them.
            task::yield_now().await;
        }
        let pairs = match self.pair(level) {
            Ok(pairs) => pairs,
            Err(level) => return Some(level),
        };
        let passes = pairs.into_iter().filter_map(|(level, to)| self.end_and_pass(level, to)).collect();
        self.pass_by_request(passes).await;
        None
    }

    /// Pairs the release, and those that follow it, with the next waiters. Returns the release if it has to be sent by itself.
    fn pair(
        &self,
        level: ReleasedLevel,
    ) -> std::result::Result<Vec<(ReleasedLevel, Successor)>, ReleasedLevel> {
        let now = Moment::now();
        let mut work = self.queue.work();
        let run = **work.passing.get_or_insert_with(|| new_run(now));
        let may_pass = |(passed, (hold, waiter)): &(u32, (&Arc<Hold>, &Waiter))| {
            let run = Run { count: run.count + passed, ..run };
            let permits = hold.kind.permits();
            matches!(permits, Some(HeldPermits::WithIds(_)))
                && permits == waiter.kind.permits()
                && hold.deadline().since(now) <= self.session.lease_duration(waiter.lease)
                && work.may_go_on(&run, &*hold.kind, &self.session.options.hand_off, now)
        };
        let following = work.releases.iter().map_while(|release| match release {
            Release::Level(level) => Some(&level.hold),
            _ => None,
        });
        let mut ids = 0;
        let is_in_bounds = |hold: &&Arc<Hold>| {
            if let Some(HeldPermits::WithIds(permits)) = hold.kind.permits() {
                ids += permits;
            }
            ids <= MOST_IDS
        };
        let all = iter::once(&level.hold).chain(following);
        let holds = all.take(MOST_AT_ONCE).take_while(is_in_bounds);
        let pairs = (0..).zip(holds.zip(work.waiters.local())).take_while(may_pass);
        let successor = |(_, (hold, waiter)): (u32, (&Arc<Hold>, &Waiter))| {
            Successor::of(&self.session, &*hold.kind, waiter)
        };
        let successors: Vec<_> = pairs.map(successor).collect();
        if successors.is_empty() {
            return Err(level);
        }
        let next = || match work.releases.pop() {
            Some(Release::Level(level)) => Some(level),
            _ => None,
        };
        let levels: Vec<_> =
            iter::once(level).chain(iter::from_fn(next).take(successors.len() - 1)).collect();
        Ok(levels.into_iter().zip(successors).collect())
    }

    /// Ends the hold of a level whose permits go to a waiter. `None` if they cannot, because the hold is uncertain or lost.
    fn end_and_pass(&self, level: ReleasedLevel, to: Successor) -> Option<Pass> {
        let ReleasedLevel { hold, term, reply, .. } = level;
        hold.end_level(term, 0);
        let from = match self.end_shared(&hold) {
            Ok(from) => from,
            Err(error) => {
                debug!(lock = ?hold.record(), owner = %hold.owner_id, %error, "not released");
                let _ = reply.map(|reply| reply.send(Err(error)));
                return None;
            }
        };
        if from.was != HoldState::Held {
            self.queue.work().releases.push_front(Release::Free(Box::new(from), false, reply));
            return None;
        }
        Some(Pass { from, reply, to })
    }

    /// Sends the request, and acts on the reply.
    async fn pass_by_request(&mut self, passes: Vec<Pass>) {
        let ids: Vec<_> = passes.iter().map(Pass::ids).collect();
        let request = passes.first().and_then(|first| first.from.hold.kind.pass_permits(&ids));
        let Some(mut request) = request else { return };
        let until = passes.iter().map(|pass| pass.from.deadline).max().unwrap_or_else(Moment::now);
        let answer = match self.session.connection.call_within(&mut request, Limit::Until(until)).await {
            Ok(answer) => answer,
            Err(failure) if failure.unanswered => {
                let error = self.release_error(failure);
                return self.undo_passes(passes, &error);
            }
            Err(failure) => {
                debug!(lock = ?self.queue.record(), code = failure.code(), "permits not passed on, freeing them");
                return self.free_next(passes, false);
            }
        };
        self.rotate_if_repeated(&request);
        match script::ids_passed(&answer.reply, passes.len()) {
            Ok(passed) => self.passed(passes, &passed, &answer, request.is_repeated()),
            Err(script::Undecodable) => {
                let error = self.session.connection.protocol_error(Phase::Release);
                self.undo_passes(passes, &error);
            }
        }
    }

    /// Grants the permits that have passed. Frees those that have not, which also finds out why.
    fn passed(&mut self, passes: Vec<Pass>, passed: &[bool], answer: &Answer, repeated: bool) {
        let mut kept = passed.iter();
        let (passes, refused): (Vec<_>, Vec<_>) =
            passes.into_iter().partition(|_| kept.next().is_some_and(|passed| *passed));
        self.free_next(refused, repeated);
        if let Some(run) = &mut self.queue.work().passing {
            run.count += passes.len() as u32;
        }
        let mut granted = Vec::with_capacity(passes.len());
        for Pass { from, reply, to: Successor { ticket, owner, owner_id, lease } } in passes {
            let (kind, data_epoch, sent) = (from.hold.kind.clone(), answer.data_epoch, answer.sent);
            let begun = Begun { kind, owner, owner_id, data_epoch, sent, lease, token: None };
            granted.push((Hold::new(begun, &self.session.listeners), ticket));
            let _ = reply.map(|reply| reply.send(Ok(())));
        }
        // tokio runs the most recently woken task first. That should be a new holder.
        for (hold, ticket) in granted {
            grant(&self.session, &self.queue, &hold, &[ticket], Way::HandedOver);
            self.leave_busy_reply(ticket, &hold);
        }
    }

    /// No permit has become free, so the busy reply to the waiter `ticket`, which now has permits by `hold`, counts for the next one, too.
    fn leave_busy_reply(&mut self, ticket: u64, hold: &Hold) {
        let work = self.queue.work();
        // The reply counts only for a waiter that wants as many permits with ids, or more.
        let next = work.waiters.first().filter(|next| next.kind.permits() >= hold.kind.permits());
        if let (Some(BusyReply { only, .. }), Some(next)) = (&mut self.busy_reply, next)
            && *only == Some(ticket)
        {
            *only = Some(next.ticket);
        }
    }

    /// Frees permits that have not passed, before all other releases.
    fn free_next(&self, passes: Vec<Pass>, repeated: bool) {
        let mut work = self.queue.work();
        for Pass { from, reply, .. } in passes.into_iter().rev() {
            work.releases.push_front(Release::Free(Box::new(from), repeated, reply));
        }
    }

    /// Queues the release of all ids of a request without a reply: the old or the new ones may be taken.
    fn undo_passes(&self, passes: Vec<Pass>, error: &Error) {
        for Pass { from, reply, to } in passes {
            let until = from.deadline.max(Moment::now() + to.lease);
            self.undo_both(&from.hold.kind, [from.named, to.owner_id], until);
            let _ = reply.map(|reply| reply.send(Err(error.clone())));
        }
    }
}
