//! The direct path: a caller sends its request itself, if no other caller of the client uses the key, or if it hands the lock to the next
//! waiter while the actor has nothing to do. An acquire and a release need no task and no wake-up, and a hand-off wakes only the waiter.
//!
//! Invariants:
//! 1. While the request is in flight, `Company::direct` (`work.rs`) describes it, and the key queue sends no other request until the time
//!    limit of invariant 3.
//! 2. If the caller leaves, an actor undoes its acquire, or repeats its release or its hand-off.
//! 3. A caller that is not polled delays others for a bounded time: an acquire for the response timeout (and the time limit of the check
//!    of replicas), a release or a hand-off for [`RELEASED_WITHIN`]. Then an actor overtakes it, new holds use another owner id, and the reply
//!    to the caller counts for nothing. The actor undoes an overtaken acquire. The caller may send another part of it later, so it is undone
//!    again when the caller ends or leaves. The actor repeats an overtaken release or hand-off, and the caller gets its outcome.
//! 4. A request that brings no result goes to an actor, with everything that is known.

use crate::config::options::millis;
use crate::connection::{Answer, Route, SendError, Sent};
use crate::engine::actor;
use crate::engine::busy::LastBusy;
use crate::engine::claim::Claim;
use crate::engine::contention::undo_orphan;
use crate::engine::current::Current;
use crate::engine::grants::{acquired, grant};
use crate::engine::hand_off::{handed_off, successor};
use crate::engine::key_queue::KeyQueue;
use crate::engine::queue_id::QueueId;
use crate::engine::release::{begin_passing, freed};
use crate::engine::releases::Release;
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::engine::unfinished::{DirectAttempt, DirectRequest, Freeing, Successor, Unanswered, Unfinished};
use crate::engine::waiters::Outcome;
use crate::engine::work::{Finding, Terms, Work, next_ticket};
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{Access, AcquireArgs, LockKind, Waiting};
use crate::lease::hold::{Begun, Hold};
use crate::lease::status::HoldState;
use crate::observer::Way;
use crate::protocol::script::{self, Acquired, Released, Request};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::MutexGuard;
use crate::runtime::sync::time;
use crate::runtime::wakeup::Reading;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{Instrument, debug, debug_span, warn};

/// The actor waits this long for the reply to a release or a hand-off, and then repeats the request. Few round trips take longer.
const RELEASED_WITHIN: Duration = Duration::from_millis(250);

/// The part of a caller that sends its request itself. If it is dropped, an actor takes over.
struct Direct<'a> {
    session: &'a Arc<Session>,
    queue: &'a Arc<KeyQueue>,
    ticket: u64,
}

impl Direct<'_> {
    /// Ends the request, whose result is in `work`. Starts or wakes an actor if there is work for it.
    fn end(&self, mut work: MutexGuard<'_, Work>) {
        work.direct = None;
        match (work.has_actor, work.has_work()) {
            (true, _) if work.lets_rest(self.queue.signal.reading().epoch) => {}
            (false, false) => self.session.tidy(self.queue, work),
            _ => actor::wake(self.session, self.queue, work),
        }
    }
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        let mut work = self.queue.work();
        if work.direct.as_ref().is_some_and(|direct| direct.ticket == self.ticket) {
            work.take_over();
            actor::wake(self.session, self.queue, work);
        }
    }
}

/// The arguments of an acquire, from its caller.
pub(crate) struct CallArgs<'a> {
    pub claim: &'a Claim,
    pub kind: &'a Arc<dyn LockKind>,
    pub terms: Terms,
    /// The acquire is a single attempt.
    pub once: bool,
    /// The end of the call.
    pub until: Moment,
}

impl CallArgs<'_> {
    pub(crate) fn owner_id(&self) -> Arc<str> {
        self.claim.session.owner_id(&self.claim.owner)
    }
}

/// An acquire that its caller sends itself.
pub(crate) struct DirectAcquire<'a> {
    direct: Direct<'a>,
    args: &'a CallArgs<'a>,
    owner_id: Arc<str>,
    lease: Duration,
    unsent: Option<(Route, Request)>,
}

/// The outcome of a direct acquire.
pub(crate) enum Attempted {
    Done(Outcome),
    /// The caller waits in the key queue, with this ticket.
    Queued(u64, oneshot::Receiver<Outcome>),
}

