//! The one wait loop, for every kind of lock.
//!
//! [`drive`] serves a lane until it has nothing left to do: it releases and hands off (see `release`), re-enters,
//! attempts, and waits for others (see `others`). Between two steps it holds no lock. What it knows of Redis is in
//! [`BusyInfo`], and belongs to the lane and not to the waiter in front: a successor inherits it.
//!
//! Invariants:
//! 1. A level is given out only after its request was confirmed, and for one owner at a time. (What `pipelined` gives out
//!    ahead of that has an argument of its own there.)
//! 3. A request that went unanswered is repeated as itself, or undone; its text is never used for a new hold.
//! 4. A waiter that left costs nothing: what was won for it goes to the next, or back.
//! 5. The epoch is read before an attempt is sent, so that a message that overtakes the reply is not lost.

use crate::config::options::Lease;
use crate::connection::pubsub::Subscription;
use crate::engine::attempt::Attempt;
use crate::engine::contention::{BusyInfo, Pause};
use crate::engine::future_box::ActorFuture;
use crate::engine::key_queue::{Current, KeyQueue, Outcome, Release, Work};
use crate::engine::release::Leaving;
use crate::engine::session::Session;
use crate::error::{Error, LossReason};
use crate::kinds::kind::{Access, LockKind, would_deadlock};
use crate::lease::hold::{Hold, HoldState};
use crate::runtime::clock::Moment;
use crate::runtime::in_place;
use crate::runtime::sync::{MutexGuard, select, time};
use crate::runtime::wakeup::Mark;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// For so long those who wait behind a hold of their own client trust that it will be handed on.
const LISTEN_AFTER: Duration = Duration::from_millis(10);

/// Drives `lane` until there is nothing left to do.
pub(crate) fn drive(session: Arc<Session>, lane: Arc<KeyQueue>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut driver = KeyActor {
            session,
            lane,
            subscription: None,
            told: None,
            checked: None,
            gone_unheard: None,
            pause: None,
            listens_until: None,
            returns: false,
            keep_at: None,
            leaving: VecDeque::new(),
            leave_at: Moment::now(),
        };
        loop {
            match driver.next() {
                Step::Wait(until) => driver.wait(until).await,
                Step::Do(action) => driver = ActorFuture::new(driver.act(action)).await,
                Step::Again => {}
                Step::Finish => return,
            }
        }
    })
}

pub(crate) struct KeyActor {
    pub session: Arc<Session>,
    pub lane: Arc<KeyQueue>,
    pub subscription: Option<Subscription>,
    pub told: Option<BusyInfo>,
    /// The epoch before the server last confirmed the hold that others wait behind.
    pub checked: Option<u64>,
    /// See [`Run::unheard`], for the next run.
    pub gone_unheard: Option<u64>,
    pub pause: Option<Pause>,
    /// A hold keeps the subscription until then.
    pub listens_until: Option<Moment>,
    /// Somebody came to wait while the lock was left to others. The next time the subscription is kept for him.
    returns: bool,
    /// When to refresh the scores of the waiters in Redis' queue.
    pub keep_at: Option<Moment>,
    /// Removals from Redis' queue that got no answer yet, and when to retry them if there is a connection.
    pub leaving: VecDeque<Leaving>,
    pub leave_at: Moment,
}

/// What to do next.
enum Step {
    Do(Action),
    Wait(Moment),
    /// Look again.
    Again,
    Finish,
}

/// What the server has a part in.
enum Action {
    Release(Release),
    Leave(Leaving),
    Reenter(Vec<(u64, Lease)>),
    Attempt(Attempt),
    Glance(Arc<dyn LockKind>),
    /// Look whether the hold that others wait behind is there still.
    Check,
    /// Refresh the scores of the waiters in Redis' queue.
    Keep(Arc<dyn LockKind>),
    /// Let the record follow a hold that is ahead of it.
    Follow,
}

impl KeyActor {
    async fn act(mut self, action: Action) -> Self {
        match action {
            Action::Release(Release::Level(level)) => self.release(level).await,
            Action::Release(Release::Text(kind, text, until)) => self.clear(&kind, &text, until).await,
            Action::Release(Release::Place(kind, text)) => self.leave_queue(Leaving::new(kind, text)).await,
            Action::Leave(leaving) => self.leave_queue(leaving).await,
            Action::Reenter(waiters) => self.reenter(waiters).await,
            Action::Attempt(attempt) => self.attempt(attempt).await,
            Action::Glance(kind) => self.glance(&kind).await,
            Action::Check => self.check().await,
            Action::Keep(kind) => self.keep(&kind).await,
            Action::Follow => self.follow().await,
        }
        self
    }

