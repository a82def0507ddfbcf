//! The part that multi locks and red locks share: several locks of one owner, and rounds that try to acquire enough of them
//! until a round succeeds or the time is over.

use crate::composite::guard::MultiLockGuard;
use crate::config::options::check_wait;
use crate::connection::RetryDelay;
use crate::engine::acquire::Wait;
use crate::engine::claim::Claim;
use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use crate::runtime::gather::gather;
use crate::runtime::sync::time;
use std::time::Duration;

/// The bounds of the random pause after a failed round. The pause lets others take the released locks, and separates clients that
/// collided.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// At least one lock. Each mutex among them has an owner of its own, and the others have one owner in common.
#[derive(Clone, Debug)]
pub(crate) struct Members(Vec<Lock>);

impl Members {
    /// Sorts the locks by server and name, the order that all clients share that use the same names for the servers. Refuses two
    /// locks that are the same according to `same`.
    pub(crate) fn new(locks: impl IntoIterator<Item = Lock>, same: fn(&Lock, &Lock) -> bool) -> Result<Self> {
        // The members of a composite are held until it ends, so none is passed on ahead of the record.
        let mut locks: Vec<_> = locks.into_iter().map(|lock| lock.with_pipelined_hand_off(false)).collect();
        if locks.is_empty() {
            return Err(Error::misuse("a multi lock or red lock needs at least one lock"));
        }
        if locks.iter().any(Lock::is_kept) {
            return Err(Error::misuse(
                "a lock with `with_min_hold` cannot be part of a multi lock or red lock, which releases locks that it cannot use: \
                 remove the minimum time",
            ));
        }
        let mut owned = locks.iter().filter(|lock| !lock.is_mutex());
        if let Some(first) = owned.next()
            && !owned.all(|lock| lock.has_same_owner_as(first))
        {
            return Err(Error::misuse(
                "the locks have different owners: create them without an owner, and set one with `with_owner` on the multi \
                 lock or red lock",
            ));
        }
        for (at, lock) in locks.iter().enumerate() {
            let record = lock.kind()?.record();
            if locks[..at].iter().any(|other| same(lock, other)) {
                let node = lock.session().connection.node();
                return Err(Error::misuse(format!(
                    "duplicate lock `{}` on {node}: name each lock once, and in a red lock each server once",
                    record.escape_debug()
                )));
            }
        }
        locks.sort_by_cached_key(position);
        Ok(Self(locks))
    }

    pub(crate) fn map(&self, change: impl FnMut(&Lock) -> Lock) -> Self {
        Self(self.0.iter().map(change).collect())
    }

    pub(crate) fn with_lease(&self, lease: Duration) -> Self {
        self.map(|lock| lock.with_lease(lease))
    }

    pub(crate) fn with_owner(&self, owner: &Owner) -> Self {
        self.map(|lock| lock.with_owner(owner))
    }

    pub(crate) fn locks(&self) -> &[Lock] {
        &self.0
    }

    /// Begins one acquire of all locks. It is pending until it ends, even while it has none of them in hand.
    pub(crate) fn claims(&self) -> Result<Vec<Claim>> {
        self.0.iter().map(Lock::claim).collect()
    }

    /// Returns the shortest lease of all locks.
    pub(crate) fn lease_duration(&self) -> Duration {
        self.0.iter().map(Lock::lease_duration).min().unwrap_or_default()
    }

    /// Returns how long all locks are held at most: the shortest fixed lease or maximum time.
    pub(crate) fn longest_hold(&self) -> Option<Duration> {
        self.0.iter().filter_map(Lock::longest_hold).min()
    }

    /// Returns how long to wait for the reply to a single request.
    pub(crate) fn response_timeout(&self) -> Duration {
        let timeout = |lock: &Lock| lock.session().options.response_timeout;
        self.0.iter().map(timeout).max().unwrap_or_default()
    }
}

fn position(lock: &Lock) -> (String, String) {
    let record = lock.kind().map(|kind| kind.record().to_string()).unwrap_or_default();
    (lock.session().connection.node().to_owned(), record)
}

/// The outcome of one round.
pub(crate) enum Outcome {
    Taken(MultiLockGuard),
    /// `None` if the locks were busy, otherwise the error that prevented the round. Everything acquired has been released.
    Missed(Option<Error>),
}

/// A way to acquire enough of several locks.
pub(crate) trait Round: Send {
    /// Makes one round, for at most `left`. With `once`, makes only one attempt for each lock.
    fn take(&mut self, once: bool, left: Option<Duration>) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Makes rounds until one succeeds or the time is over. Returns `None` if the last complete round found the locks busy.
///
/// Cancel safe if each round is.
async fn acquire(mut round: impl Round, wait: Wait) -> Result<Option<MultiLockGuard>> {
    let started = Moment::now();
    let (once, limit) = wait.once_and_limit();
    let mut pause = RetryDelay::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut previous = None;
    loop {
        let left = || limit.map(|limit| limit.saturating_sub(Moment::now().since(started)));
        let why = match round.take(once, left()).await {
            Ok(Outcome::Taken(guard)) => return Ok(Some(guard)),
            Ok(Outcome::Missed(why)) => why,
            Err(error @ Error::TimedOut { .. }) => Some(error),
            Err(error) => return Err(error),
        };
        // A round that the end of the time cut short knows less than the previous one.
        let cut_short =
            left().is_some_and(|left| left.is_zero()) && matches!(why, Some(Error::TimedOut { .. }));
        let why = previous.take().filter(|_| cut_short).unwrap_or(why);
        let over = once
            || match left() {
                Some(left) => time::timeout(left, pause.wait()).await.is_err(),
                None => {
                    pause.wait().await;
                    false
                }
            };
        if over {
            return why.map_or(Ok(None), Err);
        }
        previous = Some(why);
    }
}

/// Makes rounds until one succeeds.
pub(crate) async fn acquire_unlimited(round: impl Round) -> Result<MultiLockGuard> {
    match acquire(round, Wait::Forever).await? {
        Some(guard) => Ok(guard),
        None => unreachable!("a wait without a limit never ends"),
    }
}

/// Makes rounds within the `wait` of a public call.
pub(crate) async fn acquire_within(
    round: impl Round,
    wait: Duration,
    once: Duration,
) -> Result<Option<MultiLockGuard>> {
    check_wait(wait)?;
    acquire(round, if wait.is_zero() { Wait::Once(once) } else { Wait::For(wait) }).await
}

/// Releases the locks, and waits for that for at most `limit`. The releases continue in the background.
pub(crate) async fn release_all(guards: impl IntoIterator<Item = LockGuard>, limit: Duration) {
    let _ = time::timeout(limit, gather(guards.into_iter().map(LockGuard::unlock), |_| false)).await;
}
