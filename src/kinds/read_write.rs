//! Redisson's read/write lock: many readers, or one writer, who may go on as a reader.
//!
//! Both sides share one record. Each reader has a lane of its own, because readers do not exclude each other; the writers
//! of a client share one.
//!
//! An owner's further levels of a read hold are counted by its client only, and the record says 1: the renewal of Redisson
//! 3.44 to 3.52 fails at any greater count, and then frees the lock for everyone. And a Java reader's renewal may shorten the
//! record's life to its own lease, so that fixed leases are kept up, too.

use crate::error::Holder;
use crate::kinds::kind::{Ask, KindTraits, LockKind, QueueKey};
use crate::owner::{OwnerId, WRITER};
use crate::protocol::keys::{LockKeys, ReadWriteKeys};
use crate::protocol::script::{self, Renewal, Reply, Request, Side, Undecodable};
use std::sync::Arc;

static WRITE: KindTraits =
    KindTraits { name: "write lock", handed_on: false, pipelined: false, ..KindTraits::REENTRANT };
static READ: KindTraits =
    KindTraits { name: "read lock", counts: false, renewal: Renewal::Read, kept_up: true, ..WRITE };

/// The side that excludes everyone else.
pub(crate) struct Write(ReadWriteKeys);

/// The side that readers share.
pub(crate) struct Read(ReadWriteKeys);

impl Write {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self(ReadWriteKeys::new(keys))
    }
}

impl Read {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self(ReadWriteKeys::new(keys))
    }
}

impl LockKind for Write {
    fn manner(&self) -> &'static KindTraits {
        &WRITE
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn lane_of(&self, text: &str) -> QueueKey {
        lane_of(&self.0, text)
    }

    fn partner(&self, owner: &OwnerId) -> Option<QueueKey> {
        Some(readers_lane(&self.0, &owner.text("", 0)))
    }

    fn text(&self, text: Arc<str>) -> Arc<str> {
        writing(&text)
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        let reader = ask.partner.clone().unwrap_or_else(|| ask.text.trim_end_matches(WRITER).into());
        script::acquire_write(&self.0, ask.text, ask.lease_ms, &reader)
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>) -> Request {
        script::release_write(&self.0, owner)
    }

    fn undo(&self, text: &Arc<str>) -> Request {
        undo(&self.0, text)
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock_read_write(&self.0, Side::Write))
    }

    fn holder(&self) -> Request {
        script::shares(&self.0)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        any_holder(reply)
    }

    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        all_holders(reply)
    }

    /// Which reader there is does not matter: they come and go, and the last tells.
    fn glanced(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        Ok(script::shared_by(reply)?.and_then(|shares| match shares.mode {
            Side::Read => Some(Holder::new("readers".into(), 1)),
            Side::Write => shares.holders.into_iter().next(),
        }))
    }

    fn is_locked(&self) -> Request {
        script::shares(&self.0)
    }

    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(script::shared_by(reply)?.is_some_and(|shares| shares.mode == Side::Write))
    }
}

impl LockKind for Read {
    fn manner(&self) -> &'static KindTraits {
        &READ
    }

    fn record(&self) -> &Arc<str> {
        &self.0.record
    }

    fn lane(&self, owner: &OwnerId) -> QueueKey {
        readers_lane(&self.0, &owner.text("", 0))
    }

    fn lane_of(&self, text: &str) -> QueueKey {
        lane_of(&self.0, text)
    }

    fn partner(&self, _: &OwnerId) -> Option<QueueKey> {
        Some(QueueKey::Record(self.0.record.clone()))
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel.clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        let writer = ask.partner.clone().unwrap_or_else(|| writing(ask.text));
        script::acquire_read(&self.0, ask.text, ask.lease_ms, &writer)
    }

    /// Only that the hold lasts; the client counts.
    fn recount(&self, owner: &Arc<str>, _: u64, _: u64, lease_ms: u64) -> Option<Request> {
        Some(script::extend_read(&self.0, owner, lease_ms))
    }

    fn release(&self, owner: &Arc<str>) -> Request {
        script::release_read(&self.0, owner)
    }

    fn undo(&self, text: &Arc<str>) -> Request {
        undo(&self.0, text)
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock_read_write(&self.0, Side::Read))
    }

    fn holder(&self) -> Request {
        script::shares(&self.0)
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        any_holder(reply)
    }

    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        all_holders(reply)
    }

    /// A writer that goes on as a reader lets others in, and Redisson tells nobody.
    fn glanced(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        Ok(script::shared_by(reply)?
            .filter(|shares| shares.mode == Side::Write)
            .and_then(|shares| shares.holders.into_iter().next()))
    }

    fn is_locked(&self) -> Request {
        script::shares(&self.0)
    }

    /// Also by the writer itself.
    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        Ok(script::shared_by(reply)?
            .is_some_and(|shares| shares.mode == Side::Read || shares.holders.len() > 1))
    }

    fn renewed_keys(&self, owner: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.extend([self.record().clone(), self.0.timeout(owner)]);
    }
}

fn any_holder(reply: &Reply) -> Result<Option<Holder>, Undecodable> {
    Ok(script::shared_by(reply)?.and_then(|shares| shares.holders.into_iter().next()))
}

fn all_holders(reply: &Reply) -> Vec<Holder> {
    script::shared_by(reply).ok().flatten().map_or_else(Vec::new, |shares| shares.holders)
}

/// Those who wait for one side may find a text of the other.
fn undo(keys: &ReadWriteKeys, text: &Arc<str>) -> Request {
    if text.ends_with(WRITER) { script::release_write(keys, text) } else { script::release_read(keys, text) }
}

fn writing(text: &str) -> Arc<str> {
    format!("{text}{WRITER}").into()
}

fn lane_of(keys: &ReadWriteKeys, text: &str) -> QueueKey {
    if text.ends_with(WRITER) {
        return QueueKey::Record(keys.record.clone());
    }
    readers_lane(keys, text)
}

fn readers_lane(keys: &ReadWriteKeys, text: &str) -> QueueKey {
    QueueKey::reader(&keys.record, text)
}
