//! The claim of a call: each call for a lock claims its key queue from its first poll until it returns or is dropped.
//!
//! A claimed queue stays in the session's table.
//!
//! A task or a thread does one thing at a time. So while one of its calls claims a lock, a second one comes from another branch of the task
//! (`join_all`). Both would be let in as one owner, so the second is refused. This includes the time after the grant of the first, which its
//! branch does not notice before it is polled.

use crate::engine::callers::SoleCaller;
use crate::engine::key_queue::KeyQueue;
use crate::engine::queue_id::QueueId;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use std::sync::Arc;

/// The claim of one call. It ends when it is dropped.
pub(crate) struct Claim {
    pub session: Arc<Session>,
    pub queue: Arc<KeyQueue>,
    pub owner: LocalOwner,
    sole: Option<SoleCaller>,
}

impl Claim {
    /// The claim of a call for a lock of `owner`.
    pub(crate) fn of_owner(session: &Arc<Session>, kind: &dyn LockKind, owner: LocalOwner) -> Result<Self> {
        let sole = SoleCaller::of(kind, &owner);
        if let Some(sole) = &sole
            && let Some(counterpart) = QueueId::of_counterpart(kind, &owner)
            && let Some(queue) = session.existing_queue(&counterpart)
            && queue.work().callers.has(sole)
        {
            return Err(second_branch(kind));
        }
        Self::new(session, kind, owner, sole)
    }

    /// The claim of a call that needs no owner, such as one for permits. It never counts as a call of the owner of a lock of the same name.
    pub(crate) fn of_anyone(session: &Arc<Session>, kind: &dyn LockKind) -> Result<Self> {
        Self::new(session, kind, LocalOwner::ANYONE, None)
    }

    fn new(
        session: &Arc<Session>,
        kind: &dyn LockKind,
        owner: LocalOwner,
        sole: Option<SoleCaller>,
    ) -> Result<Self> {
        loop {
            let queue = session.queue(kind, &owner);
            let mut work = queue.work();
            if work.removed {
                drop(work);
                session.remove(&queue);
                continue;
            }
            if !work.callers.add(sole.as_ref()) {
                return Err(second_branch(kind));
            }
            drop(work);
            return Ok(Self { session: session.clone(), queue, owner, sole });
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut work = self.queue.work();
        work.callers.remove(self.sole.as_ref());
        self.session.tidy(&self.queue, work);
    }
}

fn second_branch(kind: &dyn LockKind) -> Error {
    Error::misuse(format!(
        "another branch of this task (for example of `join_all`) is acquiring `{}`, and the branches of a task are one owner, which does \
         not exclude itself: use `Client::mutex`, or give each branch an owner with `with_owner`",
        kind.record().escape_debug()
    ))
}
