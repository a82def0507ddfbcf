//! The caller's side of an acquire. If nobody else is at the key, the caller sends the request itself (`direct.rs`). Otherwise it
//! joins the key queue and waits for its outcome, and the key actor (`actor.rs`) does the rest.

use crate::config::options::check_wait;
use crate::engine::actor;
use crate::engine::busy::LastBusy;
use crate::engine::claim::Claim;
use crate::engine::direct::{Attempted, CallArgs, DirectAcquire};
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::engine::waiters::Outcome;
use crate::engine::work::{Terms, next_ticket};
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::{Access, LockKind};
use crate::lease::hold::Hold;
use crate::lease::spans;
use crate::lease::status::HoldState;
use crate::observer::{Acquired, CallEnd, NotAcquired, Waiting, Way};
use crate::runtime::clock::Moment;
use crate::runtime::sync::{task, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

/// The time limit of an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// A single attempt, whose reply must arrive within this time.
    Once(Duration),
    /// At most this long.
    For(Duration),
    /// No limit.
    Forever,
}

impl Wait {
    pub(crate) fn once(session: &Session) -> Self {
        Self::Once(session.options.response_timeout)
    }

    /// At most `wait`. Zero means a single attempt.
    pub(crate) fn within(session: &Session, wait: Duration) -> Result<Self> {
        check_wait(wait)?;
        Ok(if wait.is_zero() { Self::once(session) } else { Self::For(wait) })
    }

    /// Whether the wait is a single attempt, and its limit.
    pub(crate) fn once_and_limit(self) -> (bool, Option<Duration>) {
        match self {
            Self::Once(limit) => (true, Some(limit)),
            Self::For(limit) => (false, Some(limit)),
            Self::Forever => (false, None),
        }
    }
}

/// Acquires `kind` for the owner of `claim`, and returns how the call came to it. Returns `None` if the lock was busy until the limit.
///
/// Cancel safe: a future that is dropped leaves the queue, and a grant on its way to it is released.
///
/// No async function, because it would store its arguments twice, and a program may have many waiters.
pub(crate) fn acquire<'a>(
    claim: &'a Claim,
    kind: &'a Arc<dyn LockKind>,
    terms: Terms,
    wait: Wait,
) -> impl Future<Output = Result<Option<(Level, Way)>>> + Send + use<'a> {
    let session = &claim.session;
    let span = spans::acquire(&session.connection, &**kind, || session.owner_id(&claim.owner));
    let started = Moment::now();
    let (once, limit) = wait.once_and_limit();
    let until = limit.map_or(Moment::FAR, |limit| started + limit);
    let (number, waited) = (session.counters.observers.next_call(), AtomicBool::new(false));
    let acquire =
        Acquire { args: CallArgs { claim, kind, terms, once, until }, started, number, waited, span };
    async move {
        let Some((level, way)) = acquire.call().instrument(acquire.span.clone()).await? else {
            return Ok(None);
        };
        if way != Way::ReEntered && acquire.args.kind.traits().access != Access::Gate {
            // The span of the call is not the parent, because the hold outlives it.
            level.hold.trace(&acquire.span);
        }
        Ok(Some((level, way)))
    }
}

/// A call that is counted and reported when it ends: as cancelled, unless it has another end.
struct Call<'a> {
    acquire: &'a Acquire<'a>,
    end: Option<CallEnd>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            self.acquire.report_end(end);
        }
    }
}

/// A level that was granted, the number of attempts, and how the call came to it.
type Granted = (Level, u32, Way);

/// The acquire of one caller.
struct Acquire<'a> {
    args: CallArgs<'a>,
    started: Moment,
    /// The number of the call for the observers.
    number: u64,
    /// The observers know that the call waits, or has waited.
    waited: AtomicBool,
    /// The span of the call.
    span: Span,
}

