//! One interface for everything that a task may hold: a lock, several locks, or permits.

use crate::ledger::state_word;
use redisson_lock::{Error, ExpirablePermit, HoldStatus, LockGuard, MultiLockGuard, SemaphorePermit};
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
    fn status(&self) -> Self::Status;
    fn release(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Status for HoldStatus {
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

/// The status of several locks, which have no owner id and no token in common.
pub struct InCommon(HoldStatus);

impl Status for InCommon {
    fn state(&self) -> String {
        Status::state(&self.0)
    }

    fn deadline(&self) -> Option<Instant> {
        Status::deadline(&self.0)
    }

    async fn lost(&self) {
        self.0.lost().await;
    }
}

/// The status of a permit without a lease, which cannot be lost and reports no state.
pub struct Endless;

impl Status for Endless {
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
    type Status = HoldStatus;

    fn status(&self) -> HoldStatus {
        self.status()
    }

    async fn release(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Grant for MultiLockGuard {
    type Status = InCommon;

    fn status(&self) -> InCommon {
        InCommon(self.status())
    }

    async fn release(self) -> Result<(), Error> {
        self.unlock().await
    }
}

impl Grant for ExpirablePermit {
    type Status = HoldStatus;

    fn status(&self) -> HoldStatus {
        self.status()
    }

    async fn release(self) -> Result<(), Error> {
        self.release().await
    }
}

impl Grant for SemaphorePermit {
    type Status = Endless;

    fn status(&self) -> Endless {
        Endless
    }

    async fn release(self) -> Result<(), Error> {
        self.release().await
    }
}
