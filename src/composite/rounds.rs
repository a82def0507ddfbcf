//! What a multi lock and a red lock have in common: several locks of one owner, and rounds that try to take what is
//! needed of them until one succeeds or the time is over.

use crate::composite::guard::MultiLockGuard;
use crate::config::options::check_wait;
use crate::connection::Backoff;
use crate::engine::acquire::Wait;
use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::lock::{Claim, Lock};
use crate::owner::Owner;
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

/// The bounds of the random pause after a round that was in vain: it lets others have what was given back, and keeps
/// those who got in each other's way from doing so again.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// At least one lock: the mutexes among them for an owner each, the others for one.
#[derive(Clone, Debug)]
pub(crate) struct Members(Vec<Lock>);

impl Members {
    /// In the order that all clients have in common who call the servers by the same names. No two locks may be the same to
    /// `same`.
    pub(crate) fn new(locks: impl IntoIterator<Item = Lock>, same: fn(&Lock, &Lock) -> bool) -> Result<Self> {
        // A hold of several is for those who wait for its end.
        let mut locks: Vec<_> = locks.into_iter().map(|lock| lock.with_pipelined_hand_off(false)).collect();
        if locks.is_empty() {
            return Err(Error::misuse("a lock of several locks needs at least one"));
        }
        let mut owned = locks.iter().filter(|lock| !lock.is_mutex());
        if let Some(first) = owned.next()
            && !owned.all(|lock| lock.has_owner_of(first))
        {
            return Err(Error::misuse(
                "the locks have different owners: give the lock that is made of them one by `with_owner`",
            ));
        }
        for (at, lock) in locks.iter().enumerate() {
            let record = lock.kind()?.record();
            if locks[..at].iter().any(|other| same(lock, other)) {
                let node = lock.session().connection.node();
                return Err(Error::misuse(format!(
                    "`{}` at {node} has no place of its own among the locks",
                    record.escape_debug()
                )));
            }
        }
        locks.sort_by_cached_key(place);
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

    /// One acquire of all begins. It is under way until it is over, also while it has none of them in hand.
    pub(crate) fn claims(&self) -> Result<Vec<Claim>> {
        self.0.iter().map(Lock::claim).collect()
    }

    /// The shortest lease of all.
    pub(crate) fn length(&self) -> Duration {
        self.0.iter().map(Lock::length).min().unwrap_or_default()
    }

    /// How long an answer to a single question is waited for.
    pub(crate) fn response_timeout(&self) -> Duration {
        let timeout = |lock: &Lock| lock.session().options.response_timeout;
        self.0.iter().map(timeout).max().unwrap_or_default()
    }
}

fn place(lock: &Lock) -> (String, String) {
    let record = lock.kind().map(|kind| kind.record().to_string()).unwrap_or_default();
    (lock.session().connection.node().to_owned(), record)
}

/// What came of one round.
pub(crate) enum Outcome {
    Taken(MultiLockGuard),
    /// Busy, or why not. What was taken has been given back.
    Missed(Option<Error>),
}

/// A way to take what is needed of several locks.
pub(crate) trait Round: Send {
    /// Tries, for `left` at most. Only one look at each if `once`.
    fn take(&mut self, once: bool, left: Option<Duration>) -> impl Future<Output = Result<Outcome>> + Send;
}

/// Makes rounds until one succeeds or the time is over. `None` where the last one that had time for it found the locks busy.
///
/// Cancel safe if each round is.
pub(crate) async fn acquire(mut round: impl Round, wait: Wait) -> Result<Option<MultiLockGuard>> {
    let started = Moment::now();
    let (once, limit) = match wait {
        Wait::Once(limit) => (true, Some(limit)),
        Wait::For(limit) => (false, Some(limit)),
        Wait::Forever => (false, None),
    };
    let mut pause = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut before = None;
    loop {
        let left = || limit.map(|limit| limit.saturating_sub(Moment::now().since(started)));
        let why = match round.take(once, left()).await {
            Ok(Outcome::Taken(guard)) => return Ok(Some(guard)),
            Ok(Outcome::Missed(why)) => why,
            Err(error @ Error::TimedOut { .. }) => Some(error),
            Err(error) => return Err(error),
        };
        // A round that the end of the time cut short heard less than the one before.
        let is_cut = left().is_some_and(|left| left.is_zero()) && matches!(why, Some(Error::TimedOut { .. }));
        let why = before.take().filter(|_| is_cut).unwrap_or(why);
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
        before = Some(why);
    }
}

/// The same for a public call's `wait`.
pub(crate) async fn acquire_within(
    round: impl Round,
    wait: Duration,
    once: Duration,
) -> Result<Option<MultiLockGuard>> {
    check_wait(wait)?;
    acquire(round, if wait.is_zero() { Wait::Once(once) } else { Wait::For(wait) }).await
}

/// Gives back, and waits for that no longer than `limit`: it goes on in the background.
pub(crate) async fn give_back(guards: impl IntoIterator<Item = LockGuard>, limit: Duration) {
    let _ = time::timeout(limit, gather(guards.into_iter().map(LockGuard::unlock), |_| false)).await;
}

/// Runs all `futures` at once, in this task, until they are done or what is done is `enough`. The others are dropped.
pub(crate) async fn gather<F: Future>(
    futures: impl IntoIterator<Item = F>,
    enough: impl Fn(&[Option<F::Output>]) -> bool,
) -> Vec<Option<F::Output>> {
    let mut running: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<_> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (running, done) in running.iter_mut().zip(&mut done) {
            if let Some(future) = running
                && let Poll::Ready(output) = Pin::new(future).poll(cx)
            {
                (*running, *done) = (None, Some(output));
            }
        }
        if enough(&done) || running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done
}
