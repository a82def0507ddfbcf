//! The one wait loop, for every kind of lock.
//!
//! [`drive`] serves a lane until it has nothing left to do: it releases and hands off (see `release`), re-enters,
//! attempts, and waits for others (see `others`). Between two steps it holds no lock. What it knows of Redis is in
//! [`Told`], and belongs to the lane and not to the waiter in front: a successor inherits it.
//!
//! Invariants:
//! 1. A level is given out only after its request was confirmed, and for one owner at a time. (What `pipelined` gives out
//!    ahead of that has an argument of its own there.)
//! 3. A request that went unanswered is repeated as itself, or undone; its text is never used for a new hold.
//! 4. A waiter that left costs nothing: what was won for it goes to the next, or back.
//! 5. The epoch is read before an attempt is sent, so that a message that overtakes the reply is not lost.

use crate::at_work::AtWork;
use crate::clock::Moment;
use crate::connection::{Answer, Limit};
use crate::error::{Error, LossReason, Phase, Result};
use crate::hold::{Hold, HoldState};
use crate::in_place;
use crate::lane::{Busy, Current, Lane, Level, Outcome, Release, Run, Work};
use crate::options::{Lease, millis};
use crate::others::{Pause, Told};
use crate::owner::OwnerId;
use crate::pubsub::Subscription;
use crate::script::{self, Acquired, Recounted};
use crate::session::{self, Session};
use crate::sync::{MutexGuard, select, time};
use crate::wakeup::Mark;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// For so long those who wait behind a hold of their own client trust that it will be handed on.
const LISTEN_AFTER: Duration = Duration::from_millis(10);

/// Drives `lane` until there is nothing left to do.
pub(crate) fn drive(session: Arc<Session>, lane: Arc<Lane>) -> session::Driver {
    Box::pin(async move {
        let mut driver = Driver {
            session,
            lane,
            subscription: None,
            told: None,
            checked: None,
            gone_unheard: None,
            pause: None,
            listens_until: None,
            returns: false,
        };
        loop {
            match driver.next() {
                Step::Wait(until) => driver.wait(until).await,
                Step::Do(action) => driver = AtWork::new(driver.act(action)).await,
                Step::Again => {}
                Step::Finish => return,
            }
        }
    })
}

pub(crate) struct Driver {
    pub session: Arc<Session>,
    pub lane: Arc<Lane>,
    pub subscription: Option<Subscription>,
    pub told: Option<Told>,
    /// The epoch before the server last confirmed the hold that others wait behind.
    pub checked: Option<u64>,
    /// See [`Run::unheard`], for the next run.
    pub gone_unheard: Option<u64>,
    pub pause: Option<Pause>,
    /// A hold keeps the subscription until then.
    pub listens_until: Option<Moment>,
    /// Somebody came to wait while the lock was left to others. The next time the subscription is kept for him.
    returns: bool,
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
    Reenter(Vec<(u64, Lease)>),
    Attempt {
        ticket: u64,
        owner: OwnerId,
        lease: Lease,
        once: bool,
    },
    Glance,
    /// Look whether the hold that others wait behind is there still.
    Check,
    /// Let the record follow a hold that is ahead of it.
    Follow,
}

impl Driver {
    async fn act(mut self, action: Action) -> Self {
        match action {
            Action::Release(Release::Level(level)) => self.release(level).await,
            Action::Release(Release::Text(text, until)) => self.clear(&text, until).await,
            Action::Reenter(waiters) => self.reenter(waiters).await,
            Action::Attempt { ticket, owner, lease, once } => self.attempt(ticket, &owner, lease, once).await,
            Action::Glance => self.glance().await,
            Action::Check => self.check().await,
            Action::Follow => self.follow().await,
        }
        self
    }

