//! All of several locks, or none: Redisson's `RedissonMultiLock`.
//!
//! Invariant: no client holds some of the locks without a limit while it waits for another.
//! - Clients of this library acquire the locks in one common order, so they never wait for each other in a circle.
//! - Redisson uses the order of its caller. A circle with Redisson ends when the time for holding a part is over.
//! - The client then releases everything and waits for the busy lock first, with nothing in hand. It only tries the locks that
//!   precede that lock in the order. So of several clients that collide, the one that follows the order always makes progress.

use crate::composite::guard::{Member, MultiLockGuard};
use crate::composite::rounds::{Members, Outcome, Round, acquire_unlimited, acquire_within, release_all};
use crate::engine::acquire::Wait;
use crate::engine::claim::Claim;
use crate::error::{Error, Phase, Result};
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::lock::run::run_methods;
use crate::observer::Way;
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// How long a part of the locks is held while others are waited for, for each of the others. Short, because a client with another
/// order may be waiting for a held lock, and then neither makes progress.
const PATIENCE: Duration = Duration::from_millis(10);
/// After a long wait, a part is held for longer: for this fraction of the time waited, up to `LONGEST`. Otherwise locks that are
/// seldom free might never be acquired.
const PART: u32 = 32;
const LONGEST: Duration = Duration::from_millis(500);

/// Several locks that are acquired and released as one: Redisson's `RedissonMultiLock`.
///
/// The locks may be of different kinds, clients and servers. A handle is cheap to create and to clone, and does no I/O.
///
/// A multi lock has no record of its own. The record of each lock is the same as if that lock had been acquired alone. So a multi lock
/// excludes clients that acquire one of its locks alone or in another multi lock, in Rust or in Java. One owner holds all the locks: the
/// current task, or the owner of [`with_owner`](Self::with_owner). A [mutex](crate::Client::mutex) among them is owned by the
/// [`MultiLockGuard`]. A multi lock that consists only of mutexes behaves like a mutex.
///
/// An acquire takes all locks or none. It takes them one after the other, ordered by server (as the URL names it) and by name.
/// While the client waits for one of them, it holds the earlier ones for a limited time:
/// - while a distant server has not answered: for the response timeout of each request;
/// - while a lock is busy: for 10 ms for each of the other locks, and after a long wait for up to half a second for each, but at most for a
///   quarter of the lease.
///
/// If a lock has a fixed lease or a maximum time, all of this takes at most a quarter of it. An acquire whose round trips take longer never
/// succeeds.
///
/// After that time the client releases the earlier locks, pauses for a random time of 2 to 64 ms, and begins again with the missing lock.
/// So overlapping multi locks do not block each other forever, whatever order Redisson uses.
///
/// A multi lock never changes the lease of a lock that its owner does not hold. Redisson's multi lock with a lease first acquires
/// its locks with another lease, and then sets the expiry of every record, whoever holds it by then.
///
/// ```no_run
/// # async fn transfer(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::MultiLock;
/// let both = MultiLock::new([client.lock("account:1"), client.lock("account:2")])?;
/// let guard = both.lock().await?;
/// guard.unlock().await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct MultiLock {
    members: Arc<Members>,
}

impl MultiLock {
    /// Creates a multi lock from `locks`. Their leases and their owner stay.
    ///
    /// A multi lock never uses the [pipelined](crate::HandOff::pipelined) hand-off.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no lock, if two locks belong to the same client and have the same record (such as the read and the
    /// write side of one lock), if the locks have different owners, if one has a minimum time, or if a name is invalid.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let same = |one: &Lock, other: &Lock| {
            let record = |lock: &Lock| lock.kind().ok().map(|kind| kind.record().clone());
            Arc::ptr_eq(one.session(), other.session()) && record(one) == record(other)
        };
        Ok(Self { members: Arc::new(Members::new(locks, same)?) })
    }

    /// Returns this multi lock with a fixed lease for each lock, which the watchdog does not renew (see [`Lock::with_lease`]).
    ///
    /// The multi lock ends with the first of its leases. When the guard is returned, about three quarters of the lease or more are left;
    /// [`deadline`](MultiLockGuard::deadline) is exact.
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: Arc::new(self.members.with_lease(lease)) }
    }

    /// Returns this multi lock with `owner` as its owner, in place of the current task.
    ///
    /// An acquire fails with [`Error::Misuse`] if one of the locks is a [mutex](crate::Client::mutex). In that case set the owner of the
    /// other locks before you create the multi lock.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { members: Arc::new(self.members.with_owner(owner)) }
    }

    /// Acquires all locks, waiting without a limit.
    ///
    /// The wait survives restarts of the servers.
    ///
    /// # Errors
    /// As for [`Lock::lock`], for any of the locks.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped, the caller leaves the queues, and every lock that was acquired is released.
    pub async fn lock(&self) -> Result<MultiLockGuard> {
        acquire_unlimited(self.round()?).await
    }

    /// Acquires all locks if they are free, with a single attempt for each.
    ///
    /// Returns `None` if another owner holds one of them.
    ///
    /// # Errors
    /// As for [`Lock::try_lock`], for any of the locks. All attempts together take at most the longest response timeout of the clients.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Acquires all locks, waiting for at most `wait` in total.
    ///
    /// Returns `None` if one of them stayed busy, or became free too late to acquire the others. A `wait` of zero means
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`Lock::try_lock_for`], for any of the locks.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        acquire_within(self.round()?, wait, self.members.response_timeout()).await
    }

    fn round(&self) -> Result<InOrder> {
        let (members, claims) = (self.members.clone(), self.members.claims()?);
        Ok(InOrder { members, claims, first: 0, began: Moment::now() })
    }
}

