//! The ids of key queues.

use crate::kinds::kind::{LockKind, QueueScope};
use crate::owner::{self, LocalOwner};
use std::sync::Arc;

/// Identifies a key queue within a client.
///
/// The parts are compared one by one. A joined string could equal the name of another record, because a name may contain any
/// character.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueId {
    /// The key queue of a whole record.
    Record(Arc<str>),
    /// The key queue of one owner. It is behind a pointer to keep the id small, because most key queues are of a whole record.
    Owner(Arc<OwnerQueue>),
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerQueue {
    scope: QueueScope,
    record: Arc<str>,
    /// The part of the owner id that is the same in each generation.
    owner: Box<str>,
}

impl QueueId {
    /// The key queue for the requests of `owner` for `kind`.
    pub(crate) fn of(kind: &dyn LockKind, owner: &LocalOwner) -> Self {
        Self::new(kind.traits().scope, kind.record(), || owner.owner_id("", 0))
    }

    /// The key queue of the counterpart hold of `owner`, for kinds that have one.
    pub(crate) fn of_counterpart(kind: &dyn LockKind, owner: &LocalOwner) -> Option<Self> {
        kind.traits().counterpart.map(|scope| Self::new(scope, kind.record(), || owner.owner_id("", 0)))
    }

    /// The key queue of an owner id that was found in the record.
    pub(crate) fn of_owner_id(kind: &dyn LockKind, owner_id: &str) -> Self {
        Self::new(kind.scope_of(owner_id), kind.record(), || owner_id.into())
    }

    /// `owner_id` is an owner id of any generation.
    fn new(scope: QueueScope, record: &Arc<str>, owner_id: impl FnOnce() -> Arc<str>) -> Self {
        match scope {
            QueueScope::Record => Self::Record(record.clone()),
            QueueScope::Reader | QueueScope::GroupOwner => {
                let owner = owner::id(&owner_id()).into();
                Self::Owner(Arc::new(OwnerQueue { scope, record: record.clone(), owner }))
            }
        }
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        match self {
            Self::Record(record) => record,
            Self::Owner(queue) => &queue.record,
        }
    }

    pub(crate) fn scope(&self) -> QueueScope {
        match self {
            Self::Record(_) => QueueScope::Record,
            Self::Owner(queue) => queue.scope,
        }
    }
}