impl Acquire<'_> {
    /// Acquires a level, and counts and reports how the call ends.
    async fn call(&self) -> Result<Option<(Level, Way)>> {
        let mut call = Call { acquire: self, end: Some(CallEnd::Cancelled) };
        loop {
            let (mut level, attempts, way) = match self.level().await {
                Ok(Some(granted)) => granted,
                Ok(None) => {
                    call.end = Some(if self.args.once { CallEnd::Busy } else { CallEnd::TimedOut });
                    return Ok(None);
                }
                Err(error) => {
                    spans::failed(&self.span, &error);
                    call.end = Some(CallEnd::Failed);
                    return Err(error);
                }
            };
            // The hold may have been lost since the grant, for example because the task was suspended. Then the call acquires again.
            let Some(way) = level.take(self.args.terms.lease, way) else { continue };
            self.report(&level.hold, way);
            let took = || Moment::now().since(self.started);
            spans::acquired(&self.span, level.hold.owner_in_record(), way, attempts, took);
            // A success is counted and reported with its level.
            call.end = None;
            return Ok(Some((level, way)));
        }
    }

    /// A single attempt fails at once without a connection.
    async fn fail_fast(&self) -> Result<()> {
        let CallArgs { claim: Claim { session, .. }, kind, once, .. } = self.args;
        let record = kind.record();
        if once
            && !session.connection.is_up(record)
            && let Some(error) = session.connection.unavailability(record, self.started, Phase::Acquire)
        {
            // A caller that tries in a loop would otherwise keep the tasks that connect again from running.
            task::yield_now().await;
            return Err(error);
        }
        Ok(())
    }

    /// Sends the request directly if nobody else is at the key. Otherwise waits in the key queue. Returns `None` if the lock was busy.
    async fn level(&self) -> Result<Option<Granted>> {
        self.args.claim.session.check_open(Phase::Acquire)?;
        self.fail_fast().await?;
        let (ticket, outcome) = match &mut DirectAcquire::begin(&self.args) {
            Some(direct) => match direct.send().await {
                Some(Attempted::Done(outcome)) => return self.granted(outcome),
                Some(Attempted::Queued(ticket, outcome)) => (ticket, outcome),
                None => return Err(self.no_reply()),
            },
            None => self.enqueue(),
        };
        let _waiting = self.args.claim.session.counters.waiting.enter();
        let mut waiting = WaitTicket { acquire: self, ticket, outcome, left: false };
        self.report_wait();
        let _span = spans::wait(&**self.args.kind, || self.args.owner_id());
        let received = match self.within_limit(&mut waiting.outcome).await {
            Some(received) => received,
            None => match waiting.give_up() {
                Some(busy) => return busy.map(|()| None),
                None => (&mut waiting.outcome).await,
            },
        };
        waiting.left = received.is_ok();
        let outcome = received.map_err(|_| Error::Closed { phase: Phase::Acquire })?;
        self.granted(outcome)
    }

    /// Joins the key queue. Returns the ticket of the waiter, and the receiver of its outcome.
    fn enqueue(&self) -> (u64, oneshot::Receiver<Outcome>) {
        let CallArgs { claim: Claim { session, queue, owner, .. }, kind, terms, once, .. } = self.args;
        actor::submit(session, queue.clone(), |work| {
            let ticket = next_ticket();
            (ticket, work.enqueue(ticket, kind, owner.clone(), terms, once))
        })
    }

    fn report_wait(&self) {
        let &Self { args: CallArgs { claim: Claim { session, .. }, kind, .. }, number: call, .. } = self;
        let observers = &session.counters.observers;
        if observers.is_empty() || self.waited.swap(true, Ordering::Relaxed) {
            return;
        }
        let (name, kind, owner) = (&**kind.record(), kind.traits().name, &*self.args.owner_id());
        observers.tell(|observer| observer.on_waiting(&Waiting { call, name, kind, owner }));
    }

    /// Reports a level to the observers.
    fn report(&self, hold: &Hold, way: Way) {
        let observers = &self.args.claim.session.counters.observers;
        if observers.is_empty() {
            return;
        }
        let traits = hold.kind.traits();
        let (held, token) = (traits.access != Access::Gate, hold.token());
        let acquired = Acquired {
            call: self.number,
            hold: held.then_some(hold.serial),
            name: hold.record(),
            kind: traits.name,
            owner: hold.owner_in_record(),
            way,
            waited: self.waited.load(Ordering::Relaxed),
            took: Moment::now().since(self.started),
            token,
        };
        observers.tell(|observer| observer.on_acquired(&acquired));
    }

    /// Counts and reports the end of a call without a level.
    fn report_end(&self, end: CallEnd) {
        let &Self { args: CallArgs { claim: Claim { session, .. }, kind, .. }, number: call, .. } = self;
        session.counters.not_acquired(end);
        spans::not_acquired(&self.span, end, || Moment::now().since(self.started));
        let observers = &session.counters.observers;
        if observers.is_empty() {
            return;
        }
        let (name, kind, owner) = (&**kind.record(), kind.traits().name, &*self.args.owner_id());
        let (waited, took) = (self.waited.load(Ordering::Relaxed), Moment::now().since(self.started));
        let ended = NotAcquired { call, name, kind, owner, end, waited, took };
        observers.tell(|observer| observer.on_not_acquired(&ended));
    }

    /// The level of a grant.
    fn granted(&self, outcome: Outcome) -> Result<Option<Granted>> {
        let CallArgs { claim: Claim { session, queue, .. }, terms, .. } = self.args;
        match outcome {
            Outcome::Granted(hold, attempts, way) => {
                Ok(Some((Level::new(session, queue, &hold, terms.pipelined), attempts, way)))
            }
            Outcome::Busy => Ok(None),
            Outcome::Failed(error) => Err(*error),
        }
    }

    /// The output of `future`, or `None` if the deadline of the call comes first. Takes a reference, because a future that is moved into an
    /// async function is stored twice.
    async fn within_limit<T>(&self, future: impl Future<Output = T> + Unpin) -> Option<T> {
        match self.args.until {
            Moment::FAR => Some(future.await),
            // Boxed, because a waiter without a limit needs no timer.
            until => Box::pin(time::timeout(until.remaining(), future)).await.ok(),
        }
    }

    /// The error of a wait that ends without a reply.
    fn no_reply(&self) -> Error {
        let CallArgs { claim: Claim { session, .. }, kind, .. } = self.args;
        let connection = &session.connection;
        connection.unavailability(kind.record(), self.started, Phase::Acquire).unwrap_or_else(|| {
            let (phase, node) = (Phase::Acquire, connection.node().into());
            Error::TimedOut { phase, node, waited: Moment::now().since(self.started) }
        })
    }
}

