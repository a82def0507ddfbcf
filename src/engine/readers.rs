//! The readers of a client: their key queues by record, and how a release names them.

use crate::engine::key_queue::KeyQueue;
use crate::engine::unfinished::DirectRequest;
use crate::kinds::kind::{LockKind, QueueScope};
use crate::runtime::sync::atomic::{AtomicBool, Ordering};
use dashmap::DashMap;
use std::sync::Arc;

/// The maximum number of other readers that a release names, because each adds a key to the request.
const NAMED: usize = 100;

#[derive(Default)]
pub(crate) struct Readers {
    /// The key queues of each record.
    queues: DashMap<Arc<str>, Vec<Arc<KeyQueue>>>,
    /// A server has refused a release that did not name the other readers. From then on each release names them.
    are_named: AtomicBool,
}

impl Readers {
    /// Adds a key queue, if it is one of a reader.
    pub(crate) fn add(&self, queue: &Arc<KeyQueue>) {
        if queue.is_readers() {
            self.queues.entry(queue.record().clone()).or_default().push(queue.clone());
        }
    }

    /// Removes a key queue, if it is one of a reader.
    pub(crate) fn remove(&self, queue: &Arc<KeyQueue>) {
        if queue.is_readers() {
            self.queues.remove_if_mut(queue.record(), |_, readers| {
                readers.retain(|reader| !Arc::ptr_eq(reader, queue));
                readers.is_empty()
            });
        }
    }

    /// The number of records.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether a reader of this client keeps a writer of this kind out.
    pub(crate) fn exclude(&self, kind: &dyn LockKind) -> bool {
        kind.traits().counterpart == Some(QueueScope::Reader) && self.queues.contains_key(kind.record())
    }

    /// The owner ids under which readers with other key queues may be in the record.
    pub(crate) fn others(&self, queue: &Arc<KeyQueue>) -> Vec<Arc<str>> {
        if !queue.is_readers() {
            return Vec::new();
        }
        // Copied, because a queue's mutex must not be locked under a lock of the table.
        let others: Vec<_> = self.queues.get(queue.record()).map_or_else(Vec::new, |readers| {
            readers.iter().filter(|reader| !Arc::ptr_eq(reader, queue)).take(NAMED).cloned().collect()
        });
        let named = |reader: &Arc<KeyQueue>| {
            let work = reader.work();
            let current = work.current.as_ref().map(|current| &current.hold.owner_id);
            let direct = || work.direct.as_ref().and_then(DirectRequest::owner_id);
            current.or(work.in_flight.as_ref()).or_else(direct).cloned()
        };
        others.iter().filter_map(named).collect()
    }

    /// The owner ids that the release of a caller has to name. `None` until a server has asked for them.
    pub(crate) fn to_name(&self, queue: &Arc<KeyQueue>) -> Option<Vec<Arc<str>>> {
        self.are_named.load(Ordering::Relaxed).then(|| self.others(queue))
    }

    /// Notes that a server has refused a release that did not name the other readers.
    pub(crate) fn must_be_named(&self) {
        self.are_named.store(true, Ordering::Relaxed);
    }
}
