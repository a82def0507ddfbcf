//! All of several locks, or none: Redisson's `RedissonMultiLock`.
//!
//! Nobody waits without a limit while it holds some of them. Clients of this library take them in one order, so that
//! they never wait for each other in a circle, and what another order costs (Redisson takes them in that of its
//! caller) ends when the time for holding some is up. Then all are given back, and the one that was busy is waited for
//! first, with nothing in hand; those that come before it in the order are then only tried, so that of several clients
//! that meet this way the one that goes by the order always gets on.

use crate::composite::guard::{Member, MultiHolding, MultiLockGuard};
use crate::composite::rounds::{Members, Outcome, Round, acquire, acquire_within, give_back};
use crate::engine::acquire::Wait;
use crate::error::{Error, Phase, Result};
use crate::guard::LockGuard;
use crate::lock::{Claim, Lock};
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// How long some are held while others are waited for, for each of the others. Short, because a client that goes by another
/// order may wait for what is held, and then nobody gets on for so long.
const PATIENCE: Duration = Duration::from_millis(10);
/// Longer, up to a limit, for whoever has waited for long already, as a part of that time: locks that are seldom free are
/// to be got in the end.
const PART: u32 = 32;
const LONGEST: Duration = Duration::from_millis(500);

/// Several locks that are taken and released as one: Redisson's `RedissonMultiLock`. They may be of any kinds and of several
/// clients, on as many servers. A handle: cheap to make and to clone, no I/O.
///
/// It has no record of its own: each lock's is as if that had been taken by itself, and excludes whoever takes it alone
/// or in another multi lock, in Rust or in Java. All are held by one owner, the current task or
/// [`with_owner`](Self::with_owner)'s; a [mutex](crate::Client::mutex) among them is held by the guard. A multi lock of
/// mutexes alone is itself a mutex.
///
/// All or none, but not at one instant: while others are waited for, some are held already, in the order of their servers
/// (as their URLs name them) and names. That is for 10 ms for each of the others (for half a second at most, where it has
/// been waited for long already); an answer of a server far away may take as long as the response timeout. It is a quarter of
/// the lease at most. Then all are given back, and after a random pause of 2 to 64 ms it begins anew with the one that was
/// missing. So multi locks that overlap do not block each other for ever, whatever the order in which Redisson's take them.
///
/// No lock's lease is touched that is not the owner's. (Redisson's multi lock with a lease takes its locks for another time
/// first, and then sets the expiry of every record, whoever has it by then.)
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
pub struct MultiLock {
    members: Arc<Members>,
}

impl MultiLock {
    /// Of `locks`, with their leases and their owner; never handed on by a
    /// [pipelined](crate::HandOff::pipelined) hand-off.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no lock, if two are of one client and one record (as the read and the write side of one
    /// lock are), if they have different owners, or if one has a bad name.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let same = |one: &Lock, other: &Lock| {
            let record = |lock: &Lock| lock.kind().ok().map(|kind| kind.record().clone());
            Arc::ptr_eq(one.session(), other.session()) && record(one) == record(other)
        };
        Ok(Self { members: Arc::new(Members::new(locks, same)?) })
    }

    /// The same locks, each with a fixed lease that the watchdog does not renew (see [`Lock::with_lease`]). The first that
    /// ends ends the whole; about three quarters of it, or more, are left when
    /// the guard is returned (its [`deadline`](MultiHolding::deadline) says how much).
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self { members: Arc::new(self.members.with_lease(lease)) }
    }

    /// The same locks, held by `owner` instead of the current task. An acquire fails with [`Error::Misuse`] if there is a
    /// [mutex](crate::Client::mutex) among them: give the others their owner before.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        Self { members: Arc::new(self.members.with_owner(owner)) }
    }

    /// Takes all locks, waiting for as long as it takes; also through restarts of the servers.
    ///
    /// # Errors
    /// As for [`Lock::lock`], of any of the locks.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves the queue, and gives back what was already taken.
    pub async fn lock(&self) -> Result<MultiLockGuard> {
        match acquire(self.round()?, Wait::Forever).await? {
            Some(guard) => Ok(guard),
            None => unreachable!("without a limit it is never over"),
        }
    }

    /// Takes all locks if they are free, with one look at each. `None` if another holds one.
    ///
    /// # Errors
    /// As for [`Lock::try_lock`], of any of the locks. All looks together are made within the response timeout, the longest
    /// of the clients'.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<MultiLockGuard>> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Takes all locks, waiting for at most `wait` in all. `None` if another held one; a `wait` of zero is
    /// [`try_lock`](Self::try_lock).
    ///
    /// # Errors
    /// As for [`Lock::try_lock_for`], of any of the locks.
    ///
    /// # Cancel safety
    /// As for [`lock`](Self::lock).
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiLockGuard>> {
        acquire_within(self.round()?, wait, self.members.response_timeout()).await
    }

    /// Runs `body` while all locks are held, and cancels it when one is lost.
    ///
    /// # Errors
    /// As for [`Lock::run`].
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

    fn round(&self) -> Result<InOrder> {
        let (members, claims) = (self.members.clone(), self.members.claims()?);
        Ok(InOrder { members, claims, first: 0, began: Moment::now() })
    }
}

