//! One interface for everything that a task may hold: a lock, several locks, or permits.

use crate::ledger::state_word;
use redisson_lock::{
    Error, ExpirablePermit, Holding, LockGuard, MultiHolding, MultiLockGuard, SemaphorePermit,
};
use std::future::Future;
use std::time::Instant;

/// The state of a hold.
pub trait Status: Sync {
    fn state(&self) -> String;
    /// `None` without a lease.
    fn deadline(&self) -> Option<Instant>;
    fn lost(&self) -> impl Future<Output = ()> + Send;
    fn owner(&self) -> String {
        "-".into()
    }
    fn token(&self) -> u64 {
        0
    }
}

pub trait Grant: Send {
    type Status: Status;
    fn status(&self) -> &Self::Status;
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Status for Holding {
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

impl Status for MultiHolding {
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

/// A permit without a lease cannot be lost, and reports no state.
impl Status for SemaphorePermit {
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

impl Grant for LockGuard {
    type Status = Holding;

    fn status(&self) -> &Holding {
        self
    }

    async fn release(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Grant for MultiLockGuard {
    type Status = MultiHolding;

    fn status(&self) -> &MultiHolding {
        self
    }

    async fn release(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Grant for ExpirablePermit {
    type Status = Holding;

    fn status(&self) -> &Holding {
        self
    }

    async fn release(self) -> Result<(), Error> {
        self.release().await
    }
}

impl Grant for SemaphorePermit {
    type Status = Self;

    fn status(&self) -> &Self {
        self
    }

    async fn release(self) -> Result<(), Error> {
        self.release().await
    }
}
