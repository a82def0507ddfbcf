//! The calls that claim a key queue. Plain data.

use crate::kinds::kind::LockKind;
use crate::owner::LocalOwner;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// The calls that claim one key queue.
#[derive(Default)]
pub(crate) struct Callers {
    all: usize,
    /// A set, because many tasks may wait for one key.
    sole: HashSet<SoleCaller, BuildHasherDefault<DefaultHasher>>,
}

/// The caller of a lock, or of a part of it, that does one thing at a time.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct SoleCaller {
    owner: LocalOwner,
    part: Option<Arc<str>>,
}

impl SoleCaller {
    /// `None` if the owner may make several calls at once.
    pub(crate) fn of(kind: &dyn LockKind, owner: &LocalOwner) -> Option<Self> {
        matches!(owner, LocalOwner::Task(_) | LocalOwner::Thread(_))
            .then(|| Self { owner: owner.clone(), part: kind.part() })
    }
}

impl Callers {
    pub(crate) const NONE: Self = Self { all: 0, sole: HashSet::with_hasher(BuildHasherDefault::new()) };

    pub(crate) fn is_empty(&self) -> bool {
        self.all == 0
    }

    pub(crate) fn has(&self, sole: &SoleCaller) -> bool {
        self.sole.contains(sole)
    }

    /// Adds a call, unless it is a second one of `sole`. Returns whether it was added.
    pub(crate) fn add(&mut self, sole: Option<&SoleCaller>) -> bool {
        let added = sole.is_none_or(|sole| self.sole.insert(sole.clone()));
        self.all += usize::from(added);
        added
    }

    pub(crate) fn remove(&mut self, sole: Option<&SoleCaller>) {
        self.all -= 1;
        if let Some(sole) = sole {
            self.sole.remove(sole);
        }
    }
}
