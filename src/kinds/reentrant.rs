//! Redisson's reentrant lock, and its non-reentrant one, which has the same record.

use crate::kinds::kind::{Ask, KindTraits, LockKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Request};
use crate::runtime::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

static NON_REENTRANT: KindTraits =
    KindTraits { name: "non-reentrant lock", reentrant: false, ..KindTraits::REENTRANT };

/// The kind. The lane of its key asks one thing after another, so what it keeps is not contended for.
pub(crate) struct Reentrant {
    manner: &'static KindTraits,
    keys: LockKeys,
    last: Mutex<Last>,
}

/// Who released the lock last.
#[derive(Default)]
enum Last {
    #[default]
    Nobody,
    Once(Arc<str>),
    /// More than once in a row, and with that lease: what is asked for need not be made anew each time.
    Often(Box<Often>),
}

struct Often {
    owner: Arc<str>,
    lease_ms: u64,
    acquire: Request,
    release: Request,
}

impl Reentrant {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self { manner: &KindTraits::REENTRANT, keys, last: Mutex::default() }
    }

    /// The same record, which its owner can't take twice.
    pub(crate) fn not(keys: LockKeys) -> Self {
        Self { manner: &NON_REENTRANT, ..Self::new(keys) }
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockKind for Reentrant {
    fn manner(&self) -> &'static KindTraits {
        self.manner
    }

    fn record(&self) -> &Arc<str> {
        self.keys.record()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.keys.channel().clone())
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        let &Ask { text: owner, lease_ms, .. } = ask;
        let mut last = self.last();
        let before = match &*last {
            Last::Often(often) if often.owner == *owner && often.lease_ms == lease_ms => {
                return often.acquire.clone();
            }
            Last::Often(often) => Some(&often.owner),
            Last::Once(before) => Some(before),
            Last::Nobody => None,
        };
        let acquire = script::acquire(self.record(), owner, lease_ms);
        if before == Some(owner) {
            let release = script::release(self.record(), owner, self.keys.channel());
            let often = Often { owner: owner.clone(), lease_ms, acquire: acquire.clone(), release };
            *last = Last::Often(Box::new(often));
        }
        acquire
    }

    fn recount(&self, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Option<Request> {
        Some(script::recount(self.record(), owner, from, to, lease_ms))
    }

    fn release(&self, owner: &Arc<str>) -> Request {
        let mut last = self.last();
        match &*last {
            Last::Often(often) if often.owner == *owner => return often.release.clone(),
            Last::Once(before) if before == owner => {}
            _ => *last = Last::Once(owner.clone()),
        }
        drop(last);
        script::release(self.record(), owner, self.keys.channel())
    }

    fn hand_over(&self, from: &Arc<str>, to: &Arc<str>, lease_ms: u64) -> Option<Request> {
        Some(script::hand_over(self.record(), from, to, lease_ms, self.keys.channel()))
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock(self.record(), self.keys.channel()))
    }
}
