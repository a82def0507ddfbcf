//! [`HoldStatus`], which reports the state of a hold without owning the hold.
//!
//! Invariants of a composite hold:
//! 1. Either enough of its holds are live, or the composite is lost. A lost hold never comes back, so the number of live holds
//!    only falls, and a lost composite never comes back either.
//! 2. A final state is permanent, whatever happens to the holds: the guard's end or the loss, whichever came first.

use crate::error::LossReason;
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::owner::entered;
use crate::runtime::clock::Moment;
use crate::runtime::sync::{select, time};
use futures_core::Stream;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::WatchStream;

/// The state of a hold: of a lock, of permits with a lease, or of a multi lock or red lock.
///
/// A status is cheap to clone and keeps nothing alive: the hold ends with its guards. A guard's `status()` returns its status, with which
/// other tasks can watch the hold.
///
/// Every query first compares the lease's deadline with the clock. A process that was paused past its lease therefore sees
/// [`HoldState::Lost`]. On Linux the clock is the boot-time clock, which continues while the host sleeps. A paused virtual machine whose
/// clock stops cannot detect its pause; if that matters, let the resource check a fencing token.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let guard = client.mutex("orders:42").lock().await?;
/// let watched = guard.status();
/// tokio::spawn(async move {
///     println!("{} ended: {:?}", watched.name(), watched.lost().await);
/// });
/// guard.unlock().await
/// # }
/// ```
#[derive(Clone)]
pub struct HoldStatus(Observed);

#[derive(Clone)]
enum Observed {
    One(Arc<Hold>),
    Several(Arc<Several>),
}

impl HoldStatus {
    pub(crate) fn of(hold: &Arc<Hold>) -> Self {
        Self(Observed::One(hold.clone()))
    }

    /// Returns a copy, as the guards' method of this name does.
    pub(crate) fn status(&self) -> Self {
        self.clone()
    }

    /// Returns the current state of the hold.
    ///
    /// A multi lock or red lock has several holds. It is:
    /// - [`HoldState::Held`] if enough of the holds are held: all of a multi lock, a majority of a red lock;
    /// - [`HoldState::Suspect`] if enough of the holds are live, but some of them are in doubt;
    /// - otherwise [`HoldState::Lost`], with the reason of a lost hold.
    pub fn state(&self) -> HoldState {
        self.state_at(Moment::now())
    }

    fn state_at(&self, now: Moment) -> HoldState {
        match &self.0 {
            Observed::One(hold) => hold.state_at(now),
            Observed::Several(several) => several.state_at(now),
        }
    }

    /// Returns a stream of states: the current one, then the latest one after each change, up to [`HoldState::Lost`] or
    /// [`HoldState::Released`].
    ///
    /// The client's runtime drives the stream; [`lost`](Self::lost) works without that runtime.
    pub fn states(&self) -> impl Stream<Item = HoldState> + Send + Unpin + use<> {
        States { changes: self.changes(), of: self.clone(), reported: None }
    }

    /// Waits until the hold ends, and returns [`HoldState::Lost`] or [`HoldState::Released`].
    ///
    /// The future borrows nothing, so it can be spawned. It works on any tokio runtime. If the client's own runtime has ended, the lease's
    /// deadline decides.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only observes.
    pub fn lost(&self) -> impl Future<Output = HoldState> + Send + use<> {
        let status = self.clone();
        async move {
            let mut changes = status.changes();
            loop {
                let state = status.state();
                if !state.is_live() {
                    return state;
                }
                select! {
                    _ = changes.next() => {}
                    () = until_next_check(status.end_of_lease()) => {}
                }
            }
        }
    }

    /// Waits until the hold is about to end although it is not released, and returns how long it still lasts at most.
    ///
    /// The future completes one lease before the limit that [`Lock::with_max_hold`](crate::Lock::with_max_hold) sets. It completes at once
    /// for a fixed lease, and for a limit that is shorter than a lease. If there is no limit, or the hold ends earlier, it returns zero when
    /// the hold has ended. The future borrows nothing.
    ///
    /// # Cancel safety
    /// Cancel safe: the call only observes.
    pub fn ending(&self) -> impl Future<Output = Duration> + Send + use<> {
        let status = self.clone();
        async move {
            let mut changes = status.changes();
            while status.state().is_live() {
                let warned = status.warned();
                if warned.passed() {
                    return status.end().remaining();
                }
                select! {
                    _ = changes.next() => {}
                    () = until_next_check(warned) => {}
                }
            }
            Duration::ZERO
        }
    }

    /// Returns the text that identifies the hold in the record. For most locks it is the owner id, `<client uuid>:<id>`. After an
    /// unanswered request or a lost hold, new owner ids end in `~<n>`. The owner ids of writers also end in `:write`. For a value lock the
    /// text is the token, and for permits their ids.
    ///
    /// For a multi lock or red lock, this is the text of the lock whose [`name`](Self::name) is reported.
    pub fn owner(&self) -> &str {
        self.hold().owner_in_record()
    }

