//! What the holder of several locks has in hand: [`MultiLockGuard`], which gives them back, and [`MultiHolding`], which
//! tells how they stand together.
//!
//! Invariants:
//! 1. So many holds as are needed are live, or the whole is lost. A hold that is lost never comes back, so the number of
//!    live ones only falls, and neither does the whole.
//! 2. What is told as final stays, whatever becomes of the holds: the guard's end, or the loss, whichever came first.

use crate::composite::rounds::gather;
use crate::error::{Error, LossReason, Result};
use crate::guard::{Holding, LockGuard, until_look};
use crate::lease::hold::HoldState;
use crate::owner::entered;
use crate::runtime::clock::Moment;
use crate::runtime::sync::{Mutex, select, task};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};

/// All that a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock) has taken. Unlock it to learn that the releases
/// took effect, or drop it: then they are made in the background.
///
/// It derefs to [`MultiHolding`], which tells how it stands. Once that is [`HoldState::Lost`], what is held still is given
/// back in the background, because it can't become whole again.
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiLockGuard(MultiHolding);

impl MultiLockGuard {
    /// Of `guards`, of which so many are `needed` that count. If they are not held, or not for more than `least`, they are to be
    /// given back.
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
        task::spawn(holding.clone().give_back_the_rest());
        Ok(Self(holding))
    }

    /// Releases all locks at once. Ends when as many as are needed have confirmed that they were held to the end: all of a
    /// multi lock, the majority of a red lock. The others go on in the background.
    ///
    /// # Errors
    /// - [`Error::Lost`] or [`Error::NotHeld`] if too many were lost: what the lock guarded was not protected to the end. It is
    ///   the error of one of those.
    /// - Else the error of a lock whose release was not confirmed, as for [`LockGuard::unlock`].
    ///
    /// Whatever the outcome, all locks are released.
    ///
    /// # Cancel safety
    /// Dropping the future takes no release back: they go on in the background.
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
        // Of several the one that says what the whole was told before, if it was: a part may find out only now.
        let told = ended != HoldState::Released;
        let fitting = errors.into_iter().filter(|error| error.is_lost() == is_lost);
        let found = fitting.min_by_key(|error| matches!(error, Error::NotHeld { .. }) != told);
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

/// One of several locks that were taken together.
pub(crate) struct Member {
    pub guard: LockGuard,
    /// It is one of those of which enough are needed.
    pub counts: bool,
}

/// How several holds stand together. Cheap to clone, holds nothing: they end with their [`MultiLockGuard`].
///
/// As for [`Holding`], every look compares the deadlines with the clock first.
#[derive(Clone)]
pub struct MultiHolding(Arc<Shared>);

struct Shared {
    /// Those that count.
    members: Vec<Holding>,
    needed: usize,
    /// What was told last of all.
    ended: watch::Sender<Option<HoldState>>,
    /// What is to be given back.
    guards: Mutex<Vec<Member>>,
}

impl MultiHolding {
    /// What is known of the whole now: [`HoldState::Held`] if enough of the holds are held (all of a multi lock, a majority
    /// of a red lock), [`HoldState::Suspect`] if enough are only with those that are in doubt, else [`HoldState::Lost`]
    /// with the reason of one that is lost.
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

    /// The state now and every later one, to the last: [`HoldState::Lost`] or [`HoldState::Released`]. States that follow each
    /// other faster than they are read are skipped. Told by the clients' runtimes; [`lost`](Self::lost) works without them.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        States { changes: self.changes(), of: self.clone(), told: None }
    }

    /// Ends when the whole is lost, with [`HoldState::Lost`], or when the guard has been unlocked or dropped.
    ///
    /// # Cancel safety
    /// It only watches.
    pub async fn lost(&self) -> HoldState {
        let mut changes = self.changes();
        loop {
            let state = self.state();
            if !state.is_live() {
                return state;
            }
            select! {
                _ = changes.next() => {}
                () = until_look(self.end_of_lease()) => {}
            }
        }
    }

    /// When the whole ends unless it is renewed: for a multi lock the earliest deadline of its locks, for a red lock the
    /// time until which a majority lasts. Moves on with each renewal.
    pub fn deadline(&self) -> Instant {
        self.end_of_lease().to_instant()
    }

    /// The time left until [`deadline`](Self::deadline); zero once the whole has ended. It falls, and rises with each renewal.
    pub fn validity(&self) -> Duration {
        if self.state().is_live() { self.end_of_lease().remaining() } else { Duration::ZERO }
    }

    /// The holds that count, in the order in which a multi lock takes them: by server and name. For a red lock those
    /// that its majority is made of, which may be fewer than its locks.
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

    /// Of one that is lost, if any is.
    fn name(&self) -> &str {
        let lost = |member: &&Holding| matches!(member.state(), HoldState::Lost(_));
        let members = &self.0.members;
        members.iter().find(lost).or(members.first()).map(Holding::name).unwrap_or_default()
    }

    /// Ends it. The first end is the one that counts, and is returned.
    fn end(&self, state: HoldState) -> HoldState {
        let mut first = state;
        self.0.ended.send_if_modified(|ended| {
            let ends = ended.is_none();
            first = *ended.get_or_insert(state);
            ends
        });
        first
    }

    /// The guard is given up: a loss that nobody has noticed yet comes first.
    fn release(&self) -> HoldState {
        self.state();
        self.end(HoldState::Released)
    }

    fn take(&self, which: impl FnMut(&mut Member) -> bool) -> Vec<Member> {
        let mut guards = self.0.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.extract_if(.., which).collect()
    }

    /// Once it is lost, nobody has a use for what is still held. (Those that are lost tell who unlocks.)
    async fn give_back_the_rest(self) {
        if let HoldState::Lost(_) = self.lost().await {
            drop(self.take(|member| member.guard.state().is_live()));
        }
    }

    fn changes(&self) -> Changes {
        let members = self.0.members.iter().map(|Holding(member)| WatchStream::new(member.follow()));
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

/// Tells that something has changed, and not what.
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

/// Tells no state twice in a row, and ends with the first that is final.
struct States {
    changes: Changes,
    of: MultiHolding,
    told: Option<HoldState>,
}

impl Stream for States {
    type Item = HoldState;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<HoldState>> {
        while self.told.is_none_or(HoldState::is_live) {
            let state = self.of.state();
            if self.told.replace(state) != Some(state) {
                return Poll::Ready(Some(state));
            }
            if Pin::new(&mut self.changes).poll_next(cx).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(None)
    }
}