    async fn wait(&self, until: Moment) {
        in_place::settle().await;
        self.lane.work().place = None;
        select! {
            () = self.lane.signal.woken() => {}
            () = time::sleep(until.remaining()) => {}
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
        if work.waiters.is_empty() && work.releases.is_empty() && self.pause.is_none() && behind.is_none() {
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
        if let Some(Current { behind: Some(behind), .. }) = &work.current {
            return match behind.again_at {
                Some(at) if now < at => Step::Wait(at.min(behind.until)),
                _ => Step::Do(Action::Follow),
            };
        }
        let owner = if work.current.is_some() { hold.as_ref().map(|hold| &hold.owner) } else { None };
        let again: Vec<_> = work
            .waiters
            .iter()
            .filter(|waiter| Some(&waiter.owner) == owner)
            .map(|waiter| (waiter.ticket, waiter.lease))
            .collect();
        if !again.is_empty() {
            return Step::Do(Action::Reenter(again));
        }
        if let Some(once) = work.waiters.iter().find(|waiter| waiter.once) {
            return Step::Do(Action::Attempt {
                ticket: once.ticket,
                owner: once.owner.clone(),
                lease: once.lease,
                once: true,
            });
        }
        self.returns |= away.is_some() && !work.waiters.is_empty();
        let Some(first) = work.waiters.front() else {
            if !self.returns {
                // Others would count it as one who waits.
                self.subscription = None;
            }
            self.told = None;
            return match away {
                Some(until) => Step::Wait(until),
                None => self.finish(work),
            };
        };
        let ours = state == Some(HoldState::Held) && work.current.is_some();
        let listen_from = work.current.as_ref().map(|current| current.since + LISTEN_AFTER).unwrap_or(now);
        let waits = if ours { listen_from <= now } else { away.is_some() || self.told.is_some() };
        if waits && self.subscription.is_none() {
            // Its confirmation is itself a reason to look again.
            self.subscription =
                Some(self.session.pubsub.subscribe(self.lane.kind.channel(), &self.lane.signal));
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
            Some(told) if told.before.epoch == epoch && now < told.attempt_at => {
                let glance_at = told.next_glance(work.newest());
                if now >= glance_at {
                    Step::Do(Action::Glance)
                } else {
                    Step::Wait(told.attempt_at.min(glance_at))
                }
            }
            _ => Step::Do(Action::Attempt {
                ticket: first.ticket,
                owner: first.owner.clone(),
                lease: first.lease,
                once: false,
            }),
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
        if work.current.is_none() {
            work.removed = true;
            drop(work);
            self.session.remove(&self.lane);
        }
        Step::Finish
    }

    /// Asks for the lock for the waiter of `ticket`.
    async fn attempt(&mut self, ticket: u64, owner: &OwnerId, lease: Lease, once: bool) {
        let before = self.lane.signal.mark();
        let text = owner.text(&self.session.id, self.session.era());
        let length = self.session.length(lease);
        let mut request = self.lane.kind.acquire(&text, millis(length));
        if once || self.told.is_some() {
            // It may well be busy, and then only the script says for how long.
            request.go_by_script();
        }
        self.lane.work().waiters.iter_mut().filter(|w| w.ticket == ticket).for_each(|w| w.attempts += 1);
        loop {
            let answer = self.session.connection.call(&mut request).await;
            if answer.is_ok() && request.repeated {
                self.session.retire_texts();
            }
            let (session, lane) = (&self.session, &self.lane);
            let failure = match answer {
                Ok(answer) => return self.attempted(&answer, before, ticket, owner, text, length),
                Err(failure) => failure,
            };
            let refused = failure.code().is_some();
            if failure.unanswered {
                session.retire_texts();
                let waits = lane.work().waiters.iter().any(|w| w.ticket == ticket);
                if !refused && !once && waits && !session.is_closed() {
                    // The same request again, so that what it may have done already counts once.
                    debug!(lock = ?lane.kind.record(), "an acquire went unanswered, asking again");
                    continue;
                }
                let until = Moment::now() + length;
                lane.work().releases.push_back(Release::Text(text, until));
            }
            if refused || once || session.is_closed() {
                let error = session.connection.error(failure, Phase::Acquire);
                self.tell(ticket, Outcome::Failed(error));
            }
            return;
        }
    }

    fn attempted(
        &mut self,
        answer: &Answer,
        before: Mark,
        ticket: u64,
        owner: &OwnerId,
        text: Arc<str>,
        length: Duration,
    ) {
        let ttl = match script::acquired(&answer.reply) {
            Ok(Acquired::Taken) => {
                self.told = None;
                self.pause = None;
                self.checked = Some(before.epoch);
                self.listen_on();
                let run = Run::new(answer.sent, self.gone_unheard.take());
                let hold = self.begin(owner, text, answer, length, run);
                return self.grant(&hold, &[ticket]);
            }
            Ok(Acquired::Busy(ttl)) => ttl,
            Ok(Acquired::Stale(ttl)) => {
                warn!(lock = ?self.lane.kind.record(), owner = %text, "the owner's text is in use by somebody else");
                self.session.retire_texts();
                ttl
            }
            Err(script::Undecodable) => {
                let error = self.session.connection.strange(Phase::Acquire);
                return self.tell(ticket, Outcome::Failed(error));
            }
        };
        self.busy(before, ttl);
        self.tell_busy_once(ticket);
    }

    /// Another level for waiters of the owner who holds the lock.
    async fn reenter(&mut self, waiters: Vec<(u64, Lease)>) {
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
        let mut request = self.lane.kind.recount(&hold.text, from, to, millis(lease));
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
                    hold.confirm(answer.sent, lease);
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
                    request = self.lane.kind.recount(&hold.text, from, to, millis(lease));
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
    pub(crate) fn begin(
        &mut self,
        owner: &OwnerId,
        text: Arc<str>,
        answer: &Answer,
        length: Duration,
        run: Run,
    ) -> Arc<Hold> {
        let before = self.lane.work().current.take();
        if let Some(before) = before {
            // The server let another in, so it was not held any more.
            before.hold.lose(before.hold.gone_in(answer.life));
        }
        let record = self.lane.kind.record().clone();
        let hold =
            Hold::new(record, owner.clone(), text, answer.life, answer.sent, length, self.lane.observer());
        let mut work = self.lane.work();
        work.busy = Busy::at(answer.sent, Some(hold.owner.clone()));
        work.current = Some(Current {
            hold: hold.clone(),
            since: answer.sent,
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
            if let Some(current) = &mut work.current {
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

    fn tell(&self, ticket: u64, outcome: Outcome) {
        let waiter = self.lane.work().take(ticket);
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

    /// The current hold and its count, if that may be changed from here on.
    fn change_current(&self) -> Option<(Arc<Hold>, u64)> {
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
        u64::from(self.subscription.is_some() && self.lane.signal.is_confirmed())
    }

    pub(crate) fn lost(&self, hold: &Arc<Hold>, reason: LossReason) -> Error {
        hold.lose(reason);
        Error::Lost { name: self.lane.kind.record().to_string(), reason, holder: None }
    }
}
