//! Redisson's fenced lock: the reentrant lock, with a token for each hold that is greater than all earlier tokens.
//!
//! A hand-off begins a new hold and gets a new token. A re-entry keeps the token. Redisson raises the token on a re-entry,
//! too, which looks to a reader of tokens as if another owner had held the lock in between.

use crate::config::options::millis;
use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Arg, Request};
use std::sync::Arc;
use std::time::Duration;

/// The token is known only when Redis confirms the hold, so a fenced lock is never handed off ahead of its record.
static FENCED: KindTraits =
    KindTraits { name: "fenced lock", fenced: true, pipelined: false, ..KindTraits::REENTRANT };

/// The fenced lock.
pub(crate) struct Fenced {
    keys: LockKeys,
    token: Arc<str>,
    retention_ms: u64,
}

impl Fenced {
    pub(crate) fn new(keys: LockKeys, retention: Option<Duration>) -> Self {
        Self { token: keys.token(), keys, retention_ms: retention.map_or(0, millis) }
    }
}

impl LockKind for Fenced {
    fn traits(&self) -> &'static KindTraits {
        &FENCED
    }

    fn record(&self) -> &Arc<str> {
        self.keys.record()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel().clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::acquire_fenced(self.record(), &self.token, args.owner_id, args.lease_ms, self.retention_ms)
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::release(self.record(), owner, self.keys.channel())
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        let keys = [self.record(), &self.token];
        let terms = [lease, Arg::Number(self.retention_ms)];
        Some(script::hand_off_fenced(keys, from, to, terms, self.keys.channel()))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Fenced {
    fn force_unlock(&self) -> Request {
        script::force_unlock(self.record(), self.keys.channel())
    }

    fn inspect(&self) -> Request {
        script::inspect(self.record(), self.keys.channel(), script::FEW)
    }
}