impl<'a> DirectAcquire<'a> {
    /// Begins an acquire, if nobody else is at the key.
    pub(crate) fn begin(args: &'a CallArgs<'a>) -> Option<Self> {
        let &CallArgs { claim: Claim { session, queue, owner, .. }, kind, terms, once, .. } = args;
        if kind.traits().queued || !kind.has_direct_path() {
            return None;
        }
        // The owner may have a counterpart hold, which the request has to name.
        if QueueId::of_counterpart(&**kind, owner).is_some_and(|id| session.existing_queue(&id).is_some()) {
            return None;
        }
        let mut work = queue.work();
        if !work.is_idle() {
            return None;
        }
        let route = session.connection.route(kind.record())?;
        let lease = session.lease_duration(terms.lease);
        let ticket = next_ticket();
        let owner_id = kind.owner_id(session.owner_id(owner));
        let (sent_on, overtaken) = (route.connection_id(), false);
        let attempt =
            DirectAttempt { kind: kind.clone(), owner_id: owner_id.clone(), lease, sent_on, overtaken };
        let replication = session.options.replication();
        let replicas = if replication.is_off() { Duration::ZERO } else { replication.within };
        let until = Moment::now() + session.options.response_timeout + replicas;
        work.direct = Some(DirectRequest { ticket, until, unfinished: Some(Unfinished::Acquire(attempt)) });
        drop(work);
        let direct = Direct { session, queue, ticket };
        let mut request = kind.acquire(&AcquireArgs {
            owner_id: &owner_id,
            lease_ms: millis(lease),
            waiting: Waiting::No,
            counterpart: None,
        });
        if once || session.readers.exclude(&**kind) {
            // Only the script reports for how long the lock is busy.
            request.go_by_script();
        }
        Some(Self { direct, args, owner_id, lease, unsent: Some((route, request)) })
    }

    /// Sends the request, and waits for the outcome.
    pub(crate) async fn send(&mut self) -> Option<Attempted> {
        let before = self.direct.queue.signal.reading();
        let (route, request) = self.unsent.take()?;
        let Sent { request, answer } = route.send(request, self.args.until).await?;
        if let Ok(Answer { reply, data_epoch, .. }) = &answer
            && !self.direct.session.options.replication().is_off()
            && matches!(script::acquired(reply), Ok(Acquired::Taken(_)))
        {
            let (connection, record) = (&self.direct.session.connection, self.direct.queue.record());
            let checked = connection.check_replicas(record, *data_epoch);
            // Boxed, because few clients need it.
            if let Err(error) = Box::pin(time::timeout(self.args.until.remaining(), checked)).await.ok()? {
                debug!(lock = ?record, owner = %self.owner_id, %error, "acquire not replicated, undoing it");
                return Some(Attempted::Done(Outcome::failed(error)));
            }
        }
        Some(self.conclude(answer, request, before))
    }

    /// Acts on the reply.
    fn conclude(&self, answer: Result<Answer, SendError>, request: Request, before: Reading) -> Attempted {
        let Direct { session, queue, .. } = &self.direct;
        let mut work = queue.work();
        if work.direct.as_ref().is_some_and(DirectRequest::is_overtaken_acquire) {
            work.take_over();
            return self.enqueue(work, None);
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(SendError::Unanswered) => {
                session.rotate_owner_ids();
                let (owner_id, until) = (self.owner_id.clone(), Moment::now() + self.lease);
                return self.enqueue(work, Some(Unanswered { request, owner_id, until }));
            }
            Err(SendError::NotDone) => return self.enqueue(work, None),
        };
        let ttl = match script::acquired(&answer.reply) {
            Ok(Acquired::Taken(number)) => return self.grant(work, &answer, number),
            Ok(Acquired::Busy(ttl) | Acquired::Own(ttl)) => ttl,
            Ok(Acquired::Stale(ttl)) => {
                warn!(lock = ?queue.record(), owner = %self.owner_id, "the owner id is in use by another client");
                session.rotate_owner_ids();
                ttl
            }
            Err(script::Undecodable) => {
                self.direct.end(work);
                return Attempted::Done(Outcome::failed(session.connection.protocol_error(Phase::Acquire)));
            }
        };
        work.busy = LastBusy::at(Moment::now(), None);
        let attempted = match self.args.once {
            true => {
                self.direct.end(work);
                Attempted::Done(Outcome::Busy)
            }
            false => {
                let kind = self.args.kind.clone();
                let only = kind.permits().map(|_| self.direct.ticket);
                work.finding = Some(Box::new(Finding::Busy { kind, before, ttl, only }));
                self.enqueue(work, None)
            }
        };
        if let Some(owner) = script::blocking_owner_id(&answer.reply) {
            undo_orphan(session, self.args.kind, owner);
        }
        attempted
    }

