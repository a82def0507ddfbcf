//! What a task has in hand: a lock, several, or permits.

use crate::ledger::state_word;
use redisson_lock::{
    Error, ExpirablePermit, Holding, LockGuard, MultiHolding, MultiLockGuard, SemaphorePermit,
};
use std::future::Future;
use std::time::Instant;

/// How it stands.
pub trait Look: Sync {
    fn state(&self) -> String;
    /// `None` for what has no lease.
    fn deadline(&self) -> Option<Instant>;
    fn lost(&self) -> impl Future<Output = ()> + Send;
    fn owner(&self) -> String {
        "-".into()
    }
    fn token(&self) -> u64 {
        0
    }
}

pub trait Hand: Send {
    type Look: Look;
    fn look(&self) -> &Self::Look;
    fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Look for Holding {
    fn state(&self) -> String {
        state_word(self.state())
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline())
    }

    async fn lost(&self) {
        self.lost().await;
    }

    fn owner(&self) -> String {
        self.owner().split_whitespace().collect::<Vec<_>>().join("/")
    }

    fn token(&self) -> u64 {
        self.token().unwrap_or(0)
    }
}

impl Look for MultiHolding {
    fn state(&self) -> String {
        state_word(self.state())
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.deadline())
    }

    async fn lost(&self) {
        self.lost().await;
    }
}

/// Nobody takes such a permit away, and nobody can tell.
impl Look for SemaphorePermit {
    fn state(&self) -> String {
        "Held".into()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    async fn lost(&self) {
        std::future::pending().await
    }
}

impl Hand for LockGuard {
    type Look = Holding;

    fn look(&self) -> &Holding {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Hand for MultiLockGuard {
    type Look = MultiHolding;

    fn look(&self) -> &MultiHolding {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Hand for ExpirablePermit {
    type Look = Holding;

    fn look(&self) -> &Holding {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.release().await
    }
}

impl Hand for SemaphorePermit {
    type Look = Self;

    fn look(&self) -> &Self {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.release().await
    }
}
