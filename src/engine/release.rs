//! The steps of the key actor that release a level, hand the lock to the next local waiter, or free the lock.
//!
//! Invariant: a hold ends, and its renewal with it, before its release is sent.

use crate::connection::{Answer, Limit};
use crate::engine::current::Current;
use crate::engine::grants::grant;
use crate::engine::hand_off::{Handed, successor, vanished};
use crate::engine::key_actor::{KeyActor, foreign_subscriptions};
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::{Dequeue, Release, ReleasedLevel};
use crate::engine::run::{Run, Turns, YieldWindow};
use crate::engine::session::Session;
use crate::engine::unfinished::{Freeing, Successor, Undo};
use crate::engine::work::Work;
use crate::error::{LossReason, Phase, Result};
use crate::kinds::kind::{Access, LockKind};
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::lease::term::LevelTerm;
use crate::observer::Way;
use crate::owner;
use crate::protocol::script::{self, Arg, HandedOff, Released};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{Instrument, debug, debug_span};

/// The delay before an unanswered removal from Redis's queue is repeated.
const DEQUEUE_RETRY_AFTER: Duration = Duration::from_millis(100);

impl KeyActor {
    /// Lets other tasks run once before the actor frees a lock that was handed on. The previous holder may be about to wait again.
    async fn let_waiters_return(&self, hold: &Arc<Hold>) {
        let handing_on = self.with_current(hold, |current| current.run().count > 0).unwrap_or_default();
        if handing_on && self.queue.work().waiters.is_empty() {
            task::yield_now().await;
        }
    }

    /// Releases one level.
    pub(crate) async fn release(&mut self, ReleasedLevel { hold, term, pipelined, reply }: ReleasedLevel) {
        if !pipelined {
            self.let_waiters_return(&hold).await;
        }
        let span = debug_span!("release", lock = ?hold.record(), owner = %hold.owner_id);
        let outcome = self.release_level(&hold, term).instrument(span).await;
        if let Err(error) = &outcome {
            debug!(lock = ?hold.record(), owner = %hold.owner_id, %error, "not released");
        }
        self.end_release(outcome, reply);
    }

    /// Reports the outcome of a release, and grants the lock that was handed off.
    pub(crate) fn end_release(
        &self,
        outcome: Result<Option<Handed>>,
        reply: Option<oneshot::Sender<Result<()>>>,
    ) {
        let (outcome, handed) = match outcome {
            Ok(handed) => (Ok(()), handed),
            Err(error) => (Err(error), None),
        };
        if let Some(reply) = reply {
            let _ = reply.send(outcome);
        }
        // tokio runs the most recently woken task first. That should be the new holder.
        if let Some((hold, ticket)) = handed {
            grant(&self.session, &self.queue, &hold, &[ticket], Way::HandedOver);
        }
    }

