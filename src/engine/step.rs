//! The choice of the key actor's next step.

use crate::config::options::Lease;
use crate::connection::pubsub::Subscription;
use crate::engine::attempt::Attempt;
use crate::engine::busy::LastBusy;
use crate::engine::crowd::Crowd;
use crate::engine::current::{Current, LISTEN_AFTER};
use crate::engine::key_actor::KeyActor;
use crate::engine::releases::Release;
use crate::engine::unfinished::DirectRequest;
use crate::engine::waiters::{Outcome, Waiter};
use crate::engine::work::{Finding, Work};
use crate::kinds::kind::{LockKind, would_deadlock};
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::MutexGuard;
use crate::runtime::wakeup::Reading;
use std::sync::Arc;

/// The next step of the loop.
pub(crate) enum Step {
    Do(Action),
    /// Wait for a signal, or until this moment.
    Wait(Moment),
    /// Deliver an outcome to the waiter with this ticket.
    Tell(u64, Outcome),
    /// The queue has changed: choose again.
    Again,
    Finish,
}

/// A step that sends requests.
pub(crate) enum Action {
    Release(Release),
    /// Add levels to the current hold for these tickets.
    Reenter(Vec<(u64, Lease)>),
    Attempt(Box<Attempt>),
    /// Ask for the holder of a busy lock.
    ProbeHolder(Arc<dyn LockKind>),
    /// Count the other clients that wait for the lock.
    CountCrowd,
    /// Ask whether the current hold still exists.
    Check,
    /// Refresh the scores of the waiters in Redis's queue.
    Refresh(Arc<dyn LockKind>),
    /// Move the record to the hold that is ahead of it.
    MoveRecord,
}

/// The facts behind a decision that are not in the queue, or cannot be learned while it is locked.
struct View {
    now: Moment,
    /// The current hold, and its state.
    hold: Option<Arc<Hold>>,
    state: Option<HoldState>,
    signal: Reading,
    /// The end of the yield window, while it is open.
    yield_until: Option<Moment>,
}

impl View {
    /// Whether the current hold is still the one of the view. A pipelined hand-off may have replaced it.
    fn is_of(&self, work: &Work) -> bool {
        let current = work.current.as_ref().map(|current| current.hold.serial);
        current == self.hold.as_ref().map(|hold| hold.serial)
    }

    /// The current hold, if it is certain.
    fn own_hold<'a>(&self, work: &'a Work) -> Option<&'a Current> {
        work.current.as_ref().filter(|_| self.state == Some(HoldState::Held))
    }
}

impl KeyActor {
    /// Chooses the next step. The decisions are made in this order, and the first one that applies wins.
    pub(crate) fn next(&mut self) -> Step {
        let queue = self.queue.clone();
        let mut work = queue.work();
        work.note_wake_up();
        let direct_until = work.direct_until();
        self.is_behind_caller = direct_until.is_some();
        if let Some(until) = direct_until {
            // After a hand-off the next one may begin before the actor has woken up. It rests through a series of them.
            let is_release = work.direct.as_ref().is_some_and(DirectRequest::is_release);
            return Step::Wait(if is_release { until.min(Moment::now() + LISTEN_AFTER) } else { until });
        }
        if work.overtake_direct() {
            self.session.rotate_owner_ids();
        }
        match work.finding.take().map(|finding| *finding) {
            Some(Finding::Busy { kind, before, ttl, only }) => {
                // The lock also counts as busy for the waiters that have come since the reply.
                work.busy = LastBusy::at(Moment::now(), None);
                drop(work);
                self.busy(&kind, before, ttl, only);
                return Step::Again;
            }
            Some(Finding::Freed(yield_window)) => self.yield_window = Some(Box::new(yield_window)),
            None => {}
        }
        if let Some(step) = numbered_repeat(&work) {
            return step;
        }
        if let Some(release) = work.next_release() {
            return Step::Do(Action::Release(release));
        }
        // `is_over` reports an end only once it was noticed. The hold's loss handler wakes the actor when that happens.
        if work.has_ended_hold() {
            work.drop_hold();
        }
        if self.session.is_closed() {
            self.dequeues.clear();
        }
        let hold = work.current.as_ref().map(|current| current.hold.clone());
        if self.is_idle(&work) {
            return match self.listen_until.filter(|until| hold.is_some() && !until.passed()) {
                Some(until) => Step::Wait(until),
                None => self.finish(work),
            };
        }
        drop(work);
        let view = self.view(hold);
        self.next_for(queue.work(), &view)
    }

    fn is_idle(&self, work: &Work) -> bool {
        work.waiters.is_empty()
            && work.releases.is_empty()
            && self.yield_window.is_none()
            && work.current.as_ref().is_none_or(|current| current.lagging().is_none())
            && self.dequeues.is_empty()
    }

