//! A majority of several locks on servers that know nothing of each other: Redlock, Redisson's `RedissonRedLock`.
//!
//! The algorithm and its figures are Salvatore Sanfilippo's ("Distributed Locks with Redis", the page `distributed-locks`
//! of Redis' documentation, and its reference implementation in Ruby): a small timeout for each server, a majority, a
//! validity from which the time that went by and the drift of clocks are taken off, a random pause before another try,
//! and servers that stay out for a lease after a restart.
//!
//! Invariants:
//! 1. The hold at each server ends, for us, earlier than its lease by the drift. A hold that has ended never comes back (see
//!    `hold`), so the majority once lost is lost for good, whatever is renewed later.
//! 2. What a server grants counts only if that server has lost nothing since a lease before the grant. Who relied on what it
//!    lost knows by then that it is lost.

use crate::composite::guard::{Member, MultiHolding, MultiLockGuard};
use crate::composite::rounds::{Members, Outcome, Round, acquire, acquire_within, gather, give_back};
use crate::engine::acquire::Wait;
use crate::error::{Error, Phase, Result};
use crate::guard::LockGuard;
use crate::lock::{Claim, Lock};
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// What clocks may differ by: a hundredth of the lease, and 2 ms for the precision of Redis' expiry and for short leases.
/// The figures of the reference implementation.
fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// A lock on several independent servers, held while a majority of them (N/2+1) grants it: Redisson's `RedissonRedLock`. It
/// goes on working while a minority is down. A handle: cheap to make and to clone, no I/O.
///
/// It is made of one lock for each server, each of a [`Client`](crate::Client) of its own; they may be of any kind. Who takes
/// one of them alone, or in Java, is excluded like any other. All are held by one owner, the current task or
/// [`with_owner`](Self::with_owner)'s.
///
/// To take it, all servers are asked at once, each for the [node timeout](Self::with_node_timeout). What a server grants lasts
/// for its lease from the time at which it was *sent*, less 1 % of the lease and 2 ms for the drift of clocks; the time until
/// which a majority of them lasts is the [deadline](MultiHolding::deadline), and what is left until then the
/// [validity](MultiHolding::validity). Without a majority everything is given back, and after a random pause of 2 to 64 ms it
/// is tried again: there is no queue, and no message is waited for.
///
/// While it is held, each client's watchdog renews its own lock, and the validity is renewed as soon as a majority is. Once
/// the validity has run out the guard is [`HoldState::Lost`](crate::HoldState::Lost) for good.
///
/// A server that lost its data might grant to a second holder what it granted before. So what a server grants that has been
/// running for less than a lease (the lock's or the client's [watchdog timeout](crate::ClientBuilder::watchdog_timeout), by
/// default 30 s, whichever is longer), or that has been connected to as another than before for less than that, is taken but does not
/// count. That a server restarted is seen by its run id, and at the first connection by its uptime; where the user may
/// not ask for those (`INFO`), every new connection counts as a restart. All who use a red lock must therefore use the same
/// lease, or the same watchdog timeout at least as long.
///
/// # What it does not give
/// Redlock relies on clocks that run at about the same rate and on holders that look before they act. It is safe from none of
/// these: a server's clock that is set forward, a server that forgets a record without a restart, a replica that comes in for
/// a server under its run id, a holder that is paused between its last look and the write that it was to protect, a pause of a
/// virtual machine that stops its clock, too. (Martin Kleppmann, "How to do distributed locking", 2016; Sanfilippo's answer is
/// "Is Redlock safe?".) It makes two holders at a time unlikely, which is good for efficiency. Where two would do
/// harm, have the resource refuse what is late: [fenced locks](crate::Client::fenced_lock) have tokens for that, though each
/// server counts its own, so that one server decides.
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
pub struct RedLock {
    members: Arc<Members>,
    node_timeout: Duration,
    least: Duration,
}

