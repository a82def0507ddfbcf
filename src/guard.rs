//! [`LockGuard`], which releases the lock.

use crate::engine::level::Level;
use crate::engine::names::KnownClients;
use crate::engine::session::Session;
use crate::error::{Error, LossReason, Phase, Result};
use crate::holder::Holder;
use crate::kinds::kind::LockKind;
use crate::lease::status::HoldState;
use crate::owner::entered;
use crate::runtime::clock::Moment;
use crate::runtime::sync::{select, time};
use crate::status::{HoldStatus, status_methods};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The guard of an acquired lock. If an owner acquires a lock several times, each acquire has a guard, and the lock is free when all of
/// them are released.
///
/// Call [`unlock`](Self::unlock) to confirm the release. A dropped guard releases the lock in the background, while the runtime of
/// its [`Client`](crate::Client) runs. Dropping never blocks and never panics, inside a runtime or outside. A guard may move to
/// another task or thread; it keeps its owner.
///
/// A guard reports the state of its hold, and cannot be cloned. [`status`](Self::status) returns a [`HoldStatus`] for other tasks.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let guard = client.mutex("orders:42").lock().await?;
/// if guard.state() == redisson_lock::HoldState::Held {
///     // the next write is protected
/// }
/// guard.unlock().await?; // an error if the hold was lost
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct LockGuard {
    level: Level,
}

impl LockGuard {
    pub(crate) fn new(level: Level) -> Self {
        Self { level }
    }

    /// Returns the client's session.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.level.session
    }

    /// Returns the data epoch in which the hold was last confirmed.
    pub(crate) fn data_epoch(&self) -> u64 {
        self.level.hold.data_epoch()
    }

    /// Returns whether the hold was seen to be over. Does not read the clock, and reports nothing.
    pub(crate) fn is_over(&self) -> bool {
        self.level.hold.is_over()
    }

    /// Returns the lease that the hold's own request gave the record.
    pub(crate) fn lease(&self) -> Duration {
        self.level.hold.lease()
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
    /// - [`Error::NotHeld`] if the hold was already known to be lost, [`Error::Lost`] if the release found it lost. Both contain the reason,
    ///   and the current holder if the server answers in time. Treat the work as unprotected.
    /// - [`Error::Ambiguous`] if no answer came within the response timeout, [`Error::Unavailable`] if there was no connection during that
    ///   time and nothing was sent. The client continues to release in the background until the release is confirmed or the lease has ended.
    /// - [`Error::Closed`] if the client is closed, [`Error::Refused`] if the server refused. The hold ends with its lease.
    /// - [`Error::Misuse`] outside a tokio runtime, where the release continues in the background; and in a forked child process, where
    ///   nothing is released, because the hold belongs to the parent.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the release, which continues in the background.
    pub async fn unlock(mut self) -> Result<()> {
        entered()?;
        let until = self.level.session.question_ends();
        match self.level.release().await {
            // Rarely needed and large, so boxed.
            Err(error @ (Error::NotHeld { .. } | Error::Lost { .. })) => {
                Err(Box::pin(self.with_holder(error, until)).await)
            }
            outcome => outcome,
        }
    }

    /// Adds the current holder to the error of a release.
    async fn with_holder(&self, mut error: Error, until: Moment) -> Error {
        let Level { session, hold, .. } = &self.level;
        if let Error::NotHeld { holder, .. } | Error::Lost { holder, .. } = &mut error {
            *holder = ask_holder(session, &*hold.kind, until).await;
        }
        error
    }
}

/// Runs `body` during the hold that `status` reports, and ends the hold by `unlock`. A lost hold cancels `body`.
pub(crate) async fn run_held<F, Fut, T>(
    status: HoldStatus,
    body: F,
    unlock: impl Future<Output = Result<()>>,
) -> Result<T>
where
    F: FnOnce(HoldStatus) -> Fut,
    Fut: Future<Output = T>,
{
    let done = select! {
        biased;
        _ = status.lost() => None,
        value = body(status.clone()) => Some(value),
    };
    end_run(&status, done, unlock).await
}

/// Ends the hold that `status` reports by `unlock`, after a body ended with a value or was cancelled.
pub(crate) async fn end_run<T>(
    status: &HoldStatus,
    done: Option<T>,
    unlock: impl Future<Output = Result<()>>,
) -> Result<T> {
    let (state, released) = (status.state(), unlock.await);
    match (done, state, released) {
        (Some(value), state, Ok(())) if state.is_live() => Ok(value),
        (Some(_), state, Err(error)) if state.is_live() && error.is_lost() => Err(error),
        (Some(value), state, Err(error)) if state.is_live() => {
            tracing::warn!(lock = ?status.name(), %error, "released without confirmation");
            Ok(value)
        }
        (_, state, released) => {
            let reason = if let HoldState::Lost(reason) = state { reason } else { LossReason::Expired };
            let holder = match released {
                Err(Error::NotHeld { holder, .. } | Error::Lost { holder, .. }) => holder,
                _ => None,
            };
            Err(Error::Lost { name: status.name().to_owned(), reason, holder })
        }
    }
}

status_methods!(
    LockGuard,
    |guard| HoldStatus::of(&guard.level.hold),
    guard.level.hold.owner_in_record(),
    guard.level.hold.record()
);

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockGuard").field(&self.level.hold).finish()
    }
}

/// Asks the server for the current holder. Returns `None` if no answer arrives before `until`, and at once without a connection.
async fn ask_holder(session: &Session, kind: &dyn LockKind, until: Moment) -> Option<Holder> {
    let kind = kind.owned().filter(|kind| session.connection.is_up(kind.record()))?;
    let asked = session.connection.ask(kind.holder_probe(), |reply| kind.held_by(reply), Phase::Inspect);
    let mut holder = time::timeout(until.remaining(), asked).await.ok()?.ok().flatten();
    session.name_holders(&mut holder, &mut KnownClients::default(), until).await;
    holder
}
