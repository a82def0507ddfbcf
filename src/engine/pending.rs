//! The acquires under way of owners that nobody named: a task, or a thread. Such an owner does one thing after another, so
//! a second acquire of one lock while the first is under way comes from another branch of the task (`join_all`). Both would
//! be let in as one owner, so the second is refused.
//!
//! An acquire is under way from its first poll until it returns or is dropped: also after its grant, which a branch that is
//! not polled does not know of.

use crate::error::{Error, Result};
use crate::kinds::kind::LockKind;
use crate::owner::OwnerId;
use dashmap::DashSet;
use std::sync::Arc;

/// Those of one client.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<DashSet<Acquire>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Acquire {
    owner: OwnerId,
    record: Arc<str>,
    part: Option<Arc<str>>,
}

/// Ends the acquire when dropped.
pub(crate) struct UnderWay {
    all: Pending,
    acquire: Acquire,
}

impl Pending {
    /// An acquire of `kind` begins. `None` for an owner who may do several things at once.
    pub(crate) fn begin(&self, kind: &dyn LockKind, owner: &OwnerId) -> Result<Option<UnderWay>> {
        if !matches!(owner, OwnerId::Task(_) | OwnerId::Thread(_)) {
            return Ok(None);
        }
        let (record, part) = (kind.record().clone(), kind.part());
        let acquire = Acquire { owner: owner.clone(), record, part };
        if self.0.insert(acquire.clone()) {
            return Ok(Some(UnderWay { all: self.clone(), acquire }));
        }
        Err(Error::misuse(format!(
            "another branch of this task (of `join_all`, say) is acquiring `{}`, and branches of one task are one owner \
             that does not exclude itself: use `Client::mutex`, or give each branch an owner by `with_owner`",
            kind.record().escape_debug()
        )))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.0.remove(&self.acquire);
    }
}