/// Takes the locks one after the other.
struct InOrder {
    members: Arc<Members>,
    claims: Vec<Claim>,
    /// The one that was missing last.
    first: usize,
    began: Moment,
}

impl Round for InOrder {
    async fn take(&mut self, once: bool, left: Option<Duration>) -> Result<Outcome> {
        let started = Moment::now();
        let over = left.map(|left| started + left);
        let mut guards = Vec::with_capacity(self.members.locks().len());
        let mut in_hand = None;
        let order =
            std::iter::once(self.first).chain((0..self.members.locks().len()).filter(|&at| at != self.first));
        for at in order {
            let answer = match in_hand {
                None => {
                    let wait = match over.map(Moment::remaining) {
                        None => Wait::Forever,
                        Some(left) if once => Wait::Once(left),
                        Some(left) => Wait::For(left),
                    };
                    self.ask(at, wait).await
                }
                Some(since) => self.ask_beside(at, once, since, over).await,
            };
            let missed = match answer {
                Ok(Some(guard)) => {
                    in_hand.get_or_insert_with(Moment::now);
                    guards.push(guard);
                    continue;
                }
                Ok(None) => Ok(None),
                // With nothing in hand it was waited for to the end, or asked for in vain for good.
                Err(error @ (Error::TimedOut { .. } | Error::Unavailable { .. })) if !guards.is_empty() => {
                    Ok(Some(error))
                }
                Err(error) => Err(error),
            };
            self.first = at;
            self.give_back(guards, over).await;
            return missed.map(Outcome::Missed);
        }
        let guards = guards.into_iter().map(|guard| Member { guard, counts: true });
        let guards = match MultiLockGuard::new(guards.collect(), self.members.locks().len(), Duration::ZERO) {
            Ok(guard) => return Ok(Outcome::Taken(guard)),
            // One has been lost on the way, or its connection has just dropped.
            Err(guards) => guards,
        };
        self.give_back(guards, over).await;
        let node = self.members.locks()[self.first].session().connection.node().to_owned();
        let waited = Moment::now().since(started);
        Ok(Outcome::Missed(Some(Error::TimedOut { phase: Phase::Acquire, node, waited })))
    }
}

impl InOrder {
    async fn ask(&self, at: usize, wait: Wait) -> Result<Option<LockGuard>> {
        self.members.locks()[at].acquire_for(&self.claims[at], wait).await
    }

    /// With some in hand since then. An answer is waited for however far away the server is; a lock that is busy, only for as
    /// long as it is fair to hold the others.
    async fn ask_beside(
        &self,
        at: usize,
        once: bool,
        since: Moment,
        over: Option<Moment>,
    ) -> Result<Option<LockGuard>> {
        let quarter = self.members.length() / 4;
        let left = |most: Duration| {
            let end = since + most;
            over.map_or(end, |over| over.min(end)).remaining()
        };
        match self.ask(at, Wait::Once(left(self.members.response_timeout().min(quarter)))).await {
            Ok(None) if !once && at > self.first => {
                match self.ask(at, Wait::For(left(self.patience(since).min(quarter)))).await {
                    // It was busy a moment ago.
                    Err(Error::TimedOut { .. }) => Ok(None),
                    told => told,
                }
            }
            told => told,
        }
    }

    /// How long some may be held while another is busy.
    fn patience(&self, since: Moment) -> Duration {
        let others = u32::try_from(self.members.locks().len() - 1).unwrap_or(u32::MAX);
        (since.since(self.began) / PART).clamp(PATIENCE, LONGEST).saturating_mul(others)
    }

    async fn give_back(&self, guards: impl IntoIterator<Item = LockGuard>, over: Option<Moment>) {
        let limit = self.members.response_timeout();
        give_back(guards, over.map_or(limit, |over| over.remaining().min(limit))).await;
    }
}