    async fn release_level(&mut self, hold: &Arc<Hold>, term: Option<LevelTerm>) -> Result<Option<Handed>> {
        let live = hold.state().is_live();
        self.queue.work().counts_released = false;
        let current = self.with_current(hold, |current| {
            current.levels = current.levels.saturating_sub(1);
            hold.end_level(term, current.levels as usize);
            (current.recorded, current.levels)
        });
        match current {
            None if hold.kind.traits().access == Access::Exclusive => Err(hold.not_held()),
            None => {
                let mut freeing = self.end_shared(hold)?;
                if let Some(run) = self.queue.work().passing.take() {
                    freeing.run = *run;
                }
                self.free(&freeing, false).await.map(|()| None)
            }
            Some((recorded, 0)) => self.release_last(hold, recorded).await,
            Some(_) if !live => Err(hold.not_held()),
            // Only this level kept the hold until now.
            Some(_) if !hold.state().is_live() => Ok(None),
            Some((recorded, levels)) => {
                self.session.watchdog.watch(hold);
                if recorded == levels {
                    return Ok(None);
                }
                // Fixed leases must not be extended.
                let renewed = hold.standing().filter(|standing| standing.renewed);
                let watchdog = self.session.options.lease;
                let lease =
                    renewed.map_or(Duration::ZERO, |standing| standing.renewal(watchdog, Moment::now()));
                match self.recount(hold, recorded, levels, lease, Phase::Release).await {
                    // A server that is out of memory refuses the request. The next change of the count makes up for it.
                    Err(error) if error.code() != Some("OOM") => Err(error),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Ends a shared hold.
    pub(crate) fn end_shared(&self, hold: &Arc<Hold>) -> Result<Freeing> {
        let (now, deadline) = (Moment::now(), hold.deadline());
        let was = hold.release();
        self.session.watchdog.forget(hold);
        self.session.retire_id_of(hold);
        if !was.is_live() {
            return Err(hold.not_held());
        }
        let named = hold.kind.release_id(&hold.owner_id);
        let (hold, run) = (hold.clone(), Run::new(now, None));
        Ok(Freeing { hold, named, deadline, was, run, began: now, successor: None })
    }

    /// Releases the last level: hands the lock to the next local waiter, or frees it.
    async fn release_last(&mut self, hold: &Arc<Hold>, recorded: u32) -> Result<Option<Handed>> {
        // A release that was refused may have left a higher count, with which the record cannot be moved.
        let recounted = if recorded != 1 && hold.kept_after(Moment::now()).is_some() {
            self.recount(hold, recorded, 1, Duration::ZERO, Phase::Release).await
        } else {
            Ok(())
        };
        let (now, deadline) = (Moment::now(), hold.deadline());
        // The watchdog does not renew the hold from here on.
        let was = hold.release();
        self.session.watchdog.forget(hold);
        self.session.retire_id_of(hold);
        if !was.is_live() {
            self.queue.work().drop_hold();
            return Err(hold.not_held());
        }
        let Some((run, named)) = self.queue.work().end_hold(now) else { return Err(hold.not_held()) };
        let mut freeing =
            Box::new(Freeing { hold: hold.clone(), named, deadline, was, run, began: now, successor: None });
        if let Some(end) = hold.kept_after(now) {
            recounted.inspect_err(|_| self.session.spare(hold, &freeing.named, end))?;
            return self.keep(&freeing, end).await.map(|()| None);
        }
        self.detect_silent_release(&mut freeing.run);
        freeing.successor = successor(&self.session, &self.queue.work(), hold, deadline, &freeing.run, now)
            .filter(|_| was == HoldState::Held && recorded == 1)
            .map(|next| Box::new(Successor::of(&self.session, &*hold.kind, next)));
        self.hand_off_or_free(freeing, false).await
    }

    /// Hands the lock to its successor, if it has one. Otherwise frees the record. `repeated` says that an earlier request to do so went
    /// unanswered.
    pub(crate) async fn hand_off_or_free(
        &mut self,
        mut freeing: Box<Freeing>,
        repeated: bool,
    ) -> Result<Option<Handed>> {
        if let Some(successor) = freeing.successor.take()
            && let Some(outcome) = self.hand_off(&freeing, &successor, repeated).await
        {
            return outcome;
        }
        self.free(&freeing, repeated).await.map(|()| None)
    }

    /// Moves the record from the owner id `named` to nobody, so that it ends at `end`. Until then nobody holds the lock. No message is
    /// sent, because no waiter may have the lock yet. If the record cannot be moved, it ends with the lease of the hold, which is no
    /// earlier than `end`.
    async fn keep(
        &mut self,
        Freeing { hold, named, deadline, was, .. }: &Freeing,
        end: Moment,
    ) -> Result<()> {
        let nobody = owner::nobody();
        let Some(mut request) = hold.kind.hand_off(named, &nobody, Arg::Until(end)) else { return Ok(()) };
        let answer = self.session.connection.call_within(&mut request, Limit::Until(*deadline)).await;
        let answer = answer.map_err(|failure| {
            self.session.spare(hold, named, end);
            self.release_error(failure)
        })?;
        self.rotate_if_repeated(&request);
        let lost = |reason| vanished(&self.session, &self.queue, request.is_repeated(), *was, reason);
        match script::handed_off(&answer.reply) {
            Ok(HandedOff::Moved { .. }) => Ok(()),
            Ok(HandedOff::Gone) => lost(hold.gone_in(answer.data_epoch)),
            Ok(HandedOff::Other) => lost(LossReason::Taken),
            Ok(HandedOff::Mismatch | HandedOff::Freed) | Err(script::Undecodable) => {
                self.session.spare(hold, named, end);
                Err(self.session.connection.protocol_error(Phase::Release))
            }
        }
    }

    /// Frees the record, and begins a yield window if other clients may want the lock. `repeated` says that an earlier request to
    /// do so went unanswered.
    pub(crate) async fn free(&mut self, freeing: &Freeing, repeated: bool) -> Result<()> {
        let before = self.queue.signal.reading();
        let own_before = self.own_subscriptions();
        self.note_in_flight(&freeing.named);
        let mut request = freeing.hold.kind.release(&freeing.named, &self.other_holds());
        if repeated {
            request.repeat(freeing.began);
        }
        let limit = Limit::LaterOf(freeing.deadline, self.session.options.response_timeout);
        let answer = self.session.connection.call_within(&mut request, limit).await;
        let answer = answer.map_err(|failure| self.release_error(failure))?;
        self.rotate_if_repeated(&request);
        self.busy_reply = None;
        let (receivers, window) = freed(
            &self.session,
            &self.queue,
            freeing,
            &answer,
            request.is_repeated(),
            before.messages,
            own_before,
        )?;
        // This client may have subscribed while the request was in flight.
        let own = self.own_subscriptions();
        begin_passing(&self.session, &mut self.queue.work(), freeing, &answer, receivers, own);
        if let Some(mut window) = window {
            if let Some(turns) = window.turns.as_mut().filter(|_| self.crowd.is_greedy()) {
                // Foreign clients yield to nobody.
                turns.paid = turns.paid.min(turns.heard + own_before + 1);
            }
            self.yield_window = Some(Box::new(window));
        }
        Ok(())
    }

    /// Makes sure that an owner id does not hold the record. Does nothing if the id belongs to the current hold and that is live: the
    /// release may have been queued without knowledge of the hold. Also does nothing if the record has to be kept.
    pub(crate) async fn undo(&mut self, Undo { kind, owner_id, until, sent_on }: &Undo) {
        if self.session.spared.contains(self.queue.record(), owner_id) {
            return;
        }
        let named = |current: &Current| {
            let lagging = current.lagging().is_some_and(|lagging| lagging.owner_id == *owner_id);
            (current.hold.owner_id == *owner_id || lagging).then(|| current.hold.clone())
        };
        let named = self.queue.work().current.as_ref().and_then(named);
        if named.is_some_and(|hold| hold.state().is_live()) {
            return;
        }
        // A late send of the request below would free a later hold with this id. So no waiter keeps the id, and none repeats a request with
        // it. The waiter loses its place in Redis's queue, but only after a request of its owner failed or a hold was lost.
        if self.queue.work().wait_anew(owner_id)
            && !owner::is_retired(owner_id, &self.session.id, self.session.generation())
        {
            self.session.rotate_owner_ids();
        }
        let mut request = kind.undo(owner_id, &self.other_holds());
        request.go_by_script();
        let answer = self.session.connection.call_within(&mut request, Limit::Until(*until)).await;
        self.rotate_if_repeated(&request);
        let same = |sent_on: u64| answer.as_ref().is_ok_and(|answer| answer.connection_id == sent_on);
        if sent_on.is_some_and(|sent_on| !same(sent_on)) {
            // A dead connection may still deliver the acquire.
            self.session.rotate_owner_ids();
        }
        debug!(lock = ?self.queue.record(), owner = %owner_id, cleared = answer.is_ok(), "owner id cleared");
    }

    /// The owner ids of further holds of this client on the record: the live shared holds of the owner, and those of other readers. A
    /// hold that is being released is none of them.
    fn other_holds(&self) -> Vec<Arc<str>> {
        // `state` may report to the queue, so the queue must not be locked.
        let shared = self.queue.work().shared_holds.clone();
        let mut others = self.session.readers.others(&self.queue);
        others.extend(shared.iter().filter(|hold| hold.state().is_live()).map(|hold| hold.owner_id.clone()));
        others
    }

    /// Removes an owner id from Redis's queue, unless a waiter uses it again. The script notifies the new head if the lock is free.
    /// An unanswered removal is retried, because other clients wait behind the entry until it lapses. The actor does other work
    /// meanwhile.
    pub(crate) async fn dequeue(&mut self, dequeue: Dequeue) {
        let Dequeue { kind, owner_id, until } = &dequeue;
        if self.queue.work().waits_by(owner_id) {
            return;
        }
        let Some(mut request) = kind.dequeue(owner_id) else { return };
        // Without a connection only the first removal waits for one. Otherwise each of them would delay the queue.
        let waits = self.dequeues.is_empty() || self.session.connection.is_up(self.queue.record());
        let again = if waits {
            let answer = self.session.connection.call(&mut request).await;
            self.rotate_if_repeated(&request);
            debug!(lock = ?self.queue.record(), owner = %owner_id, left = answer.is_ok(), "left the queue");
            answer.is_err_and(|failure| !failure.is_refusal())
        } else {
            true
        };
        if again {
            // Until the entry is removed, its owner queues under another id. Otherwise it would be in its old place again.
            self.session.rotate_owner_ids();
        }
        if again && !until.passed() {
            self.dequeues.push_back(dequeue);
            self.dequeue_at = Moment::now() + DEQUEUE_RETRY_AFTER;
        }
        // A waiter behind the entry may be first now.
        self.busy_reply = None;
    }

    /// Rotates the owner ids and queues the release of two of them, after a hand-off without a reply: the record may name either.
    pub(crate) fn undo_both(&self, kind: &Arc<dyn LockKind>, owner_ids: [Arc<str>; 2], until: Moment) {
        self.session.rotate_owner_ids();
        let releases = owner_ids.map(|owner_id| Release::undo(kind, &owner_id, until));
        self.queue.work().releases.extend(releases);
    }
}

/// Acts on the reply to a release. Returns the number of subscriptions that the message reached, and the yield window that follows (see
/// [`yield_window`]).
pub(crate) fn freed(
    session: &Session,
    queue: &KeyQueue,
    freeing: &Freeing,
    answer: &Answer,
    repeated: bool,
    heard: u64,
    own: u64,
) -> Result<(u64, Option<YieldWindow>)> {
    let hold = &freeing.hold;
    // A script publishes nothing if the record was gone or taken. A transaction publishes anyway, so its receivers do not count.
    let lost = |reason| vanished(session, queue, repeated, freeing.was, reason).map(|()| 0);
    let receivers = match script::released(&answer.reply) {
        Ok(Released::Freed(receivers)) => {
            if let Some(report) = session.connection.report_replicas(queue.record(), answer.data_epoch) {
                session.spawn(report);
            }
            queue.work().note_freed();
            receivers
        }
        Ok(Released::Gone) => lost(hold.gone_in(answer.data_epoch))?,
        Ok(Released::Other) => lost(LossReason::Taken)?,
        Ok(Released::Unnamed) | Err(script::Undecodable) => {
            return Err(session.connection.protocol_error(Phase::Release));
        }
    };
    Ok((receivers, yield_window(session, queue, freeing, answer.sent, receivers, heard, own)))
}

/// Begins a run of permits that pass, after a release of permits. Its message reached `receivers` subscriptions, `own` of them this
/// client's.
pub(crate) fn begin_passing(
    session: &Session,
    work: &mut Work,
    freeing: &Freeing,
    answer: &Answer,
    receivers: u64,
    own: u64,
) {
    if freeing.hold.kind.permits().is_some() {
        let others = foreign_subscriptions(session, Some(receivers), own);
        let run = Run { others: others.or(Some(1)), ..Run::new(answer.sent, None) };
        work.passing = Some(Box::new(run));
    }
}

/// The yield window after a release that was sent at `sent` and whose message reached `receivers` subscriptions, `own` of them this
/// client's. `None` if no other client is known to want the lock, and either no task of this client waits for it or the run was short.
/// `heard` is the number of messages heard before the release.
fn yield_window(
    session: &Session,
    queue: &KeyQueue,
    Freeing { hold, run, .. }: &Freeing,
    sent: Moment,
    receivers: u64,
    heard: u64,
    own: u64,
) -> Option<YieldWindow> {
    let bounds = session.options.hand_off;
    let traits = hold.kind.traits();
    // Redis keeps the order of queued waiters. Permits that were not passed on have been free to others all the time.
    if traits.queued || traits.access != Access::Exclusive && run.count == 0 {
        return None;
    }
    if queue.work().has_pollers() || hold.kind.poll().is_some() && run.count > 0 {
        // These clients publish no messages, so they get time instead of turns.
        return Some(YieldWindow { until: Moment::now() + bounds.pause_for_pollers, turns: None });
    }
    // If the number is not known, another client is assumed after a hand-off.
    let others = foreign_subscriptions(session, Some(receivers), own).unwrap_or(u64::from(run.count > 0));
    let short = || sent.since(run.since) < bounds.max_time_alone;
    if others == 0 && (queue.work().waiters.is_empty() || short()) {
        return None;
    }
    // The message of this release also reaches this client, and is no turn.
    let turns = Some(Turns { time: bounds.pause, heard, paid: heard + own + others.max(1) });
    Some(YieldWindow { until: Moment::now() + bounds.pause, turns })
}
