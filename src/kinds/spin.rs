//! Redisson's spin lock: the reentrant lock's record, without messages. A waiter polls with a back-off.

use crate::config::options::BackOff;
use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Arg, Request};
use std::sync::Arc;

static SPIN: KindTraits = KindTraits { name: "spin lock", pipelined: false, ..KindTraits::REENTRANT };

/// The spin lock.
pub(crate) struct Spin {
    keys: LockKeys,
    back_off: BackOff,
    nowhere: Arc<str>,
}

impl Spin {
    pub(crate) fn new(keys: LockKeys, back_off: BackOff) -> Self {
        Self { keys, back_off, nowhere: "".into() }
    }
}

impl LockKind for Spin {
    fn traits(&self) -> &'static KindTraits {
        &SPIN
    }

    fn record(&self) -> &Arc<str> {
        self.keys.record()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        None
    }

    fn poll(&self) -> Option<BackOff> {
        Some(self.back_off)
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::acquire(self.record(), args.owner_id, args.lease_ms)
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::release_silently(self.record(), owner, &self.nowhere)
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        Some(script::hand_off(self.record(), from, to, lease, self.keys.channel()))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Spin {
    fn force_unlock(&self) -> Request {
        script::force_unlock(self.record(), &self.nowhere)
    }

    fn inspect(&self) -> Request {
        script::inspect(self.record(), self.keys.channel(), script::FEW)
    }
}