    /// Begins the hold. `number` is its token, or the time that the record had left, depending on the kind.
    fn grant(&self, mut work: MutexGuard<'_, Work>, answer: &Answer, number: u64) -> Attempted {
        let session = self.direct.session;
        let CallArgs { kind, claim: Claim { owner, .. }, .. } = self.args;
        let (kind, owner, owner_id) = ((*kind).clone(), owner.clone(), self.owner_id.clone());
        let (data_epoch, sent, lease) = (answer.data_epoch, answer.sent, self.lease);
        let begun = Begun { kind, owner, owner_id, data_epoch, sent, lease, token: None };
        let hold = acquired(session, begun, number);
        if hold.kind.traits().access == Access::Exclusive {
            let mut current = Current::new(hold.clone(), sent, Run::new(sent, None));
            current.levels = 1;
            work.set_current(current);
        }
        self.direct.end(work);
        if session.is_closed() {
            // Nobody renews it, and `close` could not put it in doubt.
            hold.doubt(LossReason::Expired);
        }
        Attempted::Done(Outcome::Granted(hold, 1, Way::Directly))
    }

    /// Makes the caller a waiter.
    fn enqueue(&self, mut work: MutexGuard<'_, Work>, unanswered: Option<Unanswered>) -> Attempted {
        let &Direct { session, queue, ticket } = &self.direct;
        let &CallArgs { kind, claim: Claim { owner, .. }, terms, once, .. } = self.args;
        work.direct = None;
        let outcome = work.enqueue(ticket, kind, owner.clone(), terms, once);
        if let Some(waiter) = work.waiters.get_mut(ticket) {
            (waiter.unanswered, waiter.alone) = (unanswered.map(Box::new), false);
        }
        actor::wake(session, queue, work);
        Attempted::Queued(ticket, outcome)
    }
}

/// A release or a hand-off that its caller sends itself.
pub(crate) struct DirectRelease<'a> {
    direct: Direct<'a>,
    owner_id: Arc<str>,
    /// The number of this client's subscriptions to the channel.
    own_subscriptions: u64,
    /// The end of the call.
    until: Moment,
    unsent: Option<(Route, Request)>,
}

impl<'a> DirectRelease<'a> {
    /// Begins the release of the only level of a hold, if nobody else is at the key, or its hand-off to the next waiter, if the actor has
    /// nothing else to do. It ends the hold. Its caller waits until `until`.
    pub(crate) fn begin(
        session: &'a Arc<Session>,
        queue: &'a Arc<KeyQueue>,
        hold: &Arc<Hold>,
        until: Moment,
    ) -> Option<Self> {
        let now = Moment::now();
        // `state` may report to the queue, so the queue must not be locked.
        if !hold.kind.has_direct_path() || hold.state_at(now) != HoldState::Held {
            return None;
        }
        let route = session.connection.route(queue.record())?;
        let others = session.readers.to_name(queue);
        let deadline = hold.deadline();
        let overtaken_at = now + RELEASED_WITHIN;
        let mut work = queue.work();
        let run = work.run_of_sole_level(hold, now).filter(|_| hold.kept_after(now).is_none())?;
        let rest = work.rest.filter(|_| !work.has_step());
        let next = rest.and_then(|_| successor(session, &work, hold, deadline, &run, now));
        // A lock that was handed on may have to be kept for the previous holder, see `release.rs`.
        let alone = !work.has_actor && work.waiters.is_empty() && run.count == 0;
        if next.is_none() && !alone {
            return None;
        }
        let ending = hold.release_if_held(now)?;
        session.retire_id_of(hold);
        let handing = next.and_then(|next| {
            let successor = Successor::of(session, &*hold.kind, next);
            let request = successor.request(hold, &hold.owner_id)?;
            Some((Some(Box::new(successor)), request))
        });
        let named = hold.kind.release_id(&hold.owner_id);
        let (successor, request) = handing.unwrap_or_else(|| match &others {
            Some(others) => (None, hold.kind.release(&named, others)),
            None => (None, hold.kind.release_unnamed(&named)),
        });
        work.end_hold(now);
        let ticket = next_ticket();
        let freeing =
            Freeing { hold: hold.clone(), named, deadline, was: HoldState::Held, run, began: now, successor };
        let unfinished = Some(Unfinished::Release(freeing));
        work.direct = Some(DirectRequest { ticket, until: overtaken_at, unfinished });
        drop(work);
        if rest.is_some_and(|rest| rest.until > overtaken_at) {
            // The actor has to be up in time to overtake the request.
            queue.signal.nudge();
        }
        hold.report(ending);
        session.watchdog.forget(hold);
        Some(Self {
            direct: Direct { session, queue, ticket },
            owner_id: hold.owner_id.clone(),
            own_subscriptions: rest.map_or(0, |rest| u64::from(rest.subscribed)),
            until,
            unsent: Some((route, request)),
        })
    }

