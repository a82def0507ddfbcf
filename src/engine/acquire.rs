//! What a caller does to get a lock: takes a place in the lane's queue, and waits for what it is told. The lane's
//! driver does the rest (see `drive`).

use crate::config::options::check_wait;
use crate::engine::key_queue::{Busy, KeyQueue, Outcome, Terms};
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::LockKind;
use crate::lease::hold::HoldState;
use crate::owner::OwnerId;
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::field::Empty;
use tracing::{Instrument, debug, debug_span};

/// How long an acquire may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// One attempt, answered within that time.
    Once(Duration),
    /// At most that long.
    For(Duration),
    Forever,
}

impl Wait {
    pub(crate) fn once(session: &Session) -> Self {
        Self::Once(session.options.response_timeout)
    }

    /// At most `wait`: if that is zero, one attempt.
    pub(crate) fn within(session: &Session, wait: Duration) -> Result<Self> {
        check_wait(wait)?;
        Ok(if wait.is_zero() { Self::once(session) } else { Self::For(wait) })
    }
}

/// Acquires `kind` for `owner`. `None` where the wait was over and the lock was busy.
///
/// Cancel safe: a future dropped at any point leaves its place, and a grant on its way to it is given back.
pub(crate) async fn acquire(
    session: &Arc<Session>,
    kind: &Arc<dyn LockKind>,
    owner: OwnerId,
    terms: Terms,
    wait: Wait,
) -> Result<Option<Level>> {
    let span = debug_span!("acquire", lock = ?kind.record(), owner = ?owner, ?wait, waited = Empty, attempts = Empty);
    let recording = span.clone();
    async move {
        let started = Moment::now();
        let (once, limit) = match wait {
            Wait::Once(limit) => (true, Some(limit)),
            Wait::For(limit) => (false, Some(limit)),
            Wait::Forever => (false, None),
        };
        loop {
            let (reply, outcome) = oneshot::channel();
            let (ticket, lane, mut turn) =
                session.submit(kind, &owner, |work| work.enqueue(kind, owner.clone(), terms, once, reply))?;
            let mut place = WaitTicket { session, lane, ticket, outcome, left: false };
            let told = match limit {
                None => turn.wait(&mut place.outcome).await.ok(),
                Some(limit) => {
                    let left = limit.saturating_sub(Moment::now().since(started));
                    match time::timeout(left, turn.wait(&mut place.outcome)).await {
                        Ok(told) => told.ok(),
                        Err(_) => match place.give_up(&owner, started, once) {
                            Some(outcome) => return outcome,
                            None => turn.wait(&mut place.outcome).await.ok(),
                        },
                    }
                }
            };
            place.left = told.is_some();
            match told {
                Some(Outcome::Granted(mut level, attempts)) => {
                    level.take();
                    // This task may have been paused for longer than the lease since the grant.
                    if !level.hold.state().is_live() {
                        continue;
                    }
                    if !recording.is_disabled() {
                        let waited = Moment::now().since(started);
                        recording
                            .record("attempts", attempts)
                            .record("waited", tracing::field::debug(waited));
                    }
                    debug!(owner = %level.hold.text, "acquired");
                    return Ok(Some(level));
                }
                Some(Outcome::Busy) => return Ok(None),
                Some(Outcome::Failed(error)) => return Err(error),
                None => return Err(session.closed_error(Phase::Acquire)),
            }
        }
    }
    .instrument(span)
    .await
}

/// A place in the queue, left when dropped.
struct WaitTicket<'a> {
    session: &'a Arc<Session>,
    lane: Arc<KeyQueue>,
    ticket: u64,
    outcome: oneshot::Receiver<Outcome>,
    /// Taken out of the queue by whoever told the outcome.
    left: bool,
}

impl WaitTicket<'_> {
    /// The time is over. Busy if another held the lock meanwhile, by what is known, or it is the others' turn; else
    /// nobody knows. `None` if an outcome is just being told.
    fn give_up<T>(&mut self, owner: &OwnerId, started: Moment, once: bool) -> Option<Result<Option<T>>> {
        let now = Moment::now();
        let (heard, current) = {
            let mut work = self.lane.work();
            work.leave(self.ticket)?;
            self.left = true;
            let busy = work.busy.as_ref().is_some_and(|busy| busy.was_for(owner, started));
            let away = work.away_until.is_some_and(|until| until + Busy::FRESH >= now);
            (busy || away, work.current.as_ref().map(|current| (current.hold.clone(), current.levels)))
        };
        self.lane.signal.nudge();
        let held_here = current.filter(|(hold, _)| hold.state() == HoldState::Held);
        let busy = match held_here {
            // For an owner who holds the lock it is not busy. A hold of no level was on its way to who has just left.
            Some((hold, levels)) => hold.owner != *owner || levels == 0,
            None => heard && self.session.connection.is_up(self.lane.record()),
        };
        if !once && busy {
            return Some(Ok(None));
        }
        let connection = &self.session.connection;
        Some(Err(connection.trouble(self.lane.record(), started, Phase::Acquire).unwrap_or_else(|| {
            let (phase, node) = (Phase::Acquire, connection.node().into());
            Error::TimedOut { phase, node, waited: now.since(started) }
        })))
    }
}

impl Drop for WaitTicket<'_> {
    fn drop(&mut self) {
        if !self.left && self.lane.work().leave(self.ticket).is_some() {
            self.lane.signal.nudge();
        }
    }
}
