//! Redisson's fenced lock: the reentrant lock, and a number for each hold that is greater than those of all before it.
//!
//! A hand-off is a new hold and has a new number. A re-entry is none, and keeps it: Redisson raises the number there, too,
//! which whoever compares numbers cannot tell from a hold that somebody had in between.

use crate::config::options::millis;
use crate::kinds::kind::{Ask, KindTraits, LockKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Request};
use std::sync::Arc;
use std::time::Duration;

/// A hold's number comes with its confirmation.
static FENCED: KindTraits =
    KindTraits { name: "fenced lock", fenced: true, pipelined: false, ..KindTraits::REENTRANT };

/// The kind.
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
    fn manner(&self) -> &'static KindTraits {
        &FENCED
    }

    fn record(&self) -> &Arc<str> {
        self.keys.record()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel().clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        script::acquire_fenced(self.record(), &self.token, ask.text, ask.lease_ms, self.retention_ms)
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>) -> Request {
        script::release(self.record(), owner, self.keys.channel())
    }

    fn hand_over(&self, from: &Arc<str>, to: &Arc<str>, lease_ms: u64) -> Option<Request> {
        let keys = [self.record(), &self.token];
        let terms = [lease_ms, self.retention_ms];
        Some(script::hand_over_fenced(keys, from, to, terms, self.keys.channel()))
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock(self.record(), self.keys.channel()))
    }
}
