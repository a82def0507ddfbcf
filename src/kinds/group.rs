//! Redisson's lock on values of a group (its `getMultiLock(group, values)`): each value is locked by itself, and several are
//! taken at once, all or none, in one record. So owners of other values do not exclude each other.
//!
//! Each hold is for itself, because holds of an owner may overlap in part; the record counts them by value. Ends of holds are
//! by the server's clock, where Redisson goes by its clients'.

use crate::error::Holder;
use crate::kinds::kind::{Access, Ask, KindTraits, LockKind, QueueKey};
use crate::owner::OwnerId;
use crate::protocol::keys::GroupKeys;
use crate::protocol::script::{self, Renewal, Reply, Request, TimeToLive, Undecodable};
use std::sync::Arc;

static GROUP: KindTraits = KindTraits {
    name: "group lock",
    access: Access::Shared,
    handed_on: false,
    pipelined: false,
    glances: false,
    renewal: Renewal::Group,
    ..KindTraits::REENTRANT
};

/// The kind. The text of a hold is the values, the owner, and the number of the request that took them, in lines.
pub(crate) struct Group(GroupKeys);

impl Group {
    pub(crate) fn new(keys: GroupKeys) -> Self {
        Self(keys)
    }
}

impl LockKind for Group {
    fn manner(&self) -> &'static KindTraits {
        &GROUP
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn part(&self) -> Option<Arc<str>> {
        Some(self.0.values.clone())
    }

    /// The values that one owner waits for are nothing to another.
    fn lane(&self, owner: &OwnerId) -> QueueKey {
        QueueKey::group(&self.0.record, &owner.text("", 0))
    }

    fn text(&self, owner: Arc<str>) -> Arc<str> {
        format!("{}\n{owner}\n{}", self.0.values, script::next_number()).into()
    }

    fn owner<'a>(&self, text: &'a str) -> &'a str {
        text.lines().nth(1).unwrap_or(text)
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        script::take_values(&self.0, number(ask.text), &self.owner(ask.text).into(), ask.lease_ms)
    }

    fn release(&self, text: &Arc<str>) -> Request {
        script::give_values(&self.0, script::next_number(), &self.owner(text).into(), None)
    }

    fn undo(&self, text: &Arc<str>) -> Request {
        let taken_by = Some(number(text));
        script::give_values(&self.0, script::next_number(), &self.owner(text).into(), taken_by)
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock_values(&self.0))
    }

    fn holder(&self) -> Request {
        script::values_holder(&self.0, None)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        Ok(script::holds_values(reply)?.map(|(holder, _)| holder))
    }

    fn hold_count(&self, text: &Arc<str>) -> Request {
        script::values_holder(&self.0, Some(self.owner(text)))
    }

    fn counted(&self, _: &str, reply: &Reply) -> Result<u64, Undecodable> {
        Ok(self.held_by(reply)?.map_or(0, |holder| holder.count()))
    }

    fn is_locked(&self) -> Request {
        self.holder()
    }

    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(self.held_by(reply)?.is_some())
    }

    fn time_to_live(&self) -> Request {
        self.holder()
    }

    fn lives(&self, reply: &Reply) -> Result<TimeToLive, Undecodable> {
        Ok(script::holds_values(reply)?.map_or(TimeToLive::Absent, |(_, left)| left))
    }
}

fn number(text: &str) -> u64 {
    text.lines().nth(2).and_then(|number| number.parse().ok()).unwrap_or(0)
}
