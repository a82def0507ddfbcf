//! A majority of locks on independent servers: Redlock, Redisson's `RedissonRedLock`.
//!
//! The algorithm and its figures are those of Salvatore Sanfilippo's page "Distributed Locks with Redis" and its reference
//! implementation in Ruby.
//!
//! Invariants:
//! 1. The hold at each server ends earlier than its lease, by the clock drift. An ended hold never comes back (see `hold`), so a
//!    lost majority is lost for good, whatever is renewed later.
//! 2. The grant of a server counts only if the server has lost no data for a lease before the grant. Every hold that relied on
//!    the lost data has ended by then.

use crate::composite::guard::{Member, MultiLockGuard};
use crate::composite::rounds::{Members, Outcome, Round, acquire_unlimited, acquire_within, release_all};
use crate::engine::acquire::Wait;
use crate::engine::claim::Claim;
use crate::error::{Error, Phase, Result};
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::lock::run::run_methods;
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use crate::runtime::gather::gather;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// Returns the clock drift to allow for: a hundredth of the lease, plus 2 ms for short leases and the precision of Redis's expiry.
/// The figures are those of the reference implementation.
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// A lock on several independent servers, held while a majority (N/2+1) grants it: Redisson's `RedissonRedLock`.
///
/// The lock remains available while a minority of the servers is down. A handle is cheap to create and to clone, and does no I/O.
///
/// A red lock consists of one lock per server, each of a [`Client`](crate::Client) of its own. The locks may be of any kind. On each
/// server, the lock excludes clients that acquire it alone, in Rust or in Java. Such a client does not prevent a majority on the other
/// servers. One owner holds all the locks: the current task, or the owner of [`with_owner`](Self::with_owner).
///
/// # Acquiring and holding
/// An acquire asks all servers at once, each for at most the [node timeout](Self::with_node_timeout). A grant ends one lease after its
/// request was sent, minus 1 % of the lease and 2 ms for clock drift. The [deadline](MultiLockGuard::deadline) is the time until which a
/// majority of the grants lasts, and the [validity](MultiLockGuard::validity) is the time left until then. Without a majority, the client
/// releases everything and tries again after a random pause of 2 to 64 ms. There is no queue, and no message wakes a waiter.
///
/// While the lock is held, each client's watchdog renews its own lock. Each renewal by a majority extends the validity. Once the
/// validity has run out, the guard is [`HoldState::Lost`](crate::HoldState::Lost) for good.
///
/// # Servers that lose data
/// A server that has lost its data might grant the lock to a second holder. So the grant of a server does not count if the
/// server started less than a lease ago, or replaced another server less than a lease ago. The lease in question is that of the
/// lock or the client's [watchdog timeout](crate::ClientBuilder::watchdog_timeout) (30 s by default), whichever is longer.
///
/// At the first connection, the uptime shows how long ago the server started. Later, a changed run id shows a restart. If the user lacks
/// the permission to run `INFO`, every new connection counts as a restart. All users of a red lock must have the same value for the
/// longer of the two, lease and watchdog timeout.
///
/// A client learns of a replacement only if it was connected before. If it first connects after a replica has replaced its master, it
/// sees only how long ago the replica started. So use independent masters that are never replaced by a replica.
///
/// # Limitations
/// Redlock relies on clocks that run at about the same rate and on holders that check the lock before they act. It does not protect
/// against:
/// - a server whose clock is moved forward;
/// - a server that loses a record without a restart;
/// - a replica that takes over under the run id of its master, or before a client first connects;
/// - a holder that is paused between its last check and the write that the lock protects;
/// - a pause of a virtual machine that also stops its clock.
///
/// See Martin Kleppmann, "How to do distributed locking" (2016), and Sanfilippo's answer, "Is Redlock safe?". A red lock makes two holders
/// at a time unlikely, which is enough if it only avoids duplicate work. Where two holders would cause damage, let the resource refuse late
/// writes by the token of a [fenced lock](crate::Client::fenced_lock). Each server counts its own tokens, so use the tokens of one server
/// only.
///
/// ```no_run
/// # async fn report(clients: [redisson_lock::Client; 3]) -> redisson_lock::Result<()> {
/// use redisson_lock::RedLock;
/// let red = RedLock::new(clients.iter().map(|client| client.lock("report")))?;
/// let guard = red.lock().await?;
/// println!("valid for {:?}", guard.validity());
/// guard.unlock().await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until one of its methods is called"]
pub struct RedLock {
    members: Arc<Members>,
    node_timeout: Duration,
    least: Duration,
}

