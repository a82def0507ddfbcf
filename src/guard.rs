//! What the holder has in hand: [`LockGuard`], which gives the lock back, and [`Holding`], which tells how it stands.

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

/// One level of a hold on a lock. The lock is held while any level of it lives.
///
/// Unlock it to learn that the release took effect, or drop it: then it is released in the background, while its
/// [`Client`](crate::Client)'s runtime runs. Dropping never blocks and never panics, in a runtime or outside.
/// A guard may be moved to another task or thread; it keeps its owner.
///
/// It derefs to [`Holding`], which tells how the hold stands.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    level: Level,
    holding: Holding,
}

impl LockGuard {
    pub(crate) fn new(level: Level) -> Self {
        Self { holding: Holding::of(&level), level }
    }

    /// The life of the server's data in which it was last confirmed.
    pub(crate) fn life(&self) -> u64 {
        self.level.hold.life()
    }

    /// How long the hold's own request makes the record live.
    pub(crate) fn lease(&self) -> Duration {
        self.level.hold.lease
    }

    /// The hold ends by `margin` before its lease does.
    pub(crate) fn end_early(&self, margin: Duration) {
        self.level.hold.end_early(margin);
        self.level.session.watchdog.watch(&self.level.hold);
    }

    /// Releases this level, and the lock with the last one.
    ///
    /// # Errors
    /// - [`Error::NotHeld`] if the hold had already been told as lost, [`Error::Lost`] if the release found it lost.
    ///   Both name the present holder where it can be asked. What the lock guarded was not protected to the end.
    /// - [`Error::Ambiguous`] if no answer came within the response timeout. The library goes on releasing in the
    ///   background until it is confirmed or the lease has ended.
    /// - [`Error::Unavailable`] if the client is closed, [`Error::Refused`] if the server refused: the lease ends the
    ///   hold.
    /// - [`Error::Misuse`] outside a tokio runtime; the release goes on in the background. Also in a forked child, where
    ///   nothing is released: the hold is the parent's.
    ///
    /// Where the lock was passed on by a [pipelined](crate::HandOff::pipelined) hand-off, success says no more than that: the
    /// next task has it.
    ///
    /// If an answer to the release was lost and the repeat finds nothing to release, that is success: the record
    /// cannot tell whether this client or a force-unlock in between freed it.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the release back: it goes on in the background.
    pub async fn unlock(self) -> Result<()> {
        entered()?;
        let Self { mut level, .. } = self;
        let until = time::Instant::now() + level.session.options.response_timeout;
        let outcome = give_back(&mut level).await;
        // Seldom asked, and large.
        let ask = || Box::pin(ask_holder(&level.session, &*level.hold.kind, until));
        match outcome {
            Err(Error::NotHeld { name, .. }) => Err(Error::NotHeld { name, holder: ask().await }),
            Err(Error::Lost { name, reason, .. }) => Err(Error::Lost { name, reason, holder: ask().await }),
            outcome => outcome,
        }
    }
}

/// Gives a level back, and tells what came of it within the response timeout.
pub(crate) async fn give_back(level: &mut Level) -> Result<()> {
    if level.hold.is_over() {
        level.session.check_process()?;
        return Err(Error::NotHeld { name: level.hold.record().to_string(), holder: None });
    }
    let timeout = level.session.options.response_timeout;
    let Some((mut outcome, mut turn)) = level.release()? else { return Ok(()) };
    match time::timeout(timeout, turn.wait(&mut outcome)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(level.session.closed_error(Phase::Release)),
        Err(_) => {
            let node = level.session.connection.node().into();
            Err(Error::Ambiguous { phase: Phase::Release, node })
        }
    }
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

/// How a hold stands. Cheap to clone, holds nothing: the hold ends with its guards.
///
/// Every look compares the lease's deadline with the clock first (on Linux the boot-time clock, which goes on while
/// the host sleeps), so that a process that was paused past its lease is told [`HoldState::Lost`]. A pause of a
/// virtual machine that stops its clock too can't be seen: where that matters, fence at the resource.
#[derive(Clone)]
pub struct Holding(pub(crate) Arc<Hold>);

impl Holding {
    pub(crate) fn of(level: &Level) -> Self {
        Self(level.hold.clone())
    }

    /// What is known of the hold now.
    pub fn state(&self) -> HoldState {
        self.0.state()
    }

    /// The state now and every later one, to the last: [`HoldState::Lost`] or [`HoldState::Released`]. States that
    /// follow each other faster than they are read are skipped. Told by the client's runtime; [`lost`](Self::lost) works
    /// without it.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        self.0.state();
        States { changes: WatchStream::new(self.0.follow()), told: None }
    }

    /// Ends when the hold is lost, with [`HoldState::Lost`], or when it was released.
    ///
    /// Works on any tokio runtime, also when the client's own has ended: then the lease's deadline decides.
    ///
    /// # Cancel safety
    /// It only watches.
    pub async fn lost(&self) -> HoldState {
        let mut states = self.0.follow();
        loop {
            let state = self.0.state();
            if !state.is_live() {
                return state;
            }
            select! {
                _ = states.changed() => {}
                () = until_look(self.0.deadline()) => {}
            }
        }
    }

    /// The owner as the record has it: `<client uuid>:<id>`, with `~<n>` behind it if earlier texts were retired.
    pub fn owner(&self) -> &str {
        self.0.kind.owner(&self.0.text)
    }

    /// The lock's name as Redis has it (after the name mapper).
    pub fn name(&self) -> &str {
        self.0.record()
    }

    /// The fencing token of the acquire, where the lock has them (see [`Client::fenced_lock`](crate::Client::fenced_lock)):
    /// each hold's is greater than those of all holds before it. Send it along to the resource, which is to refuse any that is
    /// smaller than one that it has seen.
    pub fn token(&self) -> Option<u64> {
        self.0.token
    }

    /// When the lease ends unless it is renewed: the time at which the last confirmed request was sent, plus the
    /// lease. Moves on with each renewal.
    pub fn deadline(&self) -> Instant {
        self.0.deadline().to_instant()
    }
}

/// Ends when it is time to look whether `deadline` has passed.
pub(crate) async fn until_look(deadline: Moment) {
    if entered().is_err() {
        // No timers here: the client's own will tell.
        std::future::pending().await
    }
    // No longer than a second: timers stand still while the host sleeps.
    time::sleep(deadline.remaining().min(Duration::from_secs(1))).await;
}

/// Tells no state twice in a row, and ends with the first that is final.
struct States {
    changes: WatchStream<HoldState>,
    told: Option<HoldState>,
}

impl Stream for States {
    type Item = HoldState;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<HoldState>> {
        while self.told.is_none_or(HoldState::is_live) {
            let Some(state) = ready!(Pin::new(&mut self.changes).poll_next(cx)) else { break };
            if self.told.replace(state) != Some(state) {
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

/// Who holds the lock now, if that can be told until then.
pub(crate) async fn ask_holder(
    session: &crate::engine::session::Session,
    kind: &dyn LockKind,
    until: time::Instant,
) -> Option<crate::error::Holder> {
    let asked = session.connection.ask(kind.holder(), |reply| kind.held_by(reply), Phase::Inspect);
    time::timeout_at(until, asked).await.ok()?.ok().flatten()
}
