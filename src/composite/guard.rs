//! [`MultiLockGuard`], which releases the locks of a composite lock, and [`MultiHolding`], which reports their common state.
//!
//! Invariants:
//! 1. Either enough of the holds are live, or the composite is lost. A lost hold never comes back, so the number of live holds
//!    only falls, and a lost composite never comes back either.
//! 2. A final state is permanent, whatever happens to the holds: the guard's end or the loss, whichever came first.

use crate::composite::gather::gather;
use crate::error::{Error, LossReason, Result};
use crate::guard::{Holding, LockGuard, until_next_check};
use crate::lease::hold::HoldState;
use crate::owner::entered;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::Mutex;
use crate::runtime::sync::{select, task};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// The locks that a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock) has acquired.
///
/// Call [`unlock`](Self::unlock) to confirm the release. A dropped guard releases its locks in the background.
///
/// A guard derefs to [`MultiHolding`], which reports the common state. Once that is [`HoldState::Lost`], the remaining locks are
/// released in the background, because the multi lock or red lock cannot recover.
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiLockGuard(MultiHolding);

impl MultiLockGuard {
    /// Creates the guard of a composite that needs `needed` live holds among the guards that count. If it is not held, or not for
    /// longer than `least`, returns the guards, which the caller must release.
    pub(crate) fn new(
        guards: Vec<Member>,
        needed: usize,
        least: Duration,
    ) -> Result<Self, impl Iterator<Item = LockGuard>> {
        let members =
            guards.iter().filter(|member| member.counts).map(|member| Holding::clone(&member.guard));
        let holding = MultiHolding(Arc::new(Shared {
            members: members.collect(),
            needed,
            ended: watch::Sender::new(None),
            guards: Mutex::new(guards),
        }));
        if holding.state() != HoldState::Held || holding.validity() <= least {
            return Err(holding.take(|_| true).into_iter().map(|member| member.guard));
        }
        task::spawn(holding.clone().release_the_rest());
        Ok(Self(holding))
    }

    /// Releases all locks at once.
    ///
    /// Returns when as many releases as needed have been confirmed: all of a multi lock, a majority of a red lock. The others continue
    /// in the background. All locks are released, whatever this call returns.
    ///
    /// # Errors
    /// - [`Error::Lost`] or [`Error::NotHeld`] if too many locks were lost: the error of one of them. Treat the work as unprotected.
    /// - Otherwise, the error of a lock whose release was not confirmed, as for [`LockGuard::unlock`].
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the releases, which continue in the background.
    pub async fn unlock(self) -> Result<()> {
        entered()?;
        let (needed, members) = (self.0.0.needed, self.members().len());
        let ended = self.0.release();
        let releases = self.0.take(|_| true).into_iter().map(|Member { guard, counts }| async move {
            let outcome = guard.unlock().await;
            counts.then_some(outcome)
        });
        let confirmed = |done: &[Option<Option<Result<()>>>]| {
            done.iter().filter(|outcome| matches!(outcome, Some(Some(Ok(()))))).count() >= needed
        };
        let done = gather(releases, confirmed).await;
        if ended == HoldState::Released && confirmed(&done) {
            return Ok(());
        }
        let errors: Vec<_> = done.into_iter().flatten().flatten().filter_map(Result::err).collect();
        let lost = errors.iter().filter(|error| error.is_lost()).count();
        let is_lost = ended != HoldState::Released || members - lost < needed;
        // A member may discover its loss only now. Prefer the error that agrees with the state reported before.
        let was_reported = ended != HoldState::Released;
        let candidates = errors.into_iter().filter(|error| error.is_lost() == is_lost);
        let found = candidates.min_by_key(|error| matches!(error, Error::NotHeld { .. }) != was_reported);
        Err(found.unwrap_or_else(|| Error::NotHeld { name: self.name().to_owned(), holder: None }))
    }

