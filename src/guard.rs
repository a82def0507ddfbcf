//! [`LockGuard`], which releases the lock.

use crate::engine::level::Level;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::LockKind;
use crate::owner::entered;
use crate::runtime::sync::time;
use crate::status::{HoldStatus, status_methods};
use std::fmt;
use std::time::Duration;

/// The guard of an acquired lock. If an owner acquires a lock several times, each acquire has a guard, and the lock is free when all of
/// them are released.
///
/// Call [`unlock`](Self::unlock) to confirm the release. A dropped guard releases the lock in the background, while the runtime of
/// its [`Client`](crate::Client) runs. Dropping never blocks and never panics, inside a runtime or outside. A guard may move to
/// another task or thread; it keeps its owner.
///
/// A guard answers the questions about its hold, and cannot be cloned. [`status`](Self::status) returns a [`HoldStatus`] for other tasks.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    level: Level,
    pub(crate) status: HoldStatus,
}

impl LockGuard {
    pub(crate) fn new(level: Level) -> Self {
        Self { status: HoldStatus::of(&level.hold), level }
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

status_methods!(LockGuard, status);

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.level.hold).finish()
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
