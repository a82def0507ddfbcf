//! The calls that claim a key queue. Plain data.

use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use crate::protocol::keys::HASH;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// The calls that claim one key queue.
#[derive(Default)]
pub(crate) struct Callers {
    all: usize,
    /// A sole caller. Most key queues have one at a time.
    sole: Option<SoleCaller>,
    /// The other ones. A set, because many tasks may wait for one key.
    others: Option<Box<Soles>>,
}

type Soles = HashSet<SoleCaller, BuildHasherDefault<DefaultHasher>>;

/// The caller of a lock, or of a part of it, that does one thing at a time.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SoleCaller {
    owner: LocalOwner,
    /// The hashes of the values of a group.
    part: Option<Arc<str>>,
}

impl SoleCaller {
    /// `None` if the owner may make several calls at once.
    pub(crate) fn of(kind: &dyn LockKind, owner: &LocalOwner) -> Option<Self> {
        matches!(owner, LocalOwner::Task(_) | LocalOwner::Thread(_))
            .then(|| Self { owner: owner.clone(), part: kind.part() })
    }

    /// Whether both are one owner, and their parts have a value in common.
    fn overlaps(&self, other: &Self) -> bool {
        self.owner == other.owner && self.values().any(|value| other.values().any(|same| same == value))
    }

    /// The hashes of the values of the part.
    fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.part.iter().flat_map(|part| part.as_bytes().chunks(HASH))
    }
}

impl Callers {
    pub(crate) fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// Whether `sole` already calls for the lock, or for a part that overlaps its own.
    pub(crate) fn has(&self, sole: &SoleCaller) -> bool {
        let others = self.others.as_deref();
        match &sole.part {
            None => self.sole.as_ref() == Some(sole) || others.is_some_and(|others| others.contains(sole)),
            // All calls of the queue are those of one owner.
            Some(_) => self.sole.iter().chain(others.into_iter().flatten()).any(|other| other.overlaps(sole)),
        }
    }

    /// Adds a call, unless it is a second one of `sole`. Returns whether it was added.
    pub(crate) fn add(&mut self, sole: Option<&SoleCaller>) -> bool {
        if let Some(sole) = sole {
            if self.has(sole) {
                return false;
            }
            match &mut self.sole {
                empty @ None => *empty = Some(sole.clone()),
                Some(_) => _ = self.others.get_or_insert_default().insert(sole.clone()),
            }
        }
        self.all += 1;
        true
    }

    pub(crate) fn remove(&mut self, sole: Option<&SoleCaller>) {
        self.all -= 1;
        match (sole, &mut self.others) {
            (Some(sole), _) if self.sole.as_ref() == Some(sole) => self.sole = None,
            (Some(sole), Some(others)) => _ = others.remove(sole),
            _ => {}
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_sole_caller_makes_one_call_at_a_time_whatever_others_do() {
        let soles: Vec<_> =
            (0..3).map(|owner| SoleCaller { owner: LocalOwner::Thread(owner), part: None }).collect();
        let mut callers = Callers::default();
        for sole in &soles {
            assert!(!callers.has(sole) && callers.add(Some(sole)));
            assert!(callers.has(sole) && !callers.add(Some(sole)));
        }
        assert!(callers.add(None) && callers.add(None));
        for sole in &soles {
            callers.remove(Some(sole));
            assert!(!callers.has(sole) && callers.add(Some(sole)) && !callers.add(Some(sole)));
        }
        for sole in soles.iter().map(Some).chain([None, None]) {
            assert!(!callers.is_empty());
            callers.remove(sole);
        }
        assert!(callers.is_empty());
    }
}
