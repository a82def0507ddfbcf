//! The handle of a count-down latch.

use crate::config::options::Lease;
use crate::engine::acquire::{self, Wait};
use crate::engine::claim::Claim;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::engine::work::Terms;
use crate::error::{Error, Phase, Result};
use crate::kinds::Latch;
use crate::kinds::kind::LockKind;
use crate::owner::entered;
use crate::protocol::keys::{CounterKeys, LockKeys};
use crate::protocol::script;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A latch that opens when it has been counted down to zero: Redisson's `RCountDownLatch`.
///
/// A handle is cheap to clone and does no I/O. A latch that does not exist is open, whether it was never created or was counted down.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let ready = client.count_down_latch("workers-ready");
/// ready.try_set_count(3).await?;
/// ready.count_down().await?; // each worker calls this
/// ready.wait().await?; // returns after the third call
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct CountDownLatch {
    session: Arc<Session>,
    keys: Result<Arc<CounterKeys>>,
}

impl CountDownLatch {
    pub(crate) fn new(session: Arc<Session>, keys: Result<LockKeys>) -> Self {
        let keys = keys.and_then(|keys| CounterKeys::latch(keys, session.instance)).map(Arc::new);
        Self { session, keys }
    }

    /// Returns the latch's name as stored in Redis, after the name mapper.
    ///
    /// Returns an empty string if the name, or another argument of the handle, is invalid.
    pub fn name(&self) -> &str {
        self.keys.as_ref().map_or("", |keys| &keys.record)
    }

    /// Creates the latch with `count`, unless it exists.
    ///
    /// Returns `true` if this call created it. A `count` of 0 creates an open latch whose key remains.
    ///
    /// # Errors
    /// - [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for an invalid name.
    /// - [`Error::Ambiguous`] if the request was sent but not answered. The request is not repeated, because a repeat would return
    ///   another answer.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn try_set_count(&self, count: u32) -> Result<bool> {
        self.session.ask_once(script::set_count(self.keys()?, count), script::yes, Phase::Adjust).await
    }

    /// Counts the latch down by one.
    ///
    /// The call takes effect once, even if its reply is lost. It has no effect on an open latch.
    ///
    /// # Errors
    /// - [`Error::Ambiguous`] if the count-down was not confirmed within the response timeout, because no answer came or the server's disk
    ///   fails; [`Error::Unavailable`] if there was no connection during that time and nothing was sent. The client continues to try in
    ///   the background.
    /// - [`Error::Closed`] if the client is closed, [`Error::Refused`] if the server refuses.
    ///
    /// # Cancel safety
    /// Once polled, the count-down continues in the background even if the future is dropped.
    pub async fn count_down(&self) -> Result<()> {
        let kind = self.kind()?;
        entered()?;
        Level::outstanding(&self.session, &kind)?.release().await
    }

    /// Returns the remaining count, which is 0 for an open latch.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for an invalid name.
    pub async fn count(&self) -> Result<u64> {
        let count = self.session.inspect(script::value(self.keys()?), script::number).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Waits until the latch is open, without a limit.
    ///
    /// # Errors
    /// - [`Error::Misuse`] for an invalid name or outside a tokio runtime, before anything is sent.
    /// - [`Error::Refused`] if the server refuses the request.
    /// - [`Error::Closed`] if the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: the call changes nothing.
    pub async fn wait(&self) -> Result<()> {
        if self.pass(Wait::Forever).await? { Ok(()) } else { Err(Error::Closed { phase: Phase::Acquire }) }
    }

    /// Waits until the latch is open, for at most `wait`.
    ///
    /// Returns `false` if the latch was still closed. A `wait` of zero means a single attempt.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait); also [`Error::TimedOut`] or [`Error::Unavailable`] if the server did not answer within `wait`.
    ///
    /// # Cancel safety
    /// As for [`wait`](Self::wait).
    pub async fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.pass(Wait::within(&self.session, wait)?).await
    }

    /// Deletes the latch, which opens it for all waiters.
    ///
    /// Returns `true` if the latch existed. This call wakes all waiters, including those of Redisson. After Redisson's own `delete`,
    /// Redisson's waiters continue to wait.
    ///
    /// # Errors
    /// As for [`try_set_count`](Self::try_set_count).
    ///
    /// # Cancel safety
    /// As for [`try_set_count`](Self::try_set_count).
    pub async fn delete(&self) -> Result<bool> {
        self.session.ask_once(script::delete_latch(self.keys()?), script::yes, Phase::Adjust).await
    }

    async fn pass(&self, wait: Wait) -> Result<bool> {
        let kind = self.kind()?;
        entered()?;
        let terms = Terms { lease: Lease::Endless, pipelined: false };
        let passed = acquire::acquire(&Claim::of_anyone(&self.session, &*kind)?, &kind, terms, wait).await?;
        Ok(passed.is_some())
    }

    fn kind(&self) -> Result<Arc<dyn LockKind>> {
        Ok(Arc::new(Latch(self.keys()?.clone())))
    }

    fn keys(&self) -> Result<&Arc<CounterKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountDownLatch").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}