    async fn wait(&self, until: Moment) {
        in_place::settle().await;
        let until = self.keep_at.map_or(until, |at| until.min(at));
        self.lane.work().place = None;
        let woken = async {
            select! {
                () = self.lane.signal.woken() => {}
                () = time::sleep(until.remaining()) => {}
            }
        };
        if self.leaving.is_empty() {
            return woken.await;
        }
        // Boxed, because most drivers never wait for this.
        Box::pin(async {
            select! {
                () = woken => {}
                () = self.may_leave() => {}
            }
        })
        .await;
    }

    /// Ends when removals from Redis' queue may be retried.
    async fn may_leave(&self) {
        time::sleep(self.leave_at.remaining()).await;
        let mut connection = self.session.connection.clone();
        while !connection.is_up(self.lane.record()) {
            connection.changed().await;
        }
    }

    fn next(&mut self) -> Step {
        let lane = self.lane.clone();
        let mut work = lane.work();
        if let Some(release) = work.next_release() {
            return Step::Do(Action::Release(release));
        }
        // A hold whose end nobody has noticed yet comes back here when somebody does.
        if work.current.as_ref().is_some_and(|current| current.hold.is_over()) {
            work.drop_hold();
        }
        let hold = work.current.as_ref().map(|current| current.hold.clone());
        let behind = work.current.as_ref().and_then(|current| current.behind.as_ref());
        if self.session.is_closed() {
            self.leaving.clear();
        }
        if work.waiters.is_empty()
            && work.releases.is_empty()
            && self.pause.is_none()
            && behind.is_none()
            && self.leaving.is_empty()
        {
            return match self.listens_until.filter(|until| hold.is_some() && !until.passed()) {
                Some(until) => Step::Wait(until),
                None => self.finish(work),
            };
        }
        drop(work);
        let now = Moment::now();
        // A look at a state can find the deadline passed and tell the lane, so the lane is not locked for it.
        let state = hold.as_ref().map(Hold::state);
        let Mark { epoch, messages } = self.lane.signal.mark();
        let away = self.away(messages, now);
        let mut work = lane.work();
        if away.is_some() {
            work.away_until = away;
        }
        if work.current.as_ref().map(|current| current.hold.generation) != hold.as_ref().map(|h| h.generation)
        {
            // Passed on meanwhile.
            return Step::Again;
        }
        if state.is_some_and(|state| !state.is_live()) {
            work.drop_hold();
            self.told = None;
        }
        // What came meanwhile.
        if let Some(release) = work.next_release() {
            return Step::Do(Action::Release(release));
        }
        if now >= self.leave_at
            && self.session.connection.is_up(self.lane.record())
            && let Some(leaving) = self.leaving.pop_front()
        {
            return Step::Do(Action::Leave(leaving));
        }
        if let Some(Current { behind: Some(behind), .. }) = &work.current {
            return match behind.again_at {
                Some(at) if now < at => Step::Wait(at.min(behind.until)),
                _ => Step::Do(Action::Follow),
            };
        }
        let owner = if work.current.is_some() { hold.as_ref().map(|hold| &hold.owner) } else { None };
        let again = || work.waiters.iter().filter(|waiter| Some(&waiter.owner) == owner);
        if let Some(refused) = again().find(|waiter| !waiter.kind.manner().reentrant) {
            let (ticket, error) = (refused.ticket, would_deadlock(&*refused.kind));
            drop(work);
            self.tell(ticket, Outcome::Failed(error));
            return Step::Again;
        }
        let again: Vec<_> = again().map(|waiter| (waiter.ticket, waiter.lease)).collect();
        if !again.is_empty() {
            return Step::Do(Action::Reenter(again));
        }
        if let Some(waiter) = work.waiters.iter().find(|waiter| waiter.once || waiter.is_new()) {
            let first = work.waiters.front().is_none_or(|first| first.ticket == waiter.ticket);
            if !first && waiter.kind.manner().access == Access::Shared {
                // What there is, is for those who came before, however much they want.
                let ticket = waiter.ticket;
                drop(work);
                self.tell(ticket, Outcome::Busy);
                return Step::Again;
            }
            return Step::Do(Action::Attempt(Attempt::of(waiter, &work)));
        }
        if let Some(kind) = self.keeps(&work, now) {
            return Step::Do(Action::Keep(kind));
        }
        self.returns |= away.is_some() && !work.waiters.is_empty();
        let Some(first) = work.first() else {
            if !self.returns {
                // Others would count it as one who waits.
                self.subscription = None;
            }
            self.told = None;
            return match away {
                Some(until) => Step::Wait(until),
                None if !self.leaving.is_empty() => Step::Wait(Moment::FAR),
                None => self.finish(work),
            };
        };
        let ours = state == Some(HoldState::Held) && work.current.is_some();
        let listen_from = work.current.as_ref().map(|current| current.since + LISTEN_AFTER).unwrap_or(now);
        let waits =
            first.queued || if ours { listen_from <= now } else { away.is_some() || self.told.is_some() };
        if waits {
            let text = first.text.as_ref().unwrap_or(first.kind.record());
            let channel = first.kind.channel(text);
            if self.subscription.as_ref().map(Subscription::channel) != channel.as_ref() {
                // Its confirmation is itself a reason to look again.
                self.subscription =
                    channel.map(|channel| self.session.pubsub.subscribe(&channel, &self.lane.signal));
            }
        }
        if let Some(refusal) = self.subscription.as_ref().and_then(Subscription::refusal) {
            // Nobody would tell when the lock is free.
            let ticket = first.ticket;
            let waiter = work.leave(ticket);
            drop(work);
            if let Some(waiter) = waiter {
                let _ = waiter.reply.send(Outcome::Failed(refusal));
            }
            return Step::Again;
        }
        if let Some(until) = away {
            return Step::Wait(until);
        }
        if ours {
            // Behind a hold of our own: it will be handed on, or end, or be ended by somebody, who tells of that.
            if self.own_subscriptions() > 0 && self.checked != Some(epoch) {
                return Step::Do(Action::Check);
            }
            let end = hold.map_or(Moment::FAR, |hold| hold.deadline());
            return Step::Wait(if waits { end } else { end.min(listen_from) });
        }
        match &self.told {
            Some(told)
                if told.before.epoch == epoch && now < told.attempt_at && told.counts_for(first.ticket) =>
            {
                let glance_at = told.next_glance(work.newest());
                if now >= glance_at {
                    Step::Do(Action::Glance(first.kind.clone()))
                } else {
                    Step::Wait(told.attempt_at.min(glance_at))
                }
            }
            _ => Step::Do(Action::Attempt(Attempt::of(first, &work))),
        }
    }

