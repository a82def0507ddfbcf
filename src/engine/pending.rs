//! The acquires under way of implicit owners, which are tasks and threads.
//!
//! Such an owner does one thing at a time. A second acquire of a lock while the first is under way therefore comes from another
//! branch of the task (`join_all`). Both would be let in as one owner, so the second is refused.
//!
//! An acquire is under way from its first poll until it returns or is dropped. This includes the time after its grant, which a
//! branch does not notice before it is polled.

use crate::error::{Error, Result};
use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use dashmap::DashSet;
use std::sync::Arc;

/// The acquires under way of one client.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<DashSet<Acquire>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Acquire {
    owner: LocalOwner,
    record: Arc<str>,
    part: Option<Arc<str>>,
}

/// Ends the acquire when dropped.
pub(crate) struct UnderWay {
    all: Pending,
    acquire: Acquire,
}

impl Pending {
    /// Begins an acquire of `kind`. Returns `None` for an owner that may do several things at once.
    pub(crate) fn begin(&self, kind: &dyn LockKind, owner: &LocalOwner) -> Result<Option<UnderWay>> {
        if !matches!(owner, LocalOwner::Task(_) | LocalOwner::Thread(_)) {
            return Ok(None);
        }
        let (record, part) = (kind.record().clone(), kind.part());
        let acquire = Acquire { owner: owner.clone(), record, part };
        if self.0.insert(acquire.clone()) {
            return Ok(Some(UnderWay { all: self.clone(), acquire }));
        }
        Err(Error::misuse(format!(
            "another branch of this task (for example of `join_all`) is acquiring `{}`, and the branches of a task are one \
             owner, which does not exclude itself: use `Client::mutex`, or give each branch an owner by `with_owner`",
            kind.record().escape_debug()
        )))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.0.remove(&self.acquire);
    }
}