    /// Runs `body`, and cancels it when the hold is lost.
    pub(crate) async fn run<F, Fut, T>(self, body: F) -> Result<T>
    where
        F: FnOnce(MultiHolding) -> Fut,
        Fut: Future<Output = T>,
    {
        let holding = MultiHolding::clone(&self);
        let done = select! {
            biased;
            _ = holding.lost() => None,
            value = body(holding.clone()) => Some(value),
        };
        self.end_run(done).await
    }

    /// Releases the locks after a body ended with a value, or was cancelled.
    pub(crate) async fn end_run<T>(self, done: Option<T>) -> Result<T> {
        let holding = MultiHolding::clone(&self);
        let (state, released) = (holding.state(), self.unlock().await);
        match (done, state, released) {
            (Some(value), state, released) if state.is_live() => match released {
                Err(error) if error.is_lost() => Err(error),
                Err(error) => {
                    tracing::warn!(lock = holding.name(), %error, "released without confirmation");
                    Ok(value)
                }
                Ok(()) => Ok(value),
            },
            (_, state, released) => {
                let reason = if let HoldState::Lost(reason) = state { reason } else { LossReason::Expired };
                let holder = match released {
                    Err(Error::NotHeld { holder, .. } | Error::Lost { holder, .. }) => holder,
                    _ => None,
                };
                Err(Error::Lost { name: holding.name().to_owned(), reason, holder })
            }
        }
    }
}

impl Deref for MultiLockGuard {
    type Target = MultiHolding;
    fn deref(&self) -> &MultiHolding {
        &self.0
    }
}

impl Drop for MultiLockGuard {
    fn drop(&mut self) {
        self.0.release();
        drop(self.0.take(|_| true));
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLockGuard").field(&self.0).finish()
    }
}

/// One lock of a composite lock.
pub(crate) struct Member {
    pub guard: LockGuard,
    /// Whether the lock counts towards the number that is needed.
    pub counts: bool,
}

/// The common state of several holds. It is cheap to clone and keeps nothing alive: the holds end with their [`MultiLockGuard`].
///
/// As with [`Holding`], every query first compares the deadlines with the clock.
#[derive(Clone)]
pub struct MultiHolding(Arc<Shared>);

struct Shared {
    /// The holds that count.
    members: Vec<Holding>,
    needed: usize,
    /// The final state, once there is one.
    ended: watch::Sender<Option<HoldState>>,
    /// The guards that are still to be released.
    guards: Mutex<Vec<Member>>,
}

impl MultiHolding {
    /// Returns the current state of the multi lock or red lock.
    ///
    /// - [`HoldState::Held`] if enough of the holds are held: all of a multi lock, a majority of a red lock.
    /// - [`HoldState::Suspect`] if enough of the holds are live, but some of them are in doubt.
    /// - Otherwise [`HoldState::Lost`], with the reason of a lost hold.
    pub fn state(&self) -> HoldState {
        if let Some(ended) = *self.0.ended.borrow() {
            return ended;
        }
        let now = Moment::now();
        let (mut held, mut live, mut lost) = (0, 0, None);
        for Holding(member) in &self.0.members {
            let state = member.state_at(now);
            held += usize::from(state == HoldState::Held);
            live += usize::from(state.is_live());
            lost = lost.or(Some(state).filter(|state| matches!(state, HoldState::Lost(_))));
        }
        if held >= self.0.needed {
            HoldState::Held
        } else if live >= self.0.needed {
            HoldState::Suspect
        } else {
            self.end(lost.unwrap_or(HoldState::Lost(LossReason::Expired)))
        }
    }

