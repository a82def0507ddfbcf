//! Redisson's fair lock: the reentrant lock's record, with a queue of waiters in Redis. The first of them gets the lock when
//! it is free, whoever's client it is of; and only he is told, on a channel of his own.
//!
//! A waiter that is not heard of for its allowance, once it is first, counts as gone. Redisson reckons that by its clients'
//! clocks, here it is the server's; and who waits here and is heard of counts anew.

use crate::config::options::millis;
use crate::kinds::kind::{Ask, KindTraits, LockKind, Waiting};
use crate::protocol::keys::{LockKeys, QueueKeys};
use crate::protocol::script::{self, Request};
use std::sync::Arc;
use std::time::Duration;

/// Redis says whose turn it is, so nothing is handed on.
static FAIR: KindTraits = KindTraits {
    name: "fair lock",
    queued: true,
    handed_on: false,
    pipelined: false,
    glances: false,
    ..KindTraits::REENTRANT
};
static NON_REENTRANT: KindTraits = KindTraits { name: "non-reentrant fair lock", reentrant: false, ..FAIR };

/// The kind.
pub(crate) struct Fair {
    manner: &'static KindTraits,
    keys: QueueKeys,
    allowance_ms: u64,
}

impl Fair {
    pub(crate) fn new(keys: LockKeys, allowance: Duration) -> Self {
        Self { manner: &FAIR, keys: QueueKeys::new(keys), allowance_ms: millis(allowance) }
    }

    /// The same records, which their owner can't take twice.
    pub(crate) fn not_reentrant(keys: LockKeys, allowance: Duration) -> Self {
        Self { manner: &NON_REENTRANT, ..Self::new(keys, allowance) }
    }
}

impl LockKind for Fair {
    fn manner(&self) -> &'static KindTraits {
        self.manner
    }

    fn record(&self) -> &Arc<str> {
        self.keys.lock.record()
    }

    fn channel(&self, text: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel_of(text))
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        let waiting = match ask.waiting {
            Waiting::No => 0,
            Waiting::New => 1,
            Waiting::Queued => 2,
        };
        script::acquire_fair(&self.keys, ask.text, [ask.lease_ms, self.allowance_ms, waiting])
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>) -> Request {
        script::release_fair(&self.keys, owner)
    }

    fn abandon(&self, text: &Arc<str>) -> Option<Request> {
        Some(script::abandon_fair(&self.keys, text, self.allowance_ms))
    }

    fn keep(&self, texts: &[Arc<str>]) -> Option<Request> {
        Some(script::keep_fair(&self.keys, texts, self.allowance_ms))
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock_fair(&self.keys))
    }
}