    /// Sends the request, and waits for the outcome.
    pub(crate) async fn send(&mut self) -> Option<Result<()>> {
        let span = debug_span!("release", lock = ?self.direct.queue.record(), owner = %self.owner_id);
        self.run().instrument(span).await
    }

    async fn run(&mut self) -> Option<Result<()>> {
        let before = self.direct.queue.signal.reading();
        let (route, request) = self.unsent.take()?;
        let Some(Sent { answer, .. }) = route.send(request, self.until).await else {
            return self.outcome_of_actor();
        };
        match self.conclude(answer, before) {
            Ok(outcome) => Some(outcome),
            Err(queued) => {
                // Boxed, because few releases need it.
                let outcome = Box::pin(time::timeout(self.until.remaining(), queued)).await.ok()?;
                Some(outcome.unwrap_or(Err(Error::Closed { phase: Phase::Release })))
            }
        }
    }

    /// Acts on the reply. Without one, an actor goes on, and reports the outcome to the receiver.
    fn conclude(
        &self,
        answer: Result<Answer, SendError>,
        before: Reading,
    ) -> Result<Result<()>, oneshot::Receiver<Result<()>>> {
        let Direct { session, queue, .. } = &self.direct;
        let mut work = queue.work();
        let unfinished = work.direct.as_mut().and_then(|direct| {
            // From here on the actor waits for the end, however late the reply is.
            direct.until = Moment::FAR;
            direct.unfinished.take()
        });
        let mut freeing = match unfinished {
            Some(Unfinished::Release(freeing)) => freeing,
            Some(Unfinished::Overtaken(outcome)) => {
                self.direct.end(work);
                return Err(outcome);
            }
            _ => unreachable!("only this caller takes the release of its ticket"),
        };
        let answer = match answer {
            // The actor names the other readers.
            Ok(answer) if matches!(script::released(&answer.reply), Ok(Released::Unnamed)) => {
                session.readers.must_be_named();
                return Err(self.requeue(work, freeing, false));
            }
            Ok(answer) => answer,
            Err(error) => return Err(self.requeue(work, freeing, error == SendError::Unanswered)),
        };
        drop(work);
        if let Some(successor) = freeing.successor.take() {
            return self.conclude_hand_off(freeing, &successor, &answer);
        }
        let freed = freed(session, queue, &freeing, &answer, false, before.messages, 0);
        let mut work = queue.work();
        let outcome = freed.map(|(receivers, window)| {
            begin_passing(session, &mut work, &freeing, &answer, receivers, 0);
            work.finding = window.map(|window| Box::new(Finding::Freed(window)));
        });
        self.direct.end(work);
        Ok(outcome)
    }

    /// The outcome of an actor that has overtaken the caller, if there is one.
    fn outcome_of_actor(&self) -> Option<Result<()>> {
        let mut work = self.direct.queue.work();
        match work.direct.as_mut()?.unfinished.as_mut()? {
            Unfinished::Overtaken(outcome) => outcome.try_recv().ok(),
            _ => None,
        }
    }

    /// Acts on the reply to a hand-off.
    fn conclude_hand_off(
        &self,
        freeing: Freeing,
        successor: &Successor,
        answer: &Answer,
    ) -> Result<Result<()>, oneshot::Receiver<Result<()>>> {
        let Direct { session, queue, .. } = &self.direct;
        let own = self.own_subscriptions;
        let Some(handed) = handed_off(session, queue, &freeing, successor, answer, false, own) else {
            return Err(self.requeue(queue.work(), freeing, false));
        };
        if let Ok(Some((hold, ticket))) = &handed {
            grant(session, queue, hold, &[*ticket], Way::HandedOver);
        }
        self.direct.end(queue.work());
        Ok(handed.map(drop))
    }

    /// Leaves the release to an actor. Returns the receiver of the outcome.
    fn requeue(
        &self,
        mut work: MutexGuard<'_, Work>,
        freeing: Freeing,
        repeated: bool,
    ) -> oneshot::Receiver<Result<()>> {
        let (reply, outcome) = oneshot::channel();
        work.releases.push_front(Release::Free(Box::new(freeing), repeated, Some(reply)));
        self.direct.end(work);
        outcome
    }
}