/// A caller's waiter in the key queue. When the ticket is dropped, the waiter is removed, and a grant that it has received is
/// released.
struct WaitTicket<'a> {
    acquire: &'a Acquire<'a>,
    ticket: u64,
    outcome: oneshot::Receiver<Outcome>,
    /// The waiter is no longer in the queue.
    left: bool,
}

impl WaitTicket<'_> {
    /// Ends the wait at its limit: `Ok` if the lock was busy. Returns `None` if the waiter has already left the queue, because its
    /// outcome is then being delivered.
    ///
    /// The lock counts as busy if another owner is known to have held it during the wait, or if this client yields to other
    /// clients. Otherwise its state is unknown, and the wait ends with an error. A single attempt without a reply also ends with an error.
    fn give_up(&mut self) -> Option<Result<()>> {
        let &Acquire {
            args: CallArgs { claim: Claim { session, queue, owner, .. }, once, .. }, started, ..
        } = self.acquire;
        let now = Moment::now();
        let (heard, current) = {
            let mut work = queue.work();
            work.leave(self.ticket)?;
            self.left = true;
            let busy = work.busy.as_ref().is_some_and(|busy| busy.was_for(owner, started));
            let yielding = work.yield_until.is_some_and(|until| until + LastBusy::FRESH >= now);
            (busy || yielding, work.current.as_ref().map(|current| (current.hold.clone(), current.levels)))
        };
        queue.signal.nudge();
        let held_here = current.filter(|(hold, _)| hold.state() == HoldState::Held);
        let busy = match held_here {
            // A hold of `owner` itself does not make the lock busy. Exception: a hold without levels was acquired for a waiter that has
            // left.
            Some((hold, levels)) => hold.owner != *owner || levels == 0,
            None => heard && session.connection.is_up(queue.record()),
        };
        match !once && busy {
            true => Some(Ok(())),
            false => Some(Err(self.acquire.no_reply())),
        }
    }
}

impl Drop for WaitTicket<'_> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let queue = &self.acquire.args.claim.queue;
        if queue.work().leave(self.ticket).is_some() {
            return queue.signal.nudge();
        }
        // From now on the outcome cannot be delivered. It may have been before.
        self.outcome.close();
        if let Ok(outcome) = self.outcome.try_recv() {
            drop(self.acquire.granted(outcome));
        }
    }
}
