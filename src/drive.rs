//! The one wait loop, for every kind of lock.
//!
//! [`drive`] serves a lane until it has nothing left to do: it releases and hands off (see `release`), re-enters,
//! attempts, and waits. Between two steps it holds no lock. What it knows of Redis is in [`Told`], and belongs to
//! the lane and not to the waiter in front: a successor inherits it.
//!
//! Invariants:
//! 1. A level is given out only after its request was confirmed, and for one owner at a time.
//! 3. A request that went unanswered is repeated as itself, or undone; its text is never used for a new hold.
//! 4. A waiter that left costs nothing: what was won for it goes to the next, or back.
//! 5. The epoch is read before an attempt is sent, so that a message that overtakes the reply is not lost.

use crate::clock::Moment;
use crate::connection::{Answer, Failure};
use crate::error::{Error, LossReason, Phase};
use crate::hold::{Hold, HoldState};
use crate::lane::{Current, Lane, Level, Outcome, Release};
use crate::options::{Lease, millis};
use crate::owner::OwnerId;
use crate::pubsub::Subscription;
use crate::script::{self, Acquired, Recounted, TimeToLive};
use crate::session::Session;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// The least time between two looks at a busy lock, whatever the server said.
const SHORTEST_LOOK: Duration = Duration::from_millis(2);
/// The first glance at a busy lock between messages, and the first while other clients come and go without any.
const GLANCE: Duration = Duration::from_millis(10);
const GLANCE_AT_POLLERS: Duration = Duration::from_millis(1);
/// The longest pause between looks while other clients come and go without messages.
const LONGEST_GLANCE_AT_POLLERS: Duration = Duration::from_millis(16);
/// Two moves of the expiry within this time are not renewals.
const MOVES_WITHIN: Duration = Duration::from_millis(500);
/// How long what was seen of such clients counts.
const POLLERS_COUNT_FOR: Duration = Duration::from_secs(2);

/// Drives `lane` until there is nothing left to do.
pub(crate) fn drive(session: Arc<Session>, lane: Arc<Lane>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut driver =
            Driver { session, lane, subscription: None, told: None, run: Run::default(), pause: None };
        while driver.step().await {}
    })
}

pub(crate) struct Driver {
    pub session: Arc<Session>,
    pub lane: Arc<Lane>,
    pub subscription: Option<Subscription>,
    pub told: Option<Told>,
    pub run: Run,
    pub pause: Option<Pause>,
}

/// What Redis last told of a lock that others hold.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    /// The epoch before it was asked.
    epoch: u64,
    /// When to attempt again if nothing is heard.
    attempt_at: Moment,
    /// When to glance at the expiry, for holders that leave without a message; and the step from glance to glance.
    glance_at: Moment,
    step: Duration,
    /// The latest moment at which the record can expire, unless it is renewed or replaced.
    expires: Option<Moment>,
}

/// Hand-offs since the record was last acquired from outside.
#[derive(Default)]
pub(crate) struct Run {
    pub since: Option<Moment>,
    pub count: u32,
    /// Subscriptions of other clients, where known.
    pub others: Option<u64>,
}

/// A time in which this client stays away, for others to come first.
pub(crate) struct Pause {
    pub until: Moment,
    /// It ends with this epoch: everyone who was told has come, and left.
    pub epoch: u64,
}

/// What to do next.
enum Step {
    Release(Release),
    Reenter(Vec<(u64, Lease)>),
    Attempt { ticket: u64, owner: OwnerId, lease: Lease, once: bool },
    Glance,
    Wait(Moment),
    Finish,
}

impl Driver {
    /// One step; false when the lane is done.
    async fn step(&mut self) -> bool {
        match self.next() {
            Step::Release(Release::Level { hold, renewing, reply }) => {
                self.release(hold, renewing, reply).await
            }
            Step::Release(Release::Text(text, until)) => self.clear(&text, until).await,
            Step::Reenter(waiters) => self.reenter(waiters).await,
            Step::Attempt { ticket, owner, lease, once } => self.attempt(ticket, &owner, lease, once).await,
            Step::Glance => self.glance().await,
            Step::Wait(until) => {
                tokio::select! {
                    () = self.lane.signal.woken() => {}
                    () = tokio::time::sleep(until.remaining()) => {}
                }
            }
            Step::Finish => return false,
        }
        true
    }

