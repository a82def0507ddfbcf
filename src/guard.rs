//! [`LockGuard`], which releases the lock, and [`Holding`], which reports the state of the hold.

use crate::engine::level::Level;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::LockKind;
use crate::lease::hold::{Hold, HoldState};
use crate::owner::entered;
use crate::runtime::clock::Moment;
use crate::runtime::sync::{select, time};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

/// The guard of an acquired lock. If an owner acquires a lock several times, each acquire has a guard, and the lock is free when all of
/// them are released.
///
/// Call [`unlock`](Self::unlock) to confirm the release. A dropped guard releases the lock in the background, while the runtime of
/// its [`Client`](crate::Client) runs. Dropping never blocks and never panics, inside a runtime or outside. A guard may move to
/// another task or thread; it keeps its owner.
///
/// A guard derefs to [`Holding`], which reports the state of the hold.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    level: Level,
    holding: Holding,
}

impl LockGuard {
    pub(crate) fn new(level: Level) -> Self {
        Self { holding: Holding::of(&level), level }
    }

    /// Returns the data epoch in which the hold was last confirmed.
    pub(crate) fn data_epoch(&self) -> u64 {
        self.level.hold.data_epoch()
    }

    /// Returns the lease that the hold's own request gave the record.
    pub(crate) fn lease(&self) -> Duration {
        self.level.hold.lease
    }

    /// Ends the hold earlier than its lease, by `margin`.
    pub(crate) fn end_early(&self, margin: Duration) {
        self.level.hold.end_early(margin);
        self.level.session.watchdog.watch(&self.level.hold);
    }

    /// Releases this guard's level. Releasing the last level releases the lock.
    ///
    /// After a [pipelined](crate::HandOff::pipelined) hand-off, success does not confirm that the record named this owner.
    ///
    /// If the reply to a release was lost and the repeat finds nothing to release, the call succeeds. The record cannot show
    /// whether this client or a force-unlock in between freed it.
    ///
    /// # Errors
    /// - [`Error::NotHeld`] if the hold was already known to be lost, [`Error::Lost`] if the release found it lost. Both contain the
    ///   current holder if the server answers in time. Treat the work as unprotected.
    /// - [`Error::Ambiguous`] if no answer came within the response timeout. The client continues to release in the background until
    ///   the release is confirmed or the lease has ended.
    /// - [`Error::Unavailable`] if the client is closed, [`Error::Refused`] if the server refused. The hold ends with its lease.
    /// - [`Error::Misuse`] outside a tokio runtime, where the release continues in the background; and in a forked child process, where
    ///   nothing is released, because the hold belongs to the parent.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the release, which continues in the background.
    pub async fn unlock(self) -> Result<()> {
        entered()?;
        let Self { mut level, .. } = self;
        let until = time::Instant::now() + level.session.options.response_timeout;
        let outcome = release(&mut level).await;
        // Rarely needed and large, so boxed.
        let ask = || Box::pin(ask_holder(&level.session, &*level.hold.kind, until));
        match outcome {
            Err(Error::NotHeld { name, .. }) => Err(Error::NotHeld { name, holder: ask().await }),
            Err(Error::Lost { name, reason, .. }) => Err(Error::Lost { name, reason, holder: ask().await }),
            outcome => outcome,
        }
    }
}

/// Releases a level and waits for the outcome, for at most the response timeout.
pub(crate) async fn release(level: &mut Level) -> Result<()> {
    if level.hold.is_over() {
        level.session.check_process()?;
        return Err(Error::NotHeld { name: level.hold.record().to_string(), holder: None });
    }
    let timeout = level.session.options.response_timeout;
    let released = time::timeout(timeout, level.release()).await;
    released.unwrap_or_else(|_| {
        let node = level.session.connection.node().into();
        Err(Error::Ambiguous { phase: Phase::Release, node })
    })
}

impl Deref for LockGuard {
    type Target = Holding;
    fn deref(&self) -> &Holding {
        &self.holding
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.holding.0).finish()
    }
}

/// The state of a hold. It is cheap to clone and keeps nothing alive: the hold ends with its guards.
///
/// Every query first compares the lease's deadline with the clock. A process that was paused past its lease therefore sees
/// [`HoldState::Lost`]. On Linux the clock is the boot-time clock, which continues while the host sleeps. A paused virtual machine whose
/// clock stops cannot detect its pause; if that matters, let the resource check a fencing token.
#[derive(Clone)]
pub struct Holding(pub(crate) Arc<Hold>);