    /// Returns the lock's name as stored in Redis, after the name mapper.
    ///
    /// For a multi lock or red lock, this is the name of a lost lock, if there is one, or else of the first lock.
    pub fn name(&self) -> &str {
        self.hold().record()
    }

    /// Returns the fencing token of the acquire, if the lock is [fenced](crate::Client::fenced_lock).
    ///
    /// Each token is greater than the tokens of all earlier holds. Send it to the resource with each write. The resource must refuse any
    /// token smaller than the largest one that it has seen.
    ///
    /// A multi lock or red lock has no token, but its [`members`](Self::members) may have one.
    pub fn token(&self) -> Option<u64> {
        match &self.0 {
            Observed::One(hold) => hold.token(),
            Observed::Several(_) => None,
        }
    }

    /// Returns when the lease ends unless it is renewed.
    ///
    /// This is the time at which the last confirmed request was sent, plus the lease. Each renewal moves it. For a multi lock it is the
    /// earliest deadline of its locks, for a red lock the time until which a majority lasts.
    pub fn deadline(&self) -> Instant {
        self.end_of_lease().to_instant()
    }

    /// Returns the time left until [`deadline`](Self::deadline), or zero once the hold has ended.
    ///
    /// The validity decreases with time, and increases with each renewal.
    pub fn validity(&self) -> Duration {
        if self.state().is_live() { self.end_of_lease().remaining() } else { Duration::ZERO }
    }

    /// Returns the holds of a multi lock or red lock that count towards the required number, in the order in which a multi lock acquires
    /// them: by server and name. For any other lock, returns this status alone.
    ///
    /// For a red lock these may be fewer than its locks.
    pub fn members(&self) -> &[Self] {
        match &self.0 {
            Observed::One(_) => std::slice::from_ref(self),
            Observed::Several(several) => &several.members,
        }
    }

    /// Returns [`deadline`](Self::deadline) by the client's own clock.
    pub(crate) fn end_of_lease(&self) -> Moment {
        match &self.0 {
            Observed::One(hold) => hold.deadline(),
            Observed::Several(several) => several.when_too_few(Self::end_of_lease),
        }
    }

    /// When the hold ends, if all its renewals succeed.
    fn end(&self) -> Moment {
        match &self.0 {
            Observed::One(hold) => hold.end(),
            Observed::Several(several) => several.when_too_few(Self::end),
        }
    }

    /// When the holder is warned of the [`end`](Self::end). Never, if there is no end.
    fn warned(&self) -> Moment {
        match &self.0 {
            Observed::One(hold) => match hold.end() {
                // A permit without a lease has an endless lease, which would cancel this out.
                Moment::FAR => Moment::FAR,
                end => end - hold.lease(),
            },
            Observed::Several(several) => several.when_too_few(Self::warned),
        }
    }

    /// The hold that stands for all of them.
    fn hold(&self) -> &Arc<Hold> {
        match &self.0 {
            Observed::One(hold) => hold,
            Observed::Several(several) => several.first().hold(),
        }
    }

    fn changes(&self) -> Changes {
        let mut changes = Changes { states: Vec::new(), ends: Vec::new() };
        self.add_to(&mut changes);
        changes
    }

    fn add_to(&self, changes: &mut Changes) {
        match &self.0 {
            Observed::One(hold) => changes.states.push(WatchStream::new(hold.watch_state())),
            Observed::Several(several) => {
                changes.ends.push(WatchStream::new(several.ended.subscribe()));
                several.members.iter().for_each(|member| member.add_to(changes));
            }
        }
    }
}

impl fmt::Debug for HoldStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Observed::One(hold) => f.debug_tuple("HoldStatus").field(hold).finish(),
            Observed::Several(several) => f
                .debug_struct("HoldStatus")
                .field("state", &self.state())
                .field("needed", &several.needed)
                .field("members", &several.members)
                .finish(),
        }
    }
}

/// The holds of a composite lock.
pub(crate) struct Several {
    /// The holds that count; at least one.
    members: Vec<HoldStatus>,
    needed: usize,
    /// The final state, once there is one.
    ended: watch::Sender<Option<HoldState>>,
}

impl Several {
    /// A composite that needs `needed` live holds among `members`.
    pub(crate) fn new(members: Vec<HoldStatus>, needed: usize) -> Arc<Self> {
        Arc::new(Self { members, needed, ended: watch::Sender::new(None) })
    }

    pub(crate) fn status(self: &Arc<Self>) -> HoldStatus {
        HoldStatus(Observed::Several(self.clone()))
    }

    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    /// Ends the composite as released, unless an unnoticed loss came first. Returns the final state.
    pub(crate) fn release(&self) -> HoldState {
        self.state_at(Moment::now());
        self.end(HoldState::Released)
    }

    fn state_at(&self, now: Moment) -> HoldState {
        if let Some(ended) = *self.ended.borrow() {
            return ended;
        }
        let (mut held, mut live, mut lost) = (0, 0, None);
        for member in &self.members {
            let state = member.state_at(now);
            held += usize::from(state == HoldState::Held);
            live += usize::from(state.is_live());
            lost = lost.or(Some(state).filter(|state| matches!(state, HoldState::Lost(_))));
        }
        if held >= self.needed {
            HoldState::Held
        } else if live >= self.needed {
            HoldState::Suspect
        } else {
            self.end(lost.unwrap_or(HoldState::Lost(LossReason::Expired)))
        }
    }

