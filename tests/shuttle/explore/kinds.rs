//! The kinds that are explored: their handles, their guards, and the rules that hold after each event.

use super::Program;
use super::director::World;
use super::network::LOCK;
use super::owners::Owner;
use super::search;
use super::with;
use crate::engine::session::Session;
use crate::error::Result;
use crate::guard::LockGuard;
use crate::kinds::Reentrant;
use crate::lease::status::HoldState;
use crate::protocol::keys::LockKeys;
use crate::semaphore::SemaphorePermit;
use crate::shuttled::time;
use crate::status::HoldStatus;
use crate::{Lock, Semaphore};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Lock,
    /// A semaphore with this number of permits. Each acquire takes one.
    Semaphore(i64),
}

/// The lock or the semaphore of an owner.
pub(super) enum Handle {
    Lock(Lock),
    Semaphore(Semaphore),
}

/// The guard of a lock, or a permit.
pub(super) enum Guard {
    Lock(LockGuard),
    Permit(SemaphorePermit),
}

impl Handle {
    pub(super) fn new(kind: Kind, session: Arc<Session>, program: &Program, lease: Duration) -> Self {
        let keys = LockKeys::new(LOCK.into());
        match kind {
            Kind::Lock => {
                let owner = crate::owner::Owner::new(program.owner).expect("an owner");
                let lock = Lock::new(session, keys.map(Reentrant::new));
                Self::Lock(lock.with_owner(&owner).with_lease(lease))
            }
            Kind::Semaphore(_) => Self::Semaphore(Semaphore::new(session, keys)),
        }
    }

    pub(super) async fn acquire(&self, once: bool) -> Result<Option<Guard>> {
        Ok(match (self, once) {
            (Self::Lock(lock), true) => lock.try_lock().await?.map(Guard::Lock),
            (Self::Lock(lock), false) => Some(Guard::Lock(lock.lock().await?)),
            (Self::Semaphore(semaphore), true) => semaphore.try_acquire().await?.map(Guard::Permit),
            (Self::Semaphore(semaphore), false) => Some(Guard::Permit(semaphore.acquire().await?)),
        })
    }
}

impl Guard {
    /// The status of a hold that may end by itself.
    pub(super) fn status(&self) -> Option<HoldStatus> {
        match self {
            Self::Lock(guard) => Some(guard.status()),
            Self::Permit(_) => None,
        }
    }

    pub(super) async fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

impl Kind {
    /// Since when an acquire can succeed, as far as the server knows. `None` if it cannot before another event.
    pub(super) fn free_since(self, world: &World) -> Option<Duration> {
        let last_event = world.last_event;
        match self {
            Self::Lock => {
                let record = world.network.data.records.get(LOCK);
                Some(record.map_or(last_event, |record| record.expires.max(last_event)))
            }
            Self::Semaphore(_) => (world.network.free_permits() > 0).then_some(last_event),
        }
    }

    /// Whether nothing is held any more. Permits of a client that has crashed stay taken.
    pub(super) fn is_returned(self, world: &World) -> bool {
        match self {
            Self::Lock => !world.network.is_held(),
            Self::Semaphore(permits) => {
                let crashed = world.owners.iter().filter(|owner| search::has_crashed(owner.client));
                let taken = permits - world.network.free_permits();
                (0..=crashed.count() as i64).contains(&taken)
            }
        }
    }

    /// Notes which attempts may fail from now on. A lock may also count as busy while its client yields to others.
    pub(super) fn note_busy(self, world: &mut World) {
        let is_free = match self {
            Self::Lock => false,
            Self::Semaphore(_) => world.network.free_permits() > 0,
        };
        let waiting: Vec<_> = world.owners.iter().map(|owner| owner.waits.then_some(owner.client)).collect();
        for (at, owner) in world.owners.iter_mut().enumerate() {
            let mut others = waiting.iter().enumerate().filter(|(other, _)| *other != at);
            let is_behind = others.any(|(_, waits)| *waits == Some(owner.client));
            owner.may_be_busy = owner.waits && owner.may_be_busy || !is_free || is_behind;
        }
    }

    /// Checks the rules that hold after every event.
    pub(super) fn check(self) {
        match self {
            Self::Lock => check_holds(),
            Self::Semaphore(permits) => with(|world| check_permits(world, permits)),
        }
    }
}

/// At most one owner holds the lock for certain, and the record names it. No hold comes back.
fn check_holds() {
    let now = time::since_boot();
    let owners: Vec<_> = with(|world| world.owners.iter().map(|owner| owner.holds.clone()).collect());
    let mut certain: Vec<String> = Vec::new();
    for (number, holds) in owners.iter().enumerate() {
        for (at, hold) in holds.iter().enumerate() {
            let state = hold.status.state();
            assert!(!(hold.ended && state.is_live()), "a hold came back: {state:?}");
            with(|world| world.owners[number].holds[at].ended = !state.is_live());
            let crashed = with(|world| search::has_crashed(world.owners[number].client));
            if state != HoldState::Held || crashed {
                continue;
            }
            let owner = hold.status.owner().to_owned();
            let ends = Duration::from_nanos(hold.status.end_of_lease().nanos());
            let recorded = with(|world| {
                let record = world.network.data.records.get(LOCK);
                record.is_some_and(|record| record.counts.contains_key(&owner) && record.expires >= ends)
            });
            assert!(recorded, "at {now:?} {owner} holds the lock, but the record does not say so");
            certain.push(owner);
        }
    }
    certain.dedup();
    assert!(certain.len() < 2, "{certain:?} hold the lock");
}

/// The record counts each permit that an owner holds as taken. The owners of a client get permits in the order in which they asked.
fn check_permits(world: &World, permits: i64) {
    let World { owners, network, .. } = world;
    let held: usize = owners.iter().map(|owner| owner.guards).sum();
    let free = network.free_permits();
    assert!(
        free >= 0 && free + held as i64 <= permits,
        "owners hold {held} of {permits} permits, and {free} are free"
    );
    for first in owners.iter().filter(|owner| owner.waits) {
        let overtook = |other: &Owner| {
            let holds = other.ready && other.guards > 0 && other.client == first.client;
            holds && other.acted > first.acted
        };
        assert!(!owners.iter().any(overtook), "an owner got a permit before an earlier one of its client");
    }
}