impl RedLock {
    /// Of `locks`, with their leases and their owner; never handed on by a
    /// [pipelined](crate::HandOff::pipelined) hand-off.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no lock, if two are on one server, if they have different owners, or if one has a bad
    /// name.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let same =
            |one: &Lock, other: &Lock| one.session().connection.node() == other.session().connection.node();
        Ok(Self {
            members: Arc::new(Members::new(locks, same)?),
            node_timeout: Duration::from_millis(50),
            least: Duration::ZERO,
        })
    }

    /// The same locks, each with a fixed lease that the watchdog does not renew (see [`Lock::with_lease`]).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: Arc::new(self.members.with_lease(lease)), ..self.clone() }
    }

    /// The same locks, held by `owner` instead of the current task. An acquire fails with [`Error::Misuse`] if there is a
    /// [mutex](crate::Client::mutex) among them.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { members: Arc::new(self.members.with_owner(owner)), ..self.clone() }
    }

    /// The same with another limit for how long a server is waited for at a try. Default 50 ms. It should be much smaller than
    /// the lease, and larger than a round trip. A server that the client knows to be out of reach is not waited for.
    pub fn with_node_timeout(&self, timeout: Duration) -> Self {
        Self { node_timeout: timeout, ..self.clone() }
    }

    /// The same, but a guard is only returned if its [validity](MultiHolding::validity) is above `validity`. Default 0.
    pub fn with_minimum_validity(&self, validity: Duration) -> Self {
        Self { least: validity, ..self.clone() }
    }

    /// Takes the lock, trying for as long as it takes; also while a majority is down.
    ///
    /// # Errors
    /// [`Error::Misuse`] before anything is sent: also for a lease that is not longer than the drift, or the minimum validity
    /// and the drift. If so many servers refuse for good, or so many clients are closed, that there can be no majority: the
    /// error of one of them, as for [`Lock::lock`].
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future gives back what was already taken, or is on its way.
    pub async fn lock(&self) -> Result<MultiLockGuard> {
        match acquire(self.round()?, Wait::Forever).await? {
            Some(guard) => Ok(guard),
            None => unreachable!("without a limit it is never over"),
        }
    }

    /// Tries once to take the lock. `None` if others hold it at so many servers that there can be no majority.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock). If there is no majority because of servers that did not answer within the node timeout,
    /// that are out of reach, or that were started too short a time ago to count: the error of one of them,
    /// [`Error::TimedOut`] or [`Error::Unavailable`].
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Tries to take the lock for at most `wait`. What the last try told, if none was successful; a `wait` of zero is
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`try_lock`](Self::try_lock).
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        acquire_within(self.round()?, wait, self.node_timeout).await
    }

    /// Runs `body` while the lock is held, and cancels it when the majority is lost or the validity has run out.
    ///
    /// # Errors
    /// As for [`lock`](Self::lock), and for [`Lock::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the body and releases the locks in the background.
    pub async fn run<F, Fut, T>(&self, body: F) -> Result<T>
    where
        F: FnOnce(MultiHolding) -> Fut,
        Fut: Future<Output = T>,
    {
        self.lock().await?.run(body).await
    }

    fn round(&self) -> Result<AllAtOnce> {
        if self.node_timeout.is_zero() {
            return Err(Error::misuse("the node timeout of a red lock must be above 0"));
        }
        let lease = self.members.length();
        if lease <= self.least.saturating_add(drift(lease)) {
            return Err(Error::misuse(
                "a red lock's lease must be longer than its minimum validity and the drift, 2 ms and 1 %",
            ));
        }
        Ok(AllAtOnce { lock: self.clone(), claims: self.members.claims()? })
    }
}

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
        let asked = gather(each.map(|(lock, claim)| ask(lock, claim, limit)), |_| false).await;

        let (mut guards, mut errors, mut hopeless, mut busy) = (Vec::new(), Vec::new(), 0, 0);
        for (lock, answer) in locks.iter().zip(asked.into_iter().flatten()) {
            match answer {
                Ok(Some(guard)) => {
                    guard.end_early(drift(guard.lease().max(lock.length())));
                    let counts = counts(lock, &guard);
                    if !counts {
                        errors.push(too_young(lock));
                    }
                    guards.push(Member { guard, counts });
                }
                Ok(None) => busy += 1,
                Err(error) => {
                    debug!(%error, "not granted by one of the servers");
                    // For good, for all that this call may know.
                    let is_hopeless = lock.session().is_closed()
                        || !matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. });
                    hopeless += usize::from(is_hopeless);
                    errors.insert(if is_hopeless { 0 } else { errors.len() }, error);
                }
            }
        }
        let guards = match MultiLockGuard::new(guards, needed, *least) {
            Ok(guard) => return Ok(Outcome::Taken(guard)),
            Err(guards) => guards,
        };
        let over =
            left.map_or(members.response_timeout(), |left| left.saturating_sub(Moment::now().since(started)));
        give_back(guards, over.min(*node_timeout)).await;
        if hopeless > locks.len() - needed {
            return Err(errors.swap_remove(0));
        }
        if busy > locks.len() - needed {
            return Ok(Outcome::Missed(None));
        }
        let waited = Moment::now().since(started);
        let node = || locks[0].session().connection.node().to_owned();
        let too_late = || Error::TimedOut { phase: Phase::Acquire, node: node(), waited };
        Ok(Outcome::Missed(Some(errors.into_iter().next().unwrap_or_else(too_late))))
    }
}

/// One server's answer.
async fn ask(lock: &Lock, claim: &Claim, limit: Duration) -> Result<Option<LockGuard>> {
    let connection = &lock.session().connection;
    if let Some(error) = connection.trouble(lock.kind()?.record(), Moment::now(), Phase::Acquire) {
        return Err(error);
    }
    lock.acquire_for(claim, Wait::Once(limit)).await
}

/// Whether the server has lost nothing for as long as what it granted before may have been relied on.
fn counts(lock: &Lock, guard: &LockGuard) -> bool {
    let longest = lock.length().max(lock.session().options.lease);
    let since = lock.session().connection.unbroken_since(guard.life());
    since.is_some_and(|since| (since + longest).passed())
}

fn too_young(lock: &Lock) -> Error {
    Error::Unavailable {
        phase: Phase::Acquire,
        node: lock.session().connection.node().into(),
        reason: "it may have been started less than a lease ago, so what it grants does not count yet".into(),
    }
}
