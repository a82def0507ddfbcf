//! The owner ids that must stay in their records although they hold nothing: the minimum time of the hold has not passed, and the record
//! could not be moved to nobody. Without this list, the client would undo such a record as an orphan.

use crate::runtime::clock::Moment;
use crate::runtime::mutex::Mutex;
use std::sync::Arc;

/// The spared owner ids of one client.
#[derive(Default)]
pub(crate) struct Spared(Mutex<Vec<Entry>>);

/// An owner has the same id in all its records, so an entry is of one record.
struct Entry {
    record: Arc<str>,
    owner_id: Arc<str>,
    /// The end of the minimum time.
    until: Moment,
}

impl Spared {
    pub(crate) fn add(&self, record: &Arc<str>, owner_id: &Arc<str>, until: Moment) {
        let mut spared = self.0.lock();
        spared.retain(|entry| !entry.until.passed());
        spared.push(Entry { record: record.clone(), owner_id: owner_id.clone(), until });
    }

    pub(crate) fn contains(&self, record: &str, owner_id: &str) -> bool {
        let is_it = |entry: &Entry| *entry.record == *record && *entry.owner_id == *owner_id;
        self.0.lock().iter().any(|entry| is_it(entry) && !entry.until.passed())
    }
}