impl RedLock {
    /// Creates a red lock from `locks`. Their leases and their owner stay.
    ///
    /// A red lock never uses the [pipelined](crate::HandOff::pipelined) hand-off.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no lock, if two locks are on one server, if the locks have different owners, if one has a
    /// minimum time, or if a name is invalid.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let same =
            |one: &Lock, other: &Lock| one.session().connection.node() == other.session().connection.node();
        Ok(Self {
            members: Arc::new(Members::new(locks, same)?),
            node_timeout: Duration::from_millis(50),
            least: Duration::ZERO,
        })
    }

    /// Returns this red lock with a fixed lease for each lock, which the watchdog does not renew (see [`Lock::with_lease`]).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: Arc::new(self.members.with_lease(lease)), ..self.clone() }
    }

    /// Returns this red lock with `owner` as its owner, in place of the current task.
    ///
    /// An acquire fails with [`Error::Misuse`] if one of the locks is a [mutex](crate::Client::mutex).
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { members: Arc::new(self.members.with_owner(owner)), ..self.clone() }
    }

    /// Returns this red lock with a different time limit for each server's reply. Default 50 ms.
    ///
    /// The limit should be much smaller than the lease, and larger than a round trip. The client does not wait for a server that it
    /// knows to be unreachable.
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: timeout, ..self.clone() }
    }

    /// Returns this red lock with a minimum [validity](MultiLockGuard::validity): an acquire succeeds only if more than this is left. Default
    /// 0.
    pub fn with_minimum_validity(&self, validity: Duration) -> Self {
        Self { least: validity, ..self.clone() }
    }

    /// Acquires the lock, waiting without a limit.
    ///
    /// The wait survives the loss of a majority of the servers.
    ///
    /// # Errors
    /// - [`Error::Misuse`] before anything is sent, for example if the lease is not longer than the clock drift plus the minimum
    ///   validity.
    /// - If so many servers refuse for good, or so many clients are closed, that a majority is impossible: the error of one of them,
    ///   as for [`Lock::lock`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future releases every lock that was acquired or is on its way.
    pub async fn lock(&self) -> Result<MultiLockGuard> {
        acquire_unlimited(self.round()?).await
    }

    /// Acquires the lock if it is free, with a single attempt at each server.
    ///
    /// Returns `None` if other owners hold the lock at so many servers that a majority is impossible.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock); also [`Error::TimedOut`] or [`Error::Unavailable`] if there is no majority because servers did not
    /// answer within the node timeout, are unreachable, or started too recently to count.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Acquires the lock, waiting for at most `wait`.
    ///
    /// If no attempt succeeded, returns `None` if other owners prevented a majority in the last complete attempt, and the error of that
    /// attempt otherwise. A `wait` of zero means [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        acquire_within(self.round()?, wait, self.node_timeout).await
    }

    fn round(&self) -> Result<AllAtOnce> {
        if self.node_timeout.is_zero() {
            return Err(Error::misuse("a red lock's node timeout must be greater than 0"));
        }
        let lease = self.members.lease_duration();
        if lease <= self.least.saturating_add(drift(lease)) {
            return Err(Error::misuse(
                "a red lock's lease must be longer than its minimum validity plus the clock drift of 2 ms and 1 %",
            ));
        }
        Ok(AllAtOnce { lock: self.clone(), claims: self.members.claims()? })
    }
}

run_methods!(RedLock,);

/// Asks all servers at once.
struct AllAtOnce {
    lock: RedLock,
    claims: Vec<Claim>,
}

impl Round for AllAtOnce {
    async fn take(&mut self, _once: bool, left: Option<Duration>) -> Result<Outcome> {
        let RedLock { members, node_timeout, least } = &self.lock;
        let locks = members.locks();
        let (needed, started) = (locks.len() / 2 + 1, Moment::now());
        let limit = left.map_or(*node_timeout, |left| left.min(*node_timeout));
        let each = locks.iter().zip(&self.claims);
        let asked =
            gather(each.map(|(lock, claim)| lock.acquire_for(claim, Wait::Once(limit))), |_| false).await;

        let (mut guards, mut errors, mut refusals, mut busy) = (Vec::new(), Vec::new(), 0, 0);
        for (lock, answer) in locks.iter().zip(asked.into_iter().flatten()) {
            match answer {
                Ok(Some((guard, _))) => {
                    guard.end_early(drift(guard.lease().max(lock.lease_duration())));
                    let counts = counts(lock, &guard);
                    if !counts {
                        errors.push(too_young(lock));
                    }
                    guards.push(Member { guard, counts });
                }
                Ok(None) => busy += 1,
                Err(error) => {
                    debug!(%error, "a server did not grant the red lock");
                    // Final, as far as this call can know.
                    let is_final = lock.session().is_closed() || !error.is_temporary();
                    refusals += usize::from(is_final);
                    errors.insert(if is_final { 0 } else { errors.len() }, error);
                }
            }
        }
        let guards = match MultiLockGuard::new(guards, needed, *least) {
            Ok(guard) => return Ok(Outcome::Taken(guard)),
            Err(guards) => guards,
        };
        let over =
            left.map_or(members.response_timeout(), |left| left.saturating_sub(Moment::now().since(started)));
        release_all(guards, over.min(*node_timeout)).await;
        if refusals > locks.len() - needed {
            return Err(errors.swap_remove(0));
        }
        if busy > locks.len() - needed {
            return Ok(Outcome::Missed(None));
        }
        let waited = Moment::now().since(started);
        let node = || locks[0].session().connection.node().to_owned();
        let no_answer = || Error::TimedOut { phase: Phase::Acquire, node: node(), waited };
        Ok(Outcome::Missed(Some(errors.into_iter().next().unwrap_or_else(no_answer))))
    }
}

/// Returns whether the server has lost no data for as long as its earlier grants may have been relied on.
fn counts(lock: &Lock, guard: &LockGuard) -> bool {
    let longest = lock.lease_duration().max(lock.session().options.lease);
    let since = lock.session().connection.unbroken_since(guard.data_epoch());
    since.is_some_and(|since| (since + longest).passed())
}

fn too_young(lock: &Lock) -> Error {
    Error::unavailable(
        Phase::Acquire,
        lock.session().connection.node(),
        "it may have been started less than a lease ago, so its grant does not count yet: wait for one lease",
    )
}
