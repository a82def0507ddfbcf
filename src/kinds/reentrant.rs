//! Redisson's reentrant lock, and its non-reentrant lock, which has the same record.

use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Arg, Request};
use crate::runtime::mutex::{Mutex, MutexGuard};
use std::sync::Arc;

static NON_REENTRANT: KindTraits =
    KindTraits { name: "non-reentrant lock", reentrant: false, ..KindTraits::REENTRANT };

/// The reentrant lock. The requests of a key are sent one after the other, so its mutex is uncontended.
pub(crate) struct Reentrant {
    traits: &'static KindTraits,
    keys: LockKeys,
    last: Mutex<LastOwner>,
}

/// The owner that released the lock last. An owner that uses the lock repeatedly reuses its requests.
#[derive(Default)]
enum LastOwner {
    #[default]
    None,
    /// The owner released the lock once.
    Once(Arc<str>),
    /// The owner acquired the lock again with the same lease.
    Repeated(Box<Requests>),
}

/// The requests of one owner with one lease.
struct Requests {
    owner: Arc<str>,
    lease_ms: u64,
    acquire: Request,
    release: Request,
}

impl Reentrant {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self { traits: &KindTraits::REENTRANT, keys, last: Mutex::default() }
    }

    /// The non-reentrant lock, which has the same record.
    pub(crate) fn non_reentrant(keys: LockKeys) -> Self {
        Self { traits: &NON_REENTRANT, ..Self::new(keys) }
    }

    fn last(&self) -> MutexGuard<'_, LastOwner> {
        self.last.lock()
    }
}

impl LockKind for Reentrant {
    fn traits(&self) -> &'static KindTraits {
        self.traits
    }

    fn record(&self) -> &Arc<str> {
        self.keys.record()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel().clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        let &AcquireArgs { owner_id: owner, lease_ms, .. } = args;
        let mut last = self.last();
        let before = match &*last {
            LastOwner::Repeated(requests) if requests.owner == *owner && requests.lease_ms == lease_ms => {
                return requests.acquire.clone();
            }
            LastOwner::Repeated(requests) => Some(&requests.owner),
            LastOwner::Once(before) => Some(before),
            LastOwner::None => None,
        };
        let acquire = script::acquire(self.record(), owner, lease_ms);
        if before == Some(owner) {
            let release = script::release(self.record(), owner, self.keys.channel());
            let requests = Requests { owner: owner.clone(), lease_ms, acquire: acquire.clone(), release };
            *last = LastOwner::Repeated(Box::new(requests));
        }
        acquire
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        let mut last = self.last();
        match &*last {
            LastOwner::Repeated(requests) if requests.owner == *owner => return requests.release.clone(),
            LastOwner::Once(before) if before == owner => {}
            _ => *last = LastOwner::Once(owner.clone()),
        }
        drop(last);
        script::release(self.record(), owner, self.keys.channel())
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        Some(script::hand_off(self.record(), from, to, lease, self.keys.channel()))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Reentrant {
    fn force_unlock(&self) -> Request {
        script::force_unlock(self.record(), self.keys.channel())
    }

    fn inspect(&self) -> Request {
        script::inspect(self.record(), self.keys.channel(), script::FEW)
    }
}
