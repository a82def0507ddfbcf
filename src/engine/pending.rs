//! The pending acquires of implicit owners, which are tasks and threads.
//!
//! Such an owner does one thing at a time. A second acquire of a lock while the first is pending therefore comes from another
//! branch of the task (`join_all`). Both would be let in as one owner, so the second is refused.
//!
//! An acquire is pending from its first poll until it returns or is dropped. This includes the time after its grant, which a
//! branch does not notice before it is polled.

use crate::error::{Error, Result};
use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use dashmap::DashSet;
use std::sync::Arc;

/// The pending acquires of one client.
#[derive(Clone, Default)]
pub(crate) struct PendingAcquires(Arc<DashSet<Entry>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Entry {
    owner: LocalOwner,
    record: Arc<str>,
    part: Option<Arc<str>>,
}

/// Ends the acquire when dropped.
pub(crate) struct PendingAcquire {
    all: PendingAcquires,
    entry: Entry,
}

impl PendingAcquires {
    /// Begins an acquire of `kind`. Returns `None` for an owner that may do several things at once.
    pub(crate) fn begin(&self, kind: &dyn LockKind, owner: &LocalOwner) -> Result<Option<PendingAcquire>> {
        if !matches!(owner, LocalOwner::Task(_) | LocalOwner::Thread(_)) {
            return Ok(None);
        }
        let (record, part) = (kind.record().clone(), kind.part());
        let entry = Entry { owner: owner.clone(), record, part };
        if self.0.insert(entry.clone()) {
            return Ok(Some(PendingAcquire { all: self.clone(), entry }));
        }
        Err(Error::misuse(format!(
            "another branch of this task (for example of `join_all`) is acquiring `{}`, and the branches of a task are one \
             owner, which does not exclude itself: use `Client::mutex`, or give each branch an owner with `with_owner`",
            kind.record().escape_debug()
        )))
    }
}

impl Drop for PendingAcquire {
    fn drop(&mut self) {
        self.all.0.remove(&self.entry);
    }
}
