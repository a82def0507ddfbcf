//! Redisson's semaphore, whose permits are no more than a number; its semaphore whose permits have ids and leases; and its
//! latch.

use crate::error::Holder;
use crate::kinds::kind::{Access, Ask, KindTraits, LockKind};
use crate::protocol::keys::PermitKeys;
use crate::protocol::script::{self, Renewal, Reply, Request, Undecodable};
use std::sync::Arc;
use uuid::Uuid;

static PERMITS: KindTraits = KindTraits {
    name: "semaphore",
    access: Access::Shared,
    owned: false,
    handed_on: false,
    pipelined: false,
    ..KindTraits::REENTRANT
};
/// Busy answers tell when the next lease ends.
static LEASED: KindTraits =
    KindTraits { name: "expirable-permit semaphore", renewal: Renewal::Permit, ..PERMITS };
static LATCH: KindTraits = KindTraits { name: "count-down latch", access: Access::Gate, ..PERMITS };

/// So many permits of a semaphore, without an owner. The text of a hold is the number of the request that took them.
pub(crate) struct Permits {
    pub keys: Arc<PermitKeys>,
    pub permits: u32,
}

impl LockKind for Permits {
    fn manner(&self) -> &'static KindTraits {
        &PERMITS
    }

    fn record(&self) -> &Arc<str> {
        &self.keys.record
    }

    fn text(&self, _: Arc<str>) -> Arc<str> {
        script::next_number().to_string().into()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel.clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        script::take_permits(&self.keys, ask.text, self.permits)
    }

    fn release(&self, _: &Arc<str>) -> Request {
        script::give_permits(&self.keys, self.permits, None)
    }

    fn undo(&self, number: &Arc<str>) -> Request {
        script::give_permits(&self.keys, self.permits, Some(number))
    }

    fn holder(&self) -> Request {
        script::value(&self.keys)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        nobody_unless(script::number(reply)? < i64::from(self.permits))
    }
}

/// So many permits with ids, which are the text of a hold: 16 characters each, one behind the other.
pub(crate) struct Leased {
    pub keys: Arc<PermitKeys>,
    pub permits: u32,
}

/// Of an id.
pub(crate) const ID: usize = 16;

impl LockKind for Leased {
    fn manner(&self) -> &'static KindTraits {
        &LEASED
    }

    fn record(&self) -> &Arc<str> {
        &self.keys.record
    }

    /// Half of a random uuid's digits: 64 bits, which no other permit of the semaphore is to have while it lives.
    fn text(&self, _: Arc<str>) -> Arc<str> {
        let id = || Uuid::new_v4().as_simple().to_string().split_off(ID);
        (0..self.permits).map(|_| id()).collect::<String>().into()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel.clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        script::take_ids(&self.keys, ask.text, ask.lease_ms)
    }

    fn release(&self, ids: &Arc<str>) -> Request {
        script::give_ids(&self.keys, ids)
    }

    fn holder(&self) -> Request {
        script::value(&self.keys)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        nobody_unless(script::number(reply)? < i64::from(self.permits))
    }

    fn renewed_keys(&self, _: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.push(self.keys.timeouts.clone());
    }
}

/// The latch: what is acquired is to go through, what is released is one count.
pub(crate) struct Latch(pub Arc<PermitKeys>);

impl LockKind for Latch {
    fn manner(&self) -> &'static KindTraits {
        &LATCH
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, _: &Ask<'_>) -> Request {
        script::look(&self.0)
    }

    fn release(&self, _: &Arc<str>) -> Request {
        script::count_down(&self.0)
    }

    fn undo(&self, _: &Arc<str>) -> Request {
        // Going through leaves no trace.
        script::look(&self.0)
    }

    fn holder(&self) -> Request {
        script::value(&self.0)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        nobody_unless(script::number(reply)? > 0)
    }
}

/// Those whom others wait for have no name here.
fn nobody_unless(busy: bool) -> Result<Option<Holder>, Undecodable> {
    Ok(busy.then(|| Holder::new(String::new(), 1)))
}