run_methods!(MultiLock,);

/// Acquires the locks one after the other.
struct InOrder {
    members: Arc<Members>,
    claims: Vec<Claim>,
    /// The lock that was missing in the previous round.
    first: usize,
    began: Moment,
}

impl Round for InOrder {
    async fn take(&mut self, once: bool, left: Option<Duration>) -> Result<Outcome> {
        let started = Moment::now();
        let over = left.map(|left| started + left);
        let mut guards = Vec::with_capacity(self.members.locks().len());
        let (mut holding_since, mut waited) = (None, Duration::ZERO);
        let order =
            std::iter::once(self.first).chain((0..self.members.locks().len()).filter(|&at| at != self.first));
        for at in order {
            let asked = Moment::now();
            let answer = match holding_since {
                None => {
                    let wait = match over.map(Moment::remaining) {
                        None => Wait::Forever,
                        Some(left) if once => Wait::Once(left),
                        Some(left) => Wait::For(left),
                    };
                    self.request(at, wait).await
                }
                Some(since) => self.request_while_holding(at, once, since, over).await,
            };
            let took = Moment::now().since(asked);
            let missed = match answer {
                Ok(Some((guard, way))) => {
                    holding_since.get_or_insert_with(Moment::now);
                    if !once && !matches!(way, Way::Directly | Way::ReEntered) {
                        waited += took;
                    }
                    guards.push(guard);
                    continue;
                }
                Ok(None) => Ok(None),
                // The waits for busy locks have used up most of the time, so this server may not be at fault.
                Err(Error::TimedOut { .. }) if waited > took && over.is_some_and(Moment::passed) => Ok(None),
                // With nothing in hand, the wait was over or the failure is final.
                Err(error) if error.is_temporary() && !guards.is_empty() => Ok(Some(error)),
                Err(error) => Err(error),
            };
            self.first = at;
            self.release_all(guards, over).await;
            return missed.map(Outcome::Missed);
        }
        let guards = guards.into_iter().map(|guard| Member { guard, counts: true });
        let guards = match MultiLockGuard::new(guards.collect(), self.members.locks().len(), Duration::ZERO) {
            Ok(guard) => return Ok(Outcome::Taken(guard)),
            // One lock was lost meanwhile, or its connection has just dropped.
            Err(guards) => guards,
        };
        self.release_all(guards, over).await;
        let node = self.members.locks()[self.first].session().connection.node().to_owned();
        let waited = Moment::now().since(started);
        Ok(Outcome::Missed(Some(Error::TimedOut { phase: Phase::Acquire, node, waited })))
    }
}

impl InOrder {
    async fn request(&self, at: usize, wait: Wait) -> Result<Option<(LockGuard, Way)>> {
        self.members.locks()[at].acquire_for(&self.claims[at], wait).await
    }

    /// Requests a lock while others have been held since `since`. Waits for the reply of a distant server, but for a busy lock only as
    /// long as it is fair to hold the others.
    ///
    /// Each request has the response timeout to itself. If all requests shared one, many free locks on a distant server would take longer
    /// than that in each round.
    async fn request_while_holding(
        &self,
        at: usize,
        once: bool,
        since: Moment,
        over: Option<Moment>,
    ) -> Result<Option<(LockGuard, Way)>> {
        // This time is never extended, so most of it must be left at the end.
        let kept = self.members.longest_hold().map_or(Moment::FAR, |longest| since + longest / 4);
        let left = |end: Moment| over.map_or(end, |over| over.min(end)).remaining();
        let answer_by = Moment::now() + self.members.response_timeout();
        match self.request(at, Wait::Once(left(answer_by.min(kept)))).await {
            Ok(None) if !once && at > self.first => {
                let quarter = self.members.lease_duration() / 4;
                match self.request(at, Wait::For(left(since + self.patience(since).min(quarter)))).await {
                    // It was busy a moment ago.
                    Err(Error::TimedOut { .. }) => Ok(None),
                    reply => reply,
                }
            }
            reply => reply,
        }
    }

    /// Returns how long a part of the locks may be held while another is busy.
    fn patience(&self, since: Moment) -> Duration {
        let others = u32::try_from(self.members.locks().len() - 1).unwrap_or(u32::MAX);
        (since.since(self.began) / PART).clamp(PATIENCE, LONGEST).saturating_mul(others)
    }

    async fn release_all(&self, guards: impl IntoIterator<Item = LockGuard>, over: Option<Moment>) {
        let limit = self.members.response_timeout();
        release_all(guards, over.map_or(limit, |over| over.remaining().min(limit))).await;
    }
}