    fn next(&mut self) -> Step {
        let now = Moment::now();
        // A look at a state can find the deadline passed and tell the lane, so the lane is not locked for it.
        let hold = self.lane.work().current.as_ref().map(|current| current.hold.clone());
        let state = hold.as_ref().map(Hold::state);
        let epoch = self.lane.signal.epoch();
        let mut work = self.lane.work();
        if state.is_some_and(|state| !state.is_live()) {
            work.current = None;
            self.told = None;
        }
        let release = work.releases.pop_front();
        work.releasing = release.is_some();
        if let Some(release) = release {
            return Step::Release(release);
        }
        let owner = if work.current.is_some() { hold.as_ref().map(|hold| &hold.owner) } else { None };
        let again: Vec<_> = work
            .waiters
            .iter()
            .filter(|waiter| Some(&waiter.owner) == owner)
            .map(|waiter| (waiter.ticket, waiter.lease))
            .collect();
        if !again.is_empty() {
            return Step::Reenter(again);
        }
        let mut until = Moment::FAR;
        if let Some(pause) = &self.pause {
            if now >= pause.until || epoch >= pause.epoch {
                self.pause = None;
            } else {
                until = pause.until;
            }
        }
        if let Some(once) = work.waiters.iter().find(|waiter| waiter.once) {
            return Step::Attempt {
                ticket: once.ticket,
                owner: once.owner.clone(),
                lease: once.lease,
                once: true,
            };
        }
        let Some(first) = work.waiters.front() else {
            self.subscription = None;
            self.told = None;
            if self.pause.is_some() {
                return Step::Wait(until);
            }
            work.driven = false;
            if work.current.is_none() {
                work.removed = true;
                drop(work);
                self.session.remove(&self.lane);
            }
            return Step::Finish;
        };
        if self.pause.is_some() {
            return Step::Wait(until);
        }
        if state == Some(HoldState::Held) && work.current.is_some() {
            // Behind a hold of our own: it will be handed on, or end.
            return Step::Wait(hold.map_or(Moment::FAR, |hold| hold.deadline()));
        }
        match &self.told {
            Some(told) if told.epoch == epoch && now < told.attempt_at => {
                if now >= told.glance_at {
                    Step::Glance
                } else {
                    Step::Wait(told.attempt_at.min(told.glance_at))
                }
            }
            _ => Step::Attempt {
                ticket: first.ticket,
                owner: first.owner.clone(),
                lease: first.lease,
                once: false,
            },
        }
    }

