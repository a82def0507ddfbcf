//! The owner ids that must stay in their records although they hold nothing: the minimum time of the hold has not passed, and the record
//! could not be moved to nobody. Without this list, the client would undo such a record as an orphan.

use crate::runtime::clock::Moment;
use crate::runtime::mutex::Mutex;
use std::sync::Arc;

/// The spared owner ids of one client, each with the end of its minimum time.
#[derive(Default)]
pub(crate) struct Spared(Mutex<Vec<(Arc<str>, Moment)>>);

impl Spared {
    pub(crate) fn add(&self, owner_id: &Arc<str>, until: Moment) {
        let mut spared = self.0.lock();
        spared.retain(|(_, until)| !until.passed());
        spared.push((owner_id.clone(), until));
    }

    pub(crate) fn contains(&self, owner_id: &str) -> bool {
        self.0.lock().iter().any(|(spared, until)| **spared == *owner_id && !until.passed())
    }
}
