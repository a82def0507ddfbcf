//! Redisson's reentrant lock, and its non-reentrant lock, which has the same record.

use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind};
use crate::protocol::keys::{self, LockKeys};
use crate::protocol::script::{self, Arg, Request};
use crate::runtime::mutex::Mutex;
use once_cell::race::OnceBox;
use std::sync::Arc;

static NON_REENTRANT: KindTraits =
    KindTraits { name: "non-reentrant lock", reentrant: false, ..KindTraits::REENTRANT };

/// The reentrant lock.
pub(crate) type Reentrant = Plain<true>;
/// The non-reentrant lock, which has the same record.
pub(crate) type NonReentrant = Plain<false>;

/// A lock with the plain record.
pub(crate) struct Plain<const REENTRANT: bool> {
    record: Arc<str>,
    /// `None` until a call needs it, because a program may hold many locks.
    used: OnceBox<Used>,
}

/// The part of a lock that an uncontended acquire does not need. The requests of a key are sent one after the other, so its mutex is uncontended.
struct Used {
    channel: Arc<str>,
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

impl<const REENTRANT: bool> Plain<REENTRANT> {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self { record: keys.into_record(), used: OnceBox::new() }
    }

    fn used(&self) -> &Used {
        let new = || Used { channel: keys::lock_channel(&self.record), last: Mutex::default() };
        self.used.get_or_init(|| new().into())
    }
}

impl<const REENTRANT: bool> LockKind for Plain<REENTRANT> {
    fn traits(&self) -> &'static KindTraits {
        if REENTRANT { &KindTraits::REENTRANT } else { &NON_REENTRANT }
    }

    fn record(&self) -> &Arc<str> {
        &self.record
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.used().channel.clone())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        let &AcquireArgs { owner_id: owner, lease_ms, .. } = args;
        let Some(Used { channel, last }) = self.used.get() else {
            return script::acquire(self.record(), owner, lease_ms);
        };
        let mut last = last.lock();
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
            let release = script::release(self.record(), owner, channel);
            let requests = Requests { owner: owner.clone(), lease_ms, acquire: acquire.clone(), release };
            *last = LastOwner::Repeated(Box::new(requests));
        }
        acquire
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>, _: &[Arc<str>]) -> Request {
        let Used { channel, last } = self.used();
        let mut last = last.lock();
        match &*last {
            LastOwner::Repeated(requests) if requests.owner == *owner => return requests.release.clone(),
            LastOwner::Once(before) if before == owner => {}
            _ => *last = LastOwner::Once(owner.clone()),
        }
        drop(last);
        script::release(self.record(), owner, channel)
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        Some(script::hand_off(self.record(), from, to, lease, &self.used().channel))
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl<const REENTRANT: bool> OwnedKind for Plain<REENTRANT> {
    fn force_unlock(&self) -> Request {
        script::force_unlock(self.record(), &self.used().channel)
    }

    fn inspect(&self) -> Request {
        script::inspect(self.record(), &self.used().channel, script::FEW)
    }
}
