//! Redisson's read/write lock: many readers, or one writer, which may also read.
//!
//! Both sides share one record. Each reader has a key queue of its own, because readers do not exclude each other. The writers
//! of a client share one key queue.
//!
//! Only the client counts the further levels of a read hold; the record always has the count 1. The renewal of Redisson 3.44 to
//! 3.52 fails at a greater count, and then frees the lock for everyone. A Java reader's renewal may shorten the record's TTL to
//! its own lease, so fixed leases of readers are renewed, too.

use crate::holder::Holder;
use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind, Probed, QueueScope};
use crate::owner::WRITER;
use crate::protocol::keys::{LockKeys, ReadWriteKeys};
use crate::protocol::script::{self, Renewal, Reply, Request, Side, Undecodable};
use std::sync::Arc;

static WRITE: KindTraits = KindTraits {
    name: "write lock",
    counterpart: Some(QueueScope::Reader),
    hands_off: false,
    pipelined: false,
    ..KindTraits::REENTRANT
};
static READ: KindTraits = KindTraits {
    name: "read lock",
    scope: QueueScope::Reader,
    counterpart: Some(QueueScope::Record),
    counts: false,
    renewal: Renewal::Read,
    renews_fixed_leases: true,
    ..WRITE
};

/// The exclusive side.
pub(crate) struct Write {
    keys: ReadWriteKeys,
    /// The owner may be the only reader.
    upgrades: bool,
}

/// The side that several readers share.
pub(crate) struct Read(ReadWriteKeys);

impl Write {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self { keys: ReadWriteKeys::new(keys), upgrades: false }
    }
}

impl Read {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self(ReadWriteKeys::new(keys))
    }
}

impl LockKind for Write {
    fn traits(&self) -> &'static KindTraits {
        &WRITE
    }

    fn record(&self) -> &Arc<str> {
        &self.keys.record
    }

    fn scope_of(&self, owner_id: &str) -> QueueScope {
        scope_of(owner_id)
    }

    fn owner_id(&self, owner_id: Arc<str>) -> Arc<str> {
        writer_id(&owner_id)
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        let reader =
            args.counterpart.clone().unwrap_or_else(|| args.owner_id.trim_end_matches(WRITER).into());
        script::acquire_write(&self.keys, args.owner_id, args.lease_ms, &reader, self.upgrades)
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::release_write(&self.keys, owner)
    }

    fn undo(&self, owner_id: &Arc<str>, others: &[Arc<str>]) -> Request {
        undo(&self.keys, owner_id, others)
    }

    fn holder_probe(&self) -> Request {
        script::shares(&self.keys)
    }

    /// A change of readers does not matter to a writer. The release of the last reader publishes a message.
    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        Ok(script::shared_by(reply)?.map_or(Probed::Free, |shares| match shares.mode {
            Side::Read => Probed::Busy(Some("readers".into())),
            Side::Write => Probed::of_holder(shares.holders.into_iter().next()),
        }))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Write {
    fn force_unlock(&self) -> Request {
        script::force_unlock_read_write(&self.keys, Side::Write)
    }

    fn inspect(&self) -> Request {
        script::inspect_shares(&self.keys)
    }

    fn upgrade(&self) -> Option<Arc<dyn OwnedKind>> {
        Some(Arc::new(Self { keys: self.keys.clone(), upgrades: true }))
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        any_holder(reply)
    }

    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        all_holders(reply)
    }

    fn is_locked(&self) -> Request {
        script::shares(&self.keys)
    }

    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(script::shared_by(reply)?.is_some_and(|shares| shares.mode == Side::Write))
    }
}

impl LockKind for Read {
    fn traits(&self) -> &'static KindTraits {
        &READ
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn scope_of(&self, owner_id: &str) -> QueueScope {
        scope_of(owner_id)
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        let writer = args.counterpart.clone().unwrap_or_else(|| writer_id(args.owner_id));
        script::acquire_read(&self.0, args.owner_id, args.lease_ms, &writer)
    }

    /// Only extends the hold. The client counts the levels.
    fn recount(&self, owner: &Arc<str>, _: u64, _: u64, lease_ms: u64) -> Option<Request> {
        Some(script::extend_read(&self.0, owner, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, others: &[Arc<str>]) -> Request {
        script::release_read(&self.0, owner, Some(others))
    }

    fn release_unnamed(&self, owner: &Arc<str>) -> Request {
        script::release_read(&self.0, owner, None)
    }

    fn undo(&self, owner_id: &Arc<str>, others: &[Arc<str>]) -> Request {
        undo(&self.0, owner_id, others)
    }

    fn holder_probe(&self) -> Request {
        script::shares(&self.0)
    }

    /// A writer that becomes a reader admits other readers, and Redisson publishes no message then.
    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        let written = script::shared_by(reply)?.filter(|shares| shares.mode == Side::Write);
        Ok(Probed::of_holder(written.and_then(|shares| shares.holders.into_iter().next())))
    }

    fn renewed_keys(&self, owner: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.extend([self.record().clone(), self.0.timeout(owner)]);
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Read {
    fn force_unlock(&self) -> Request {
        script::force_unlock_read_write(&self.0, Side::Read)
    }

    fn inspect(&self) -> Request {
        script::inspect_shares(&self.0)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        any_holder(reply)
    }

    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        all_holders(reply)
    }

    fn is_locked(&self) -> Request {
        script::shares(&self.0)
    }

    /// True also if only the writer itself reads.
    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(script::shared_by(reply)?
            .is_some_and(|shares| shares.mode == Side::Read || shares.holders.len() > 1))
    }
}

fn any_holder(reply: &Reply) -> Result<Option<Holder>, Undecodable> {
    Ok(script::shared_by(reply)?.and_then(|shares| shares.holders.into_iter().next()))
}

fn all_holders(reply: &Reply) -> Vec<Holder> {
    script::shared_by(reply).ok().flatten().map_or_else(Vec::new, |shares| shares.holders)
}

/// Undoes either side: a waiter for one side may find an owner id of the other in the record.
fn undo(keys: &ReadWriteKeys, owner_id: &Arc<str>, others: &[Arc<str>]) -> Request {
    if owner_id.ends_with(WRITER) {
        script::release_write(keys, owner_id)
    } else {
        script::release_read(keys, owner_id, Some(others))
    }
}

fn writer_id(owner_id: &str) -> Arc<str> {
    format!("{owner_id}{WRITER}").into()
}

fn scope_of(owner_id: &str) -> QueueScope {
    if owner_id.ends_with(WRITER) { QueueScope::Record } else { QueueScope::Reader }
}
