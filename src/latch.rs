//! The handle of a count-down latch.

use crate::config::options::Lease;
use crate::engine::acquire::{self, Wait};
use crate::engine::key_queue::Terms;
use crate::engine::level::Level;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::guard::give_back;
use crate::kinds::Latch;
use crate::kinds::kind::LockKind;
use crate::owner::{OwnerId, entered};
use crate::protocol::keys::PermitKeys;
use crate::protocol::script;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Redisson's `RCountDownLatch`: whoever waits goes on when it was counted down to zero. A handle: cheap to clone, no I/O.
///
/// A latch that there is not, because nobody made it or it was counted down, is open.
#[derive(Clone)]
pub struct CountDownLatch {
    session: Arc<Session>,
    keys: Result<Arc<PermitKeys>>,
}

impl CountDownLatch {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        let keys = session.keys(name);
        let keys = keys.and_then(|keys| PermitKeys::latch(keys, session.mark)).map(Arc::new);
        Self { session, keys }
    }

    /// Makes the latch, to be counted down so often, if there is none. True if it did. (A count of 0 makes one that is open,
    /// and stays there.)
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for a bad name; [`Error::Ambiguous`] if
    /// the request was sent and not answered: it is not repeated, because the answer would be another.
    ///
    /// # Cancel safety
    /// Once polled, the request may take effect even if the future is dropped.
    pub async fn try_set_count(&self, count: u32) -> Result<bool> {
        self.session.ask_once(script::set_count(self.keys()?, count), script::yes, Phase::Adjust).await
    }

    /// Counts down by one. It takes effect once, also if its answer is lost; on a latch that is open, none.
    ///
    /// # Errors
    /// [`Error::Ambiguous`] if the server did not do it within the response timeout, because no answer came, or its disk
    /// fails: the library goes on trying in the background.
    /// [`Error::Unavailable`] if the client is closed, [`Error::Refused`] if the server refuses.
    ///
    /// # Cancel safety
    /// Once polled, it goes on in the background.
    pub async fn count_down(&self) -> Result<()> {
        let kind = self.kind()?;
        entered()?;
        give_back(&mut Level::outstanding(&self.session, &kind)?).await
    }

    /// How often it is to be counted down yet; 0 if it is open.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`], [`Error::Refused`]; [`Error::Misuse`] for a bad name.
    pub async fn count(&self) -> Result<u64> {
        let count = self.session.inspect(script::value(self.keys()?), script::number).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Waits until it is open.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is sent; [`Error::Refused`] if the server refuses; [`Error::Unavailable`] if
    /// the client is closed.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn wait(&self) -> Result<()> {
        if self.pass(Wait::Forever).await? { Ok(()) } else { Err(self.session.closed_error(Phase::Acquire)) }
    }

    /// Waits until it is open, at most for `wait`. False if it was not by then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait), and [`Error::TimedOut`] or [`Error::Unavailable`] if the server told nothing in that time.
    ///
    /// # Cancel safety
    /// As for [`wait`](Self::wait).
    pub async fn wait_for(&self, wait: Duration) -> Result<bool> {
        self.pass(Wait::within(&self.session, wait)?).await
    }

    /// Deletes the latch, which opens it for all who wait. True if there was one. (Redisson's own `delete` tells them that
    /// something changed, and its waiters wait on.)
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
        let passed = acquire::acquire(&self.session, &kind, OwnerId::thread(), terms, wait).await?;
        Ok(passed.is_some())
    }

    fn kind(&self) -> Result<Arc<dyn LockKind>> {
        Ok(Arc::new(Latch(self.keys()?.clone())))
    }

    fn keys(&self) -> Result<&Arc<PermitKeys>> {
        self.keys.as_ref().map_err(Error::clone)
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CountDownLatch").field(&self.keys.as_ref().map(|keys| &keys.record)).finish()
    }
}