    /// There is nothing left to do.
    fn finish(&mut self, mut work: MutexGuard<'_, Work>) -> Step {
        self.subscription = None;
        self.told = None;
        work.driven = false;
        work.place = None;
        // What they had room for is not needed while the lock is only held.
        (work.waiters, work.releases) = Default::default();
        work.beside.retain(|hold| !hold.is_over());
        if work.current.is_none() && work.beside.is_empty() {
            work.removed = true;
            drop(work);
            self.session.remove(&self.lane);
        }
        Step::Finish
    }

    /// The current hold and its count, if that may be changed from here on.
    pub(crate) fn change_current(&self) -> Option<(Arc<Hold>, u64)> {
        let mut work = self.lane.work();
        let current = work.current.as_mut().filter(|current| current.behind.is_none())?;
        current.changing = true;
        Some((current.hold.clone(), current.recorded))
    }

    /// Runs `f` on the current hold if it is `hold`.
    pub(crate) fn with_current<T>(&self, hold: &Arc<Hold>, f: impl FnOnce(&mut Current) -> T) -> Option<T> {
        let mut work = self.lane.work();
        work.current.as_mut().filter(|current| Arc::ptr_eq(&current.hold, hold)).map(f)
    }

    pub(crate) fn own_subscriptions(&self) -> u64 {
        u64::from(self.subscription.as_ref().is_some_and(Subscription::is_confirmed))
    }

    pub(crate) fn lost(&self, hold: &Arc<Hold>, reason: LossReason) -> Error {
        hold.lose(reason);
        Error::Lost { name: self.lane.record().to_string(), reason, holder: None }
    }
}
