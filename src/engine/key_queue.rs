//! The key queue: the work of one record, or of one owner at it.

use crate::engine::queue_id::QueueId;
use crate::engine::releases::Release;
use crate::engine::work::Work;
use crate::error::LossReason;
use crate::kinds::kind::QueueScope;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::wakeup::LazySignal;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The requests of one client that are sent one after the other, with their hold.
///
/// Usually these are all requests that change one record. Readers of a read/write lock and owners in a group have key queues of their
/// own, because they do not exclude each other.
pub(crate) struct KeyQueue {
    pub id: QueueId,
    pub signal: LazySignal,
    work: Mutex<Work>,
}

impl KeyQueue {
    pub(crate) fn new(id: QueueId) -> Arc<Self> {
        Arc::new(Self { id, signal: LazySignal::default(), work: Mutex::default() })
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock()
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        self.id.record()
    }

    /// The queue is of one reader.
    pub(crate) fn is_readers(&self) -> bool {
        self.id.scope() == QueueScope::Reader
    }

    /// Drops the work of a closed session's key queue, and puts its hold in doubt.
    pub(crate) fn drop_work(&self) {
        let (queued, hold) = {
            let mut work = self.work();
            let hold = work.current.as_ref().map(|current| current.hold.clone());
            (work.take_queued(), hold)
        };
        // The releases are not sent, so the client does not see the holds end. The mutex is not locked here.
        for release in queued.1.iter() {
            if let Release::Level(level) = release {
                level.hold.abandon();
            }
        }
        // Dropping the senders ends the calls that wait for them.
        drop(queued);
        self.signal.nudge();
        if let Some(hold) = hold {
            hold.doubt(LossReason::Expired);
        }
    }
}

/// A key queue in the table, which finds it by its id. The id is not stored a second time, because a program may hold many locks.
pub(crate) struct Listed(pub Arc<KeyQueue>);

impl Borrow<QueueId> for Listed {
    fn borrow(&self) -> &QueueId {
        &self.0.id
    }
}

impl Hash for Listed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Listed {}

#[cfg(all(test, not(shuttle), target_os = "linux", target_pointer_width = "64"))]
#[test]
fn a_lock_that_is_only_held_is_small() {
    use crate::kinds::Reentrant;
    use crate::lease::hold::Hold;
    assert_eq!(
        [size_of::<KeyQueue>(), size_of::<Hold>(), size_of::<Reentrant>()],
        [88, 152, 24],
        "box what few locks need"
    );
}
