//! Redisson's semaphore, whose permits are only a number, its semaphore whose permits have ids and leases, and its count-down
//! latch.

use crate::kinds::kind::{Access, AcquireArgs, HeldPermits, KindTraits, LockKind, Probed};
use crate::protocol::keys::CounterKeys;
use crate::protocol::script::{self, PassedIds, PermitId, Renewal, Reply, Request, Undecodable};
use std::sync::Arc;
use uuid::Uuid;

static PERMITS: KindTraits = KindTraits {
    name: "semaphore",
    access: Access::Shared,
    hands_off: false,
    pipelined: false,
    ..KindTraits::REENTRANT
};
/// Its busy replies contain the end of the next lease.
static EXPIRABLE_PERMITS: KindTraits =
    KindTraits { name: "expirable-permit semaphore", renewal: Renewal::Permit, ..PERMITS };
static LATCH: KindTraits = KindTraits { name: "count-down latch", access: Access::Gate, ..PERMITS };

/// A number of permits of a semaphore, without an owner. The owner id of a hold is the number of the request that took them.
pub(crate) struct Permits {
    pub keys: Arc<CounterKeys>,
    pub permits: u32,
}

impl LockKind for Permits {
    fn traits(&self) -> &'static KindTraits {
        &PERMITS
    }

    fn record(&self) -> &Arc<str> {
        &self.keys.record
    }

    fn owner_id(&self, _: Arc<str>) -> Arc<str> {
        next_number()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::take_permits(&self.keys, args.owner_id, self.permits)
    }

    fn release_id(&self, _: &Arc<str>) -> Arc<str> {
        next_number()
    }

    fn release(&self, number: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::give_permits(&self.keys, self.permits, number, None)
    }

    fn permits(&self) -> Option<HeldPermits> {
        Some(HeldPermits::Unnamed(self.permits))
    }

    fn undo(&self, number: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::give_permits(&self.keys, self.permits, &next_number(), Some(number))
    }

    fn holder_probe(&self) -> Request {
        script::value(&self.keys)
    }

    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        too_few(reply, self.permits)
    }
}

/// The number of a request.
fn next_number() -> Arc<str> {
    script::next_number().to_string().into()
}

/// A number of permits with ids. The owner id of a hold is the concatenated ids.
pub(crate) struct ExpirablePermits {
    pub keys: Arc<CounterKeys>,
    pub permits: u32,
}

impl LockKind for ExpirablePermits {
    fn traits(&self) -> &'static KindTraits {
        &EXPIRABLE_PERMITS
    }

    fn record(&self) -> &Arc<str> {
        &self.keys.record
    }

    /// Each id is the second half of a random uuid, about 62 random bits: enough to be unique among the permits of a semaphore.
    fn owner_id(&self, _: Arc<str>) -> Arc<str> {
        let id = || Uuid::new_v4().as_simple().to_string().split_off(size_of::<PermitId>());
        (0..self.permits).map(|_| id()).collect::<String>().into()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::take_ids(&self.keys, args.owner_id, args.lease_ms)
    }

    fn release(&self, ids: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::give_ids(&self.keys, ids)
    }

    fn undo(&self, ids: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::undo_ids(&self.keys, ids)
    }

    fn permits(&self) -> Option<HeldPermits> {
        Some(HeldPermits::WithIds(self.permits))
    }

    fn pass_permits(&self, passed: &[PassedIds<'_>]) -> Option<Request> {
        Some(script::pass_ids(&self.keys, passed.iter().copied()))
    }

    fn holder_probe(&self) -> Request {
        script::value(&self.keys)
    }

    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        too_few(reply, self.permits)
    }

    fn renewed_keys(&self, _: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.push(self.keys.timeouts.clone());
    }
}

/// The latch. An acquire passes through the open latch, a release counts it down by one.
pub(crate) struct Latch(pub Arc<CounterKeys>);

impl LockKind for Latch {
    fn traits(&self) -> &'static KindTraits {
        &LATCH
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, _: &AcquireArgs<'_>) -> Request {
        script::look(&self.0)
    }

    fn release(&self, _: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::count_down(&self.0)
    }

    fn undo(&self, _: &Arc<str>, _: &[Arc<str>]) -> Request {
        // Passing through changes nothing in Redis.
        script::look(&self.0)
    }

    fn holder_probe(&self) -> Request {
        script::value(&self.0)
    }

    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        busy_if(script::number(reply)? > 0)
    }
}

/// Busy if fewer than `permits` permits are free.
fn too_few(reply: &Reply, permits: u32) -> Result<Probed, Undecodable> {
    busy_if(script::number(reply)? < i64::from(permits))
}

/// The record does not name the holders of permits.
fn busy_if(busy: bool) -> Result<Probed, Undecodable> {
    Ok(if busy { Probed::Busy(None) } else { Probed::Free })
}
