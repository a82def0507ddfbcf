//! Redisson's fair lock: the reentrant lock's record, with a queue of waiters in Redis. The first waiter in the queue gets the
//! free lock, whichever client it belongs to. A release notifies only that waiter, on a channel of its own.
//!
//! The first waiter is removed if it sends nothing within its allowance. Redisson measures the allowance by the clocks of its
//! clients; this library uses the server's clock, and refreshes the allowance of its live waiters.

use crate::config::options::millis;
use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind, Waiting};
use crate::protocol::keys::{FairLockKeys, LockKeys};
use crate::protocol::script::{self, Arg, Request};
use std::sync::Arc;
use std::time::Duration;

/// Redis keeps the order of the waiters, so a client hands the lock to its own waiter only if that is the first one in the queue.
static FAIR: KindTraits = KindTraits {
    name: "fair lock",
    queued: true,
    pipelined: false,
    probes_holder: false,
    ..KindTraits::REENTRANT
};
static NON_REENTRANT: KindTraits = KindTraits { name: "non-reentrant fair lock", reentrant: false, ..FAIR };

/// The fair lock.
pub(crate) struct Fair {
    traits: &'static KindTraits,
    keys: FairLockKeys,
    allowance_ms: u64,
}

impl Fair {
    pub(crate) fn new(keys: LockKeys, allowance: Duration) -> Self {
        Self { traits: &FAIR, keys: FairLockKeys::new(keys), allowance_ms: millis(allowance) }
    }

    /// The non-reentrant fair lock, which has the same records.
    pub(crate) fn non_reentrant(keys: LockKeys, allowance: Duration) -> Self {
        Self { traits: &NON_REENTRANT, ..Self::new(keys, allowance) }
    }
}

impl LockKind for Fair {
    fn traits(&self) -> &'static KindTraits {
        self.traits
    }

    fn record(&self) -> &Arc<str> {
        self.keys.lock.record()
    }

    fn channel(&self, owner_id: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel_of(owner_id))
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        let waiting = match args.waiting {
            Waiting::No => 0,
            Waiting::New => 1,
            Waiting::Queued => 2,
        };
        script::acquire_fair(&self.keys, args.owner_id, [args.lease_ms, self.allowance_ms, waiting])
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::release_fair(&self.keys, owner)
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        Some(script::hand_off_fair(&self.keys, from, to, [lease, Arg::Number(self.allowance_ms)]))
    }

    fn dequeue(&self, owner_id: &Arc<str>) -> Option<Request> {
        Some(script::leave_fair(&self.keys, owner_id, self.allowance_ms))
    }

    fn refresh(&self, owner_ids: &[Arc<str>]) -> Option<Request> {
        Some(script::refresh_fair(&self.keys, owner_ids, self.allowance_ms))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Fair {
    fn force_unlock(&self) -> Request {
        script::force_unlock_fair(&self.keys)
    }

    fn inspect(&self) -> Request {
        script::inspect_fair(&self.keys)
    }
}