    /// Gathers the view. `Hold::state` may find that the deadline has passed and report that to the queue, so the queue must not be
    /// locked.
    fn view(&mut self, hold: Option<Arc<Hold>>) -> View {
        let now = Moment::now();
        let state = hold.as_ref().map(Hold::state);
        let signal = self.queue.signal.reading();
        self.epoch = signal.epoch;
        View { now, hold, state, signal, yield_until: self.yield_until(signal.messages, now) }
    }

    /// Chooses the next step of a queue that is not idle.
    fn next_for(&mut self, mut work: MutexGuard<'_, Work>, view: &View) -> Step {
        if view.yield_until.is_some() {
            work.yield_until = view.yield_until;
        }
        if !view.is_of(&work) {
            return Step::Again;
        }
        if view.state.is_some_and(|state| !state.is_live()) {
            work.drop_hold();
            self.busy_reply = None;
        }
        // A release may have been queued while the queue was not locked.
        if let Some(release) = work.next_release() {
            return Step::Do(Action::Release(release));
        }
        let may_retry = view.now >= self.dequeue_at && self.session.connection.is_up(self.queue.record());
        if may_retry && let Some(dequeue) = self.dequeues.pop_front() {
            return Step::Do(Action::Release(Release::Dequeue(dequeue)));
        }
        if let Some(step) = immediate(&mut work, view.now) {
            return step;
        }
        let Some(apart) = own_attempt(&work) else { return self.in_turn(work, view) };
        // Waiters that need a reply of their own alternate with the one whose turn it is. Otherwise a flow of single attempts would keep it
        // from the lock.
        let has_turn = work.waiters.first().is_some_and(|first| !first.needs_reply());
        if std::mem::take(&mut self.turn_is_next) && has_turn {
            let step = self.in_turn(work, view);
            if !matches!(step, Step::Wait(_)) {
                return step;
            }
        }
        self.turn_is_next = true;
        apart
    }

    /// The step that the turns of the waiters require.
    fn in_turn(&mut self, work: MutexGuard<'_, Work>, view: &View) -> Step {
        if let Some(kind) = self.refresh_due(&work, view.now) {
            return Step::Do(Action::Refresh(kind));
        }
        self.keep_subscribed |= view.yield_until.is_some() && !work.waiters.is_empty();
        let Some(first) = work.waiters.first() else { return self.without_waiters(work, view.yield_until) };
        self.with_waiters(first, &work, view)
    }

    /// The step of a queue whose waiters have to wait for their turn.
    fn with_waiters(&mut self, first: &Waiter, work: &Work, view: &View) -> Step {
        let listen_from = view.own_hold(work).map(|current| current.since + LISTEN_AFTER);
        let listens = self.has_to_listen(first, listen_from, view);
        if listens {
            self.listen_for(first);
        }
        if let Some(refusal) = self.subscription.as_ref().and_then(Subscription::refusal) {
            // No message would report that the lock is free.
            return Step::Tell(first.ticket, Outcome::failed(refusal));
        }
        if let Some(until) = view.yield_until {
            return Step::Wait(until);
        }
        match view.own_hold(work) {
            Some(_) if self.own_subscriptions() > 0 && self.checked != Some(view.signal.epoch) => {
                Step::Do(Action::Check)
            }
            // A release and the message of a forced unlock wake the actor. A hand-off by a caller may leave it at rest.
            Some(current) => {
                let end = current.hold.deadline();
                Step::Wait(listen_from.filter(|_| !listens).map_or(end, |from| end.min(from)))
            }
            None => self.behind_others(first, work, view),
        }
    }

    /// The step of a queue without waiters.
    fn without_waiters(&mut self, work: MutexGuard<'_, Work>, yield_until: Option<Moment>) -> Step {
        if !self.keep_subscribed {
            // Other clients count a subscription as a waiter.
            self.subscription = None;
        }
        self.busy_reply = None;
        match yield_until {
            Some(until) => Step::Wait(until),
            None if !self.dequeues.is_empty() => Step::Wait(Moment::FAR),
            None => self.finish(work),
        }
    }

    /// Whether the first waiter needs the messages of the channel. Behind a hold of its own client it expects a hand-off until
    /// `listen_from`.
    fn has_to_listen(&self, first: &Waiter, listen_from: Option<Moment>, view: &View) -> bool {
        match listen_from {
            Some(from) => from <= view.now,
            None => first.queued || view.yield_until.is_some() || self.busy_reply.is_some(),
        }
    }