    /// Returns a stream of states: the current one, then the latest one after each change, up to [`HoldState::Lost`] or
    /// [`HoldState::Released`].
    ///
    /// The clients' runtimes drive the stream; [`lost`](Self::lost) works without those runtimes.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        States { changes: self.changes(), of: self.clone(), reported: None }
    }

    /// Waits until the multi lock or red lock ends, and returns [`HoldState::Lost`] or [`HoldState::Released`].
    ///
    /// # Cancel safety
    /// Cancel safe: the call only observes.
    pub async fn lost(&self) -> HoldState {
        let mut changes = self.changes();
        loop {
            let state = self.state();
            if !state.is_live() {
                return state;
            }
            select! {
                _ = changes.next() => {}
                () = until_next_check(self.end_of_lease()) => {}
            }
        }
    }

    /// Returns when the multi lock or red lock ends unless it is renewed.
    ///
    /// For a multi lock this is the earliest deadline of its locks, for a red lock the time until which a majority lasts. Each renewal
    /// moves it.
    pub fn deadline(&self) -> Instant {
        self.end_of_lease().to_instant()
    }

    /// Returns the time left until [`deadline`](Self::deadline), or zero once the hold has ended.
    ///
    /// The validity decreases with time, and increases with each renewal.
    pub fn validity(&self) -> Duration {
        if self.state().is_live() { self.end_of_lease().remaining() } else { Duration::ZERO }
    }

    /// Returns the holds that count towards the required number, in the order in which a multi lock acquires them: by server and name.
    ///
    /// For a red lock these may be fewer than its locks.
    pub fn members(&self) -> &[Holding] {
        &self.0.members
    }

    fn end_of_lease(&self) -> Moment {
        let live = self.0.members.iter().filter(|Holding(member)| member.state().is_live());
        let mut deadlines: Vec<_> = live.map(|Holding(member)| member.deadline()).collect();
        deadlines.sort_unstable();
        let at = deadlines.len().checked_sub(self.0.needed);
        at.map_or_else(Moment::now, |at| deadlines[at])
    }

    /// Returns the name of a lost lock, if there is one, or else of the first lock.
    fn name(&self) -> &str {
        let lost = |member: &&Holding| matches!(member.state(), HoldState::Lost(_));
        let members = &self.0.members;
        members.iter().find(lost).or(members.first()).map(Holding::name).unwrap_or_default()
    }

    /// Sets the final state unless there is one, and returns the final state.
    fn end(&self, state: HoldState) -> HoldState {
        let mut first = state;
        self.0.ended.send_if_modified(|ended| {
            let ends = ended.is_none();
            first = *ended.get_or_insert(state);
            ends
        });
        first
    }

    /// Ends the composite as released, unless an unnoticed loss came first.
    fn release(&self) -> HoldState {
        self.state();
        self.end(HoldState::Released)
    }

    fn take(&self, which: impl FnMut(&mut Member) -> bool) -> Vec<Member> {
        let mut guards = self.0.guards.lock();
        guards.extract_if(.., which).collect()
    }

    /// Releases the live locks once the composite is lost. Keeps the lost ones, because `unlock` reports their errors.
    async fn release_the_rest(self) {
        if let HoldState::Lost(_) = self.lost().await {
            drop(self.take(|member| member.guard.state().is_live()));
        }
    }

    fn changes(&self) -> Changes {
        let members = self.0.members.iter().map(|Holding(member)| WatchStream::new(member.watch_state()));
        Changes { members: members.collect(), end: WatchStream::new(self.0.ended.subscribe()) }
    }
}

impl fmt::Debug for MultiHolding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiHolding")
            .field("state", &self.state())
            .field("needed", &self.0.needed)
            .field("members", &self.0.members)
            .finish()
    }
}

/// Reports that something has changed, but not what.
struct Changes {
    members: Vec<WatchStream<HoldState>>,
    end: WatchStream<Option<HoldState>>,
}

impl Stream for Changes {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut changed = Pin::new(&mut self.end).poll_next(cx).is_ready();
        for member in &mut self.members {
            changed |= Pin::new(member).poll_next(cx).is_ready();
        }
        if changed { Poll::Ready(Some(())) } else { Poll::Pending }
    }
}

/// Returns no state twice in a row, and ends after the first final one.
struct States {
    changes: Changes,
    of: MultiHolding,
    reported: Option<HoldState>,
}

impl Stream for States {
    type Item = HoldState;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<HoldState>> {
        while self.reported.is_none_or(HoldState::is_live) {
            let state = self.of.state();
            if self.reported.replace(state) != Some(state) {
                return Poll::Ready(Some(state));
            }
            if Pin::new(&mut self.changes).poll_next(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }
}