    /// Asks for the lock for the waiter of `ticket`.
    async fn attempt(&mut self, ticket: u64, owner: &OwnerId, lease: Lease, once: bool) {
        let (session, lane) = (self.session.clone(), self.lane.clone());
        let epoch = lane.signal.epoch();
        let text = owner.text(&session.id, session.era());
        let length = session.length(lease);
        let mut request = lane.kind.acquire(&text, millis(length));
        lane.work().waiters.iter_mut().filter(|w| w.ticket == ticket).for_each(|w| w.attempts += 1);
        loop {
            let failure = match session.connection.call(&mut request, session.options.response_timeout).await
            {
                Ok(answer) => {
                    if answer.repeated {
                        session.retire_texts();
                    }
                    return self.attempted(&answer, epoch, ticket, owner, text, length);
                }
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
        epoch: u64,
        ticket: u64,
        owner: &OwnerId,
        text: Arc<str>,
        length: Duration,
    ) {
        let now = Moment::now();
        self.lane.work().answered = Some(now);
        let ttl = match script::acquired(&answer.reply) {
            Ok(Acquired::Taken) => {
                self.told = None;
                self.run = Run { since: Some(now), ..Run::default() };
                let hold = self.begin(owner, text, answer, length);
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
        self.busy(epoch, answer.sent, ttl);
        if !self.tell_busy_once(ticket) && self.subscription.is_none() {
            // Confirmed, it is itself a reason to look again.
            self.subscription =
                Some(self.session.pubsub.subscribe(self.lane.kind.channel(), &self.lane.signal));
        }
    }

    /// Takes note of a busy lock whose record, asked at `sent`, lives for `ttl`.
    fn busy(&mut self, epoch: u64, sent: Moment, ttl: Option<Duration>) {
        let now = Moment::now();
        let before = self.told.filter(|told| told.epoch == epoch);
        // Without a message in between, an expiry past the latest possible one is another hold's, or a renewal.
        let moved = match (before.and_then(|told| told.expires), ttl) {
            (Some(expires), Some(ttl)) => sent + ttl > expires,
            _ => false,
        };
        let pollers = self.pollers(moved);
        let first = if pollers || moved { GLANCE_AT_POLLERS } else { GLANCE };
        let step = match before {
            Some(told) if !moved => told.step * 2,
            _ => first,
        };
        let step = if pollers { step.min(LONGEST_GLANCE_AT_POLLERS) } else { step };
        let look = ttl.unwrap_or(self.session.options.lease / 3).max(SHORTEST_LOOK);
        let attempt_at = now + if pollers { look.min(step) } else { look };
        self.told = Some(Told {
            epoch,
            attempt_at,
            glance_at: now + step,
            step,
            expires: ttl.map(|ttl| now + ttl + Duration::from_millis(1)),
        });
    }

    /// Whether other clients come and go without messages. `moved`: the expiry has just moved without one. A
    /// watchdog's renewal does that too, but not twice in so short a time.
    pub(crate) fn pollers(&self, moved: bool) -> bool {
        let now = Moment::now();
        let mut work = self.lane.work();
        if moved {
            let before = work.moved_at.replace(now);
            if before.is_some_and(|before| now.since(before) < MOVES_WITHIN) {
                work.pollers_until = Some(now + POLLERS_COUNT_FOR);
            }
        }
        work.pollers_until.is_some_and(|until| now < until)
    }

    /// Looks at the expiry of a busy lock, for a fraction of an attempt's cost.
    async fn glance(&mut self) {
        let Some(told) = self.told else { return };
        let mut request = script::time_to_live(self.lane.kind.record());
        let answer = self.session.connection.call(&mut request, self.session.options.response_timeout).await;
        match answer.map(|answer| (script::lives(&answer.reply), answer.sent)) {
            // Freed, and no message (yet).
            Ok((Ok(TimeToLive::Absent), _)) => self.told = None,
            Ok((Ok(TimeToLive::Left(ttl)), sent)) => self.busy(told.epoch, sent, Some(ttl)),
            Ok((Ok(TimeToLive::Never), sent)) => self.busy(told.epoch, sent, None),
            Ok((Err(_), _)) | Err(_) => {
                let step = told.step * 2;
                self.told = Some(Told { step, glance_at: Moment::now() + step, ..told });
            }
        }
    }

    /// Another level for waiters of the owner who holds the lock.
    async fn reenter(&mut self, waiters: Vec<(u64, Lease)>) {
        let Some((hold, from)) = self.current() else { return };
        let to = from + waiters.len() as u64;
        let length = waiters.iter().map(|&(_, lease)| self.session.length(lease)).max().unwrap_or_default();
        let request = self.lane.kind.recount(&hold.text, from, to, millis(length));
        let failed = match self.certain(request, &hold).await {
            Ok(answer) => match script::recounted(&answer.reply) {
                Ok(Recounted::Done) => {
                    hold.confirm(answer.sent, length);
                    self.with_current(&hold, |current| current.recorded = to);
                    let tickets: Vec<_> = waiters.iter().map(|&(ticket, _)| ticket).collect();
                    return self.grant(&hold, &tickets);
                }
                Ok(Recounted::Gone) => self.lost(&hold, LossReason::Gone),
                Ok(Recounted::Other) => self.lost(&hold, LossReason::Taken),
                Ok(Recounted::Mismatch) => self.mismatch(),
                Err(script::Undecodable) => self.session.connection.strange(Phase::Acquire),
            },
            Err(failure) => self.session.connection.error(failure, Phase::Acquire),
        };
        for (ticket, _) in waiters {
            self.tell(ticket, Outcome::Failed(failed.clone()));
        }
    }

    /// Sends a change of the count until it is known what became of it, as long as the lease may live.
    pub(crate) async fn certain(
        &self,
        mut request: script::Request,
        hold: &Arc<Hold>,
    ) -> Result<Answer, Failure> {
        loop {
            let answer = self.session.connection.call(&mut request, hold.deadline().remaining()).await;
            match &answer {
                Ok(answer) if answer.repeated => self.session.retire_texts(),
                Err(failure) if failure.unanswered => {
                    self.session.retire_texts();
                    // A watchdog hold may have been renewed meanwhile.
                    if failure.code().is_none() && hold.state().is_live() && !self.session.is_closed() {
                        continue;
                    }
                }
                _ => {}
            }
            return answer;
        }
    }

    /// A new hold by a confirmed request.
    pub(crate) fn begin(
        &mut self,
        owner: &OwnerId,
        text: Arc<str>,
        answer: &Answer,
        length: Duration,
    ) -> Arc<Hold> {
        let before = self.lane.work().current.take();
        if let Some(before) = before {
            // The server let another in, so it was not held any more.
            before.hold.lose(LossReason::Gone);
        }
        let record = self.lane.kind.record().clone();
        let hold = Hold::new(record, owner.clone(), text, answer.sent + length, self.lane.observer());
        self.lane.work().current = Some(Current { hold: hold.clone(), recorded: 1, levels: 0 });
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
            let lease = waiter.as_ref().map_or(Lease::Fixed(Duration::ZERO), |waiter| waiter.lease);
            if lease == Lease::Watchdog {
                hold.begin_renewal();
            }
            let level = Level::new(&self.session, &self.lane, hold, lease);
            if let Some(waiter) = waiter {
                let _ = waiter.reply.send(Outcome::Granted(level, waiter.attempts));
            }
        }
        self.session.watchdog.watch(hold);
    }

    fn tell(&self, ticket: u64, outcome: Outcome) {
        let waiter = self.lane.work().take(ticket);
        if let Some(waiter) = waiter {
            let _ = waiter.reply.send(outcome);
        }
    }

    /// Tells the waiter of `ticket` that the lock is busy if it wanted no more; false if it waits on.
    fn tell_busy_once(&self, ticket: u64) -> bool {
        if self.lane.work().waiters.iter().any(|waiter| waiter.ticket == ticket && !waiter.once) {
            return false;
        }
        self.tell(ticket, Outcome::Busy);
        true
    }

    fn current(&self) -> Option<(Arc<Hold>, u64)> {
        self.lane.work().current.as_ref().map(|current| (current.hold.clone(), current.recorded))
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