    /// Subscribes to the channel of a waiter. The confirmation moves the epoch, so a message that came earlier is not missed.
    fn listen_for(&mut self, waiter: &Waiter) {
        let owner_id = waiter.owner_id.as_ref().unwrap_or(waiter.kind.record());
        let channel = waiter.kind.channel(owner_id);
        if self.subscription.as_ref().map(Subscription::channel) != channel.as_ref() {
            self.subscription =
                channel.map(|channel| self.session.pubsub.subscribe(&channel, self.queue.signal.get()));
        }
    }

    /// The step of waiters for a lock that this client does not hold.
    fn behind_others(&mut self, first: &Waiter, work: &Work, view: &View) -> Step {
        let busy_reply = self.busy_reply.as_ref().filter(|busy_reply| {
            busy_reply.before.epoch == view.signal.epoch
                && view.now < busy_reply.attempt_at
                && busy_reply.suits(&*first.kind, work.waiters.newest())
                && busy_reply.only.is_none_or(|only| only == first.ticket)
        });
        let draws = Crowd::draws(&*first.kind);
        let Some(busy_reply) = busy_reply else {
            return match self.crowd.turn(view.signal.messages, view.now) {
                turn if draws && view.now < turn => Step::Wait(turn),
                _ => Step::Do(Action::Attempt(Attempt::of(first, work))),
            };
        };
        let probe_at = busy_reply.next_probe(work.waiters.newest());
        if view.now >= probe_at {
            return Step::Do(Action::ProbeHolder(first.kind.clone()));
        }
        if draws && self.own_subscriptions() > 0 && self.crowd.is_count_due(view.signal.messages, view.now) {
            return Step::Do(Action::CountCrowd);
        }
        Step::Wait(busy_reply.attempt_at.min(probe_at))
    }

    /// Ends the actor. Removes the queue if it has no hold either.
    fn finish(&mut self, mut work: MutexGuard<'_, Work>) -> Step {
        if work.needs_cleanup() {
            return Step::Again;
        }
        self.subscription = None;
        work.has_actor = false;
        self.session.tidy(&self.queue, work);
        self.done = true;
        Step::Finish
    }
}

/// The repeat of an acquire of permits that went unanswered. It precedes all releases, because their higher numbers would make it void.
fn numbered_repeat(work: &Work) -> Option<Step> {
    let first = work.waiters.front()?;
    let is_numbered = first.unanswered.is_some() && first.kind.permits().is_some();
    is_numbered.then(|| Step::Do(Action::Attempt(Attempt::of(first, work))))
}

/// A step that does not depend on the turns of the waiters.
fn immediate(work: &mut Work, now: Moment) -> Option<Step> {
    following(work, now).or_else(|| reentry(work))
}

/// The step of a queue whose current hold is ahead of the record: the record follows, or a refused move waits for its retry.
fn following(work: &Work, now: Moment) -> Option<Step> {
    let lagging = work.current.as_ref()?.lagging()?;
    Some(match lagging.retry_at {
        Some(at) if now < at => Step::Wait(at.min(lagging.until)),
        _ => Step::Do(Action::MoveRecord),
    })
}

/// The waiters of the owner that holds the lock.
fn waiters_of_holder(work: &Work) -> impl Iterator<Item = &Waiter> {
    let owner = work.current.as_ref().map(|current| &current.hold.owner);
    work.waiters.iter().filter(move |waiter| Some(&waiter.owner) == owner)
}

/// A waiter of the holder gets a further level, or an error if its kind cannot be re-entered.
fn reentry(work: &mut Work) -> Option<Step> {
    if !work.may_reenter {
        debug_assert!(waiters_of_holder(work).next().is_none(), "no waiter has become one of the holder");
        return None;
    }
    if let Some(waiter) = waiters_of_holder(work).find(|waiter| !waiter.kind.traits().reentrant) {
        return Some(Step::Tell(waiter.ticket, Outcome::failed(would_deadlock(&*waiter.kind))));
    }
    let waiters: Vec<_> = waiters_of_holder(work).map(|waiter| (waiter.ticket, waiter.lease)).collect();
    work.may_reenter = !waiters.is_empty();
    work.may_reenter.then_some(Step::Do(Action::Reenter(waiters)))
}

/// A waiter that needs a reply of its own from the server gets it.
fn own_attempt(work: &Work) -> Option<Step> {
    let waiter = work.waiters.next_apart()?;
    Some(match overtakes(waiter, work) {
        true => Step::Tell(waiter.ticket, Outcome::Busy),
        false => Step::Do(Action::Attempt(Attempt::of(waiter, work))),
    })
}

/// Whether an acquire of permits would pass earlier waiters. Free permits are reserved for them, even if they are not enough yet.
fn overtakes(waiter: &Waiter, work: &Work) -> bool {
    let first = work.waiters.front().is_none_or(|first| first.ticket == waiter.ticket);
    !first && waiter.kind.permits().is_some()
}