    /// When too few members are left, if each live one is left until `end`.
    fn when_too_few(&self, end: fn(&HoldStatus) -> Moment) -> Moment {
        let live = self.members.iter().filter(|member| member.state().is_live());
        let mut ends: Vec<_> = live.map(end).collect();
        ends.sort_unstable();
        let at = ends.len().checked_sub(self.needed);
        at.map_or_else(Moment::now, |at| ends[at])
    }

    /// A lost member, if there is one, or else the first.
    fn first(&self) -> &HoldStatus {
        let lost = |member: &&HoldStatus| matches!(member.state(), HoldState::Lost(_));
        self.members.iter().find(lost).unwrap_or(&self.members[0])
    }

    /// Sets the final state unless there is one, and returns the final state.
    fn end(&self, state: HoldState) -> HoldState {
        let mut first = state;
        self.ended.send_if_modified(|ended| {
            let ends = ended.is_none();
            first = *ended.get_or_insert(state);
            ends
        });
        first
    }
}

/// Gives a guard the questions that callers ask most. Each answers as the same question to the guard's status, which is in the field
/// that the second argument names.
macro_rules! status_methods {
    ($guard:ident, $field:ident) => {
        $crate::status::status_methods!(
            $guard,
            |guard| guard.$field,
            guard.$field.owner(),
            guard.$field.name()
        );
    };
    ($guard:ident, |$this:ident| $status:expr, $owner:expr, $name:expr) => {
        impl $guard {
            /// Returns the status of the hold, which reports its state without keeping it.
            pub fn status(&self) -> $crate::status::HoldStatus {
                let $this = self;
                $status.status()
            }

            /// Returns the current state of the hold. See [`HoldStatus::state`](crate::HoldStatus::state).
            pub fn state(&self) -> $crate::lease::status::HoldState {
                let $this = self;
                $status.state()
            }

            /// Waits until the hold ends, and returns the final state. See [`HoldStatus::lost`](crate::HoldStatus::lost).
            ///
            /// # Cancel safety
            /// Cancel safe: the call only observes.
            pub fn lost(&self) -> impl Future<Output = $crate::lease::status::HoldState> + Send + use<> {
                let $this = self;
                $status.lost()
            }

            /// Waits until the hold is about to end although it is not released. See [`HoldStatus::ending`](crate::HoldStatus::ending).
            ///
            /// # Cancel safety
            /// Cancel safe: the call only observes.
            pub fn ending(&self) -> impl Future<Output = std::time::Duration> + Send + use<> {
                let $this = self;
                $status.ending()
            }

            /// Returns when the lease ends unless it is renewed. See [`HoldStatus::deadline`](crate::HoldStatus::deadline).
            pub fn deadline(&self) -> std::time::Instant {
                let $this = self;
                $status.deadline()
            }

            /// Returns the text that identifies the hold in the record. See [`HoldStatus::owner`](crate::HoldStatus::owner).
            pub fn owner(&self) -> &str {
                let $this = self;
                $owner
            }

            /// Returns the lock's name as stored in Redis. See [`HoldStatus::name`](crate::HoldStatus::name).
            pub fn name(&self) -> &str {
                let $this = self;
                $name
            }

            /// Returns the fencing token of the acquire, if the lock is fenced. See [`HoldStatus::token`](crate::HoldStatus::token).
            pub fn token(&self) -> Option<u64> {
                let $this = self;
                $status.token()
            }

            /// Returns the time left until the deadline. See [`HoldStatus::validity`](crate::HoldStatus::validity).
            pub fn validity(&self) -> std::time::Duration {
                let $this = self;
                $status.validity()
            }
        }
    };
}
pub(crate) use status_methods;

/// Waits until it is time to compare `deadline` with the clock again.
async fn until_next_check(deadline: Moment) {
    if entered().is_err() {
        // There are no timers outside a tokio runtime, so only the client's own runtime can report the end.
        std::future::pending().await
    }
    // Timers stop while the host sleeps, so wait no longer than a second.
    time::sleep(deadline.remaining().min(Duration::from_secs(1))).await;
}

/// Reports that something has changed, but not what.
struct Changes {
    states: Vec<WatchStream<HoldState>>,
    ends: Vec<WatchStream<Option<HoldState>>>,
}

impl Stream for Changes {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut changed = false;
        for state in &mut self.states {
            changed |= Pin::new(state).poll_next(cx).is_ready();
        }
        for end in &mut self.ends {
            changed |= Pin::new(end).poll_next(cx).is_ready();
        }
        if changed { Poll::Ready(Some(())) } else { Poll::Pending }
    }
}

/// Returns no state twice in a row, and ends after the first final one.
struct States {
    changes: Changes,
    of: HoldStatus,
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
