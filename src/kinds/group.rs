//! Redisson's lock on values of a group (`getMultiLock(group, values)`). Each value is locked separately, and an acquire takes
//! all of its values or none. All values of a group share one record, but owners of different values do not exclude each other.
//!
//! The holds of an owner may overlap in part, so each acquire is a separate hold, and the record counts holds by value. Holds
//! end by the server's clock; Redisson uses the clocks of its clients.

use crate::holder::Holder;
use crate::kinds::kind::{Access, AcquireArgs, Inspection, KindTraits, LockKind, OwnedKind, QueueScope};
use crate::protocol::keys::{GroupKeys, HASH};
use crate::protocol::script::{self, Renewal, Reply, Request, TimeToLive, Undecodable};
use std::sync::Arc;

static GROUP: KindTraits = KindTraits {
    name: "group lock",
    // Owners of different values do not exclude each other.
    scope: QueueScope::GroupOwner,
    access: Access::Shared,
    hands_off: false,
    pipelined: false,
    probes_holder: false,
    renewal: Renewal::Group,
    ..KindTraits::REENTRANT
};

/// The group lock. Its owner id has three lines: the values, the owner, and the number of the request that acquired them.
pub(crate) struct Group(GroupKeys);

impl Group {
    pub(crate) fn new(keys: GroupKeys) -> Self {
        Self(keys)
    }
}

impl LockKind for Group {
    fn traits(&self) -> &'static KindTraits {
        &GROUP
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn part(&self) -> Option<Arc<str>> {
        Some(self.0.values.clone())
    }

    fn owner_id(&self, owner: Arc<str>) -> Arc<str> {
        format!("{}\n{owner}\n{}", self.0.values, script::next_number()).into()
    }

    fn owner<'a>(&self, owner_id: &'a str) -> &'a str {
        owner_id.lines().nth(1).unwrap_or(owner_id)
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::take_values(&self.0, number(args.owner_id), &self.owner(args.owner_id).into(), args.lease_ms)
    }

    /// The record has one count for all holds of an owner on a value. The release leaves as many as the owner still has, and not
    /// one less than before, because an earlier release may have failed.
    fn release(&self, owner_id: &Arc<str>, others: &[Arc<str>]) -> Request {
        let owner = self.owner(owner_id);
        let held: Vec<_> = others
            .iter()
            .filter(|other| self.owner(other) == owner)
            .flat_map(|other| values(other))
            .collect();
        let count = |value| held.iter().filter(|other| **other == value).count();
        let kept: Vec<_> = values(owner_id).map(count).collect();
        script::release_values(&self.0, script::next_number(), &owner.into(), &kept)
    }

    fn holder_probe(&self) -> Request {
        script::values_holder(&self.0, None)
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Group {
    fn force_unlock(&self) -> Request {
        script::force_unlock_values(&self.0)
    }

    fn inspect(&self) -> Request {
        self.holder_probe()
    }

    fn inspected(&self, reply: &Reply) -> Result<Inspection, Undecodable> {
        let (holder, waiters) = script::inspected_values(reply)?;
        let (holder, left) = holder.unzip();
        let remaining_lease = left.and_then(TimeToLive::duration);
        Ok(Inspection { holders: holder.into_iter().collect(), remaining_lease, waiters })
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        Ok(script::holds_values(reply)?.map(|(holder, _)| holder))
    }

    fn hold_count(&self, owner_id: &Arc<str>) -> Request {
        script::values_holder(&self.0, Some(self.owner(owner_id)))
    }

    fn counted(&self, _: &str, reply: &Reply) -> Result<u64, Undecodable> {
        Ok(self.held_by(reply)?.map_or(0, |holder| holder.count()))
    }

    fn is_locked(&self) -> Request {
        self.holder_probe()
    }

    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(self.held_by(reply)?.is_some())
    }

    fn time_to_live(&self) -> Request {
        self.holder_probe()
    }

    fn lives(&self, reply: &Reply) -> Result<TimeToLive, Undecodable> {
        Ok(script::holds_values(reply)?.map_or(TimeToLive::Absent, |(_, left)| left))
    }
}

/// The hashes of the values in an owner id.
fn values(owner_id: &str) -> impl Iterator<Item = &[u8]> {
    owner_id.lines().next().unwrap_or_default().as_bytes().chunks(HASH)
}

fn number(owner_id: &str) -> u64 {
    owner_id.lines().nth(2).and_then(|number| number.parse().ok()).unwrap_or(0)
}