impl Holding {
    pub(crate) fn of(level: &Level) -> Self {
        Self(level.hold.clone())
    }

    /// Returns the current state of the hold.
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// Returns a stream of states: the current one, then the latest one after each change, up to [`HoldState::Lost`] or
    /// [`HoldState::Released`].
    ///
    /// The client's runtime drives the stream; [`lost`](Self::lost) works without that runtime.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        self.0.state();
        States { changes: WatchStream::new(self.0.watch_state()), reported: None }
    }

    /// Waits until the hold ends, and returns [`HoldState::Lost`] or [`HoldState::Released`].
    ///
    /// This works on any tokio runtime. If the client's own runtime has ended, the lease's deadline decides.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only observes.
    pub async fn lost(&self) -> HoldState {
        let mut states = self.0.watch_state();
        loop {
            let state = self.0.state();
            if !state.is_live() {
                return state;
            }
            select! {
                _ = states.changed() => {}
                () = until_next_check(self.0.deadline()) => {}
            }
        }
    }

    /// Waits until the hold is about to end although it is not released, and returns how long it still lasts at most.
    ///
    /// This is one lease before the limit that [`Lock::with_max_hold`](crate::Lock::with_max_hold) sets. It is at once for a fixed lease,
    /// and for a limit that is shorter than a lease. Without a limit, the call returns zero when the hold has ended, as it does for every
    /// hold that ends before.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only observes.
    pub async fn ending(&self) -> Duration {
        let mut states = self.0.watch_state();
        while self.0.state().is_live() {
            let end = self.0.end();
            let warned = end - self.0.lease;
            if warned.passed() {
                return end.remaining();
            }
            select! {
                _ = states.changed() => {}
                () = until_next_check(warned) => {}
            }
        }
        Duration::ZERO
    }

    /// Returns the text that identifies the hold in the record. For most locks it is the owner id, `<client uuid>:<id>`. After an
    /// unanswered request or a lost hold, new owner ids end in `~<n>`. The owner ids of writers also end in `:write`. For a value lock the
    /// text is the token, and for permits their ids.
    pub fn owner(&self) -> &str {
        self.0.kind.owner(&self.0.owner_id)
    }

    /// Returns the lock's name as stored in Redis, after the name mapper.
    pub fn name(&self) -> &str {
        self.0.record()
    }

    /// Returns the fencing token of the acquire, if the lock is [fenced](crate::Client::fenced_lock).
    ///
    /// Each token is greater than the tokens of all earlier holds. Send it to the resource with each write. The resource must refuse any
    /// token smaller than the largest one that it has seen.
    pub fn token(&self) -> Option<u64> {
        self.0.token
    }

    /// Returns when the lease ends unless it is renewed.
    ///
    /// This is the time at which the last confirmed request was sent, plus the lease. Each renewal moves it.
    pub fn deadline(&self) -> Instant {
        self.0.deadline().to_instant()
    }
}

/// Waits until it is time to compare `deadline` with the clock again.
pub(crate) async fn until_next_check(deadline: Moment) {
    if entered().is_err() {
        // There are no timers outside a tokio runtime, so only the client's own runtime can report the end.
        std::future::pending().await
    }
    // Timers stop while the host sleeps, so wait no longer than a second.
    time::sleep(deadline.remaining().min(Duration::from_secs(1))).await;
}

/// Returns no state twice in a row, and ends after the first final one.
struct States {
    changes: WatchStream<HoldState>,
    reported: Option<HoldState>,
}

impl Stream for States {
    type Item = HoldState;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<HoldState>> {
        while self.reported.is_none_or(HoldState::is_live) {
            let Some(state) = ready!(Pin::new(&mut self.changes).poll_next(cx)) else { break };
            if self.reported.replace(state) != Some(state) {
                return Poll::Ready(Some(state));
            }
        }
        Poll::Ready(None)
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holding").field(&self.0).finish()
    }
}

/// Asks the server for the current holder. Returns `None` if no answer arrives before `until`.
pub(crate) async fn ask_holder(
    session: &crate::engine::session::Session,
    kind: &dyn LockKind,
    until: time::Instant,
) -> Option<crate::error::Holder> {
    let kind = kind.owned()?;
    let asked = session.connection.ask(kind.holder_probe(), |reply| kind.held_by(reply), Phase::Inspect);
    time::timeout_at(until, asked).await.ok()?.ok().flatten()
}
