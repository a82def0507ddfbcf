//! One hold of one owner on one key, and what is known of it.
//!
//! Invariants:
//! 1. Its deadline is the time at which its last confirmed request was sent, plus the lease: never later than the
//!    server's own, whatever the network did. Every look at the state compares it with the clock first, so that a
//!    paused process learns the truth before it acts.
//! 2. A hold goes Held <-> Suspect -> Lost or Released, and never comes back from those two.

use crate::error::LossReason;
use crate::kinds::kind::LockKind;
use crate::lease::schedule::{Scheduled, TimerSlot};
use crate::owner::OwnerId;
use crate::runtime::clock::Moment;
use crate::runtime::sync::{Mutex, MutexGuard, watch};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// What is known of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldState {
    /// The lock is held: confirmed, and its lease has not ended.
    Held,
    /// The lock was held at the last confirmation and its lease has not ended, but the connection dropped or a
    /// renewal failed since.
    Suspect,
    /// The lock is no longer held, or cannot be known to be. Final.
    Lost(LossReason),
    /// The lock was given back. Final.
    Released,
}

impl HoldState {
    /// True for [`HoldState::Held`] and [`HoldState::Suspect`].
    pub fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }
}

/// Who is told that a hold is no longer certain.
pub(crate) trait Observer: Send + Sync {
    /// A hold is about to be seen as lost: whoever sees it may act on it at once. Must neither block nor look at the
    /// hold.
    fn losing(&self);
    /// The hold left [`HoldState::Held`] without being released.
    fn doubted(&self, hold: &Arc<Hold>);
}

/// One generation of one hold: never used again for another.
pub(crate) struct Hold {
    /// Of the process: no two holds share it.
    pub generation: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: OwnerId,
    /// The owner as the record has it.
    pub text: Arc<str>,
    /// How long its own request makes the record live.
    pub lease: Duration,
    /// Its number among all holds of the lock, where those are fenced.
    pub token: Option<u64>,
    /// Where the watchdog has it.
    place: TimerSlot,
    status: Mutex<Status>,
    /// Made only for those who want to follow the state.
    followers: OnceLock<watch::Sender<HoldState>>,
    observer: Weak<dyn Observer>,
}

/// A hold that was just confirmed.
pub(crate) struct Begun {
    pub kind: Arc<dyn LockKind>,
    pub owner: OwnerId,
    pub text: Arc<str>,
    pub life: u64,
    pub sent: Moment,
    pub lease: Duration,
    pub token: Option<u64>,
}

/// What the watchdog goes by.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub suspect: bool,
    pub deadline: Moment,
    /// When the last confirmed request was sent, and whether that was another than the hold's first.
    pub confirmed: Moment,
    pub again: bool,
    /// The watchdog renews it.
    pub renewed: bool,
    /// The record is known to name it.
    pub settled: bool,
    /// The shortest lease that others give the record.
    pub shortest: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Status {
    state: HoldState,
    deadline: Moment,
    /// When the last confirmed request was sent, and whether that was another than the hold's first.
    confirmed: Moment,
    again: bool,
    /// The levels that the watchdog renews for.
    renewing: u32,
    /// Renewals that were sent and not answered: a dead connection may deliver one at any time.
    unanswered: u32,
    /// Its request is confirmed: the record names it.
    settled: bool,
    /// The life of the server's data in which it was last confirmed.
    life: u64,
    /// By how much the deadline is before the end of the lease.
    margin: Duration,
    /// Why no renewal was confirmed of late: the reason of a loss by the deadline.
    unrenewed: LossReason,
    /// The shortest lease that others gave the record, and when one was last found.
    shortest: Option<(Duration, Moment)>,
}

/// No shorter lease of others is reckoned with: that bounds how often a hold is renewed.
const SHORTEST: Duration = Duration::from_secs(1);
/// A shorter lease counts for so many times its length after it was last found. Whoever keeps a record up with it does so
/// several times within that.
const REMEMBERED: u32 = 4;

impl Hold {
    pub(crate) fn new(begun: Begun, observer: Weak<dyn Observer>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Begun { kind, owner, text, life, sent, lease, token } = begun;
        Arc::new(Self {
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
            owner,
            text,
            lease,
            token,
            place: TimerSlot::default(),
            status: Mutex::new(Status {
                state: HoldState::Held,
                deadline: sent + lease,
                confirmed: sent,
                again: false,
                renewing: 0,
                unanswered: 0,
                settled: true,
                life,
                margin: Duration::ZERO,
                unrenewed: LossReason::Expired,
                shortest: None,
            }),
            followers: OnceLock::new(),
            observer,
        })
    }

    /// A hold that begins where `before` has ended, by `deadline` at the latest; its record follows if it is `ahead`.
    pub(crate) fn follows(
        before: &Self,
        owner: OwnerId,
        text: Arc<str>,
        now: Moment,
        lease: Duration,
        deadline: Moment,
        ahead: bool,
    ) -> Arc<Self> {
        let (kind, life) = (before.kind.clone(), before.life());
        let begun = Begun { kind, owner, text, life, sent: now, lease, token: None };
        let hold = Self::new(begun, before.observer.clone());
        let mut status = hold.lock();
        status.deadline = deadline;
        status.settled = !ahead;
        drop(status);
        hold
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        self.kind.record()
    }

    /// The state by now.
    pub(crate) fn state(self: &Arc<Self>) -> HoldState {
        self.state_at(Moment::now())
    }

    /// The same for one who has just looked at the clock.
    pub(crate) fn state_at(self: &Arc<Self>, now: Moment) -> HoldState {
        self.change(now, |_| {})
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.lock().deadline
    }

    /// The life of the server's data in which it was last confirmed: another than at first if its record went to another server
    /// since.
    pub(crate) fn life(&self) -> u64 {
        self.lock().life
    }

    /// Ends the hold if it is certain still. Tells no observer, so that a lock of theirs may be held.
    pub(crate) fn end_before(self: &Arc<Self>, now: Moment) -> bool {
        let mut status = self.lock();
        let ends = status.state == HoldState::Held && now < status.deadline;
        if ends {
            status.state = HoldState::Released;
        }
        drop(status);
        if ends && let Some(followers) = self.followers.get() {
            self.tell(followers);
        }
        ends
    }

    /// `None` once it is over, and that is known.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let status = self.lock();
        status.state.is_live().then_some(Standing {
            suspect: status.state == HoldState::Suspect,
            deadline: status.deadline,
            confirmed: status.confirmed,
            again: status.again,
            renewed: status.renewing > 0,
            settled: status.settled,
            shortest: status.shortest.map(|(shortest, _)| shortest),
        })
    }

    /// A request that made the record live for `lease` found that it would have lived for `left`. In the worst case somebody
    /// with so short a lease had just kept it up, and does so again after us.
    ///
    /// Holders with one lease leave each other more than half of it: they renew at a third.
    pub(crate) fn found_left(&self, left: Duration, lease: Duration) {
        let mut status = self.lock();
        let now = Moment::now();
        if left < lease / 2 {
            let left = left.max(SHORTEST);
            let shortest = status.shortest.map_or(left, |(shortest, _)| shortest.min(left));
            status.shortest = Some((shortest, now));
        } else if status.shortest.is_some_and(|(shortest, found)| now.since(found) > shortest * REMEMBERED) {
            status.shortest = None;
        }
    }

    /// Whether it has ended, and that is known.
    pub(crate) fn is_over(&self) -> bool {
        !self.lock().state.is_live()
    }

    pub(crate) fn is_renewed(&self) -> bool {
        self.lock().renewing > 0
    }

    /// A level begins that the watchdog renews for.
    pub(crate) fn begin_renewal(&self) {
        self.lock().renewing += 1;
    }

    /// A level ends that the watchdog renewed for. True if it renews for others still.
    pub(crate) fn end_renewal(&self) -> bool {
        let mut status = self.lock();
        status.renewing = status.renewing.saturating_sub(1);
        status.renewing > 0
    }

    pub(crate) fn renewal_sent(&self) {
        self.lock().unanswered += 1;
    }

    pub(crate) fn renewal_answered(&self) {
        self.lock().unanswered -= 1;
    }

    /// Whether a renewal may still come to a later record with this hold's text.
    pub(crate) fn is_haunted(&self) -> bool {
        self.lock().unanswered > 0
    }

    /// The server confirmed at some time after `sent`, in that life of its data, that the record lives for `lease` from then on.
    pub(crate) fn confirm(self: &Arc<Self>, sent: Moment, life: u64, lease: Duration) -> HoldState {
        self.change(Moment::now(), |status| {
            status.life = life;
            status.state = HoldState::Held;
            status.settled = true;
            status.unrenewed = LossReason::Expired;
            (status.confirmed, status.again) = (status.confirmed.max(sent), true);
            status.deadline = status.deadline.max(sent + lease - status.margin);
        })
    }

    /// From now on it ends by `margin` before its lease does.
    pub(crate) fn end_early(&self, margin: Duration) {
        let mut status = self.lock();
        let more = margin.saturating_sub(status.margin);
        status.margin += more;
        status.deadline = status.deadline - more;
    }

    /// It is no longer certain that the record is there. `unrenewed` will have been the reason if nothing better is
    /// heard before the deadline.
    pub(crate) fn doubt(self: &Arc<Self>, unrenewed: LossReason) -> HoldState {
        self.change(Moment::now(), |status| {
            status.state = HoldState::Suspect;
            status.unrenewed = unrenewed;
        })
    }

    /// Why it is lost, if its record is gone in that life of the server's data.
    pub(crate) fn gone_in(&self, life: u64) -> LossReason {
        if life == self.life() { LossReason::Gone } else { LossReason::DataLost }
    }

    pub(crate) fn lose(self: &Arc<Self>, reason: LossReason) -> HoldState {
        self.change(Moment::now(), |status| status.state = HoldState::Lost(reason))
    }

    /// Gives the hold back: nobody renews it from now on. Tells what it was.
    pub(crate) fn release(self: &Arc<Self>) -> HoldState {
        let mut before = None;
        let after = self.change(Moment::now(), |status| {
            before = Some(std::mem::replace(&mut status.state, HoldState::Released))
        });
        before.unwrap_or(after)
    }

    /// The states from now on.
    pub(crate) fn follow(self: &Arc<Self>) -> watch::Receiver<HoldState> {
        let followers = self.followers.get_or_init(|| watch::Sender::new(HoldState::Held));
        self.tell(followers);
        followers.subscribe()
    }

    /// Applies `change` if the hold is still live, and tells those whom it concerns.
    fn change(self: &Arc<Self>, now: Moment, change: impl FnOnce(&mut Status)) -> HoldState {
        let mut status = self.lock();
        let before = status.state;
        if !before.is_live() {
            return before;
        }
        if now >= status.deadline {
            // A fixed lease ends as it was meant to, server or not.
            let reason = if status.renewing > 0 { status.unrenewed } else { LossReason::Expired };
            status.state = HoldState::Lost(reason);
        } else {
            change(&mut status);
        }
        let after = status.state;
        let observer = (after != before).then(|| self.observer.upgrade()).flatten();
        if let (HoldState::Lost(_), Some(observer)) = (after, &observer) {
            observer.losing();
        }
        drop(status);
        if after != before {
            if let Some(followers) = self.followers.get() {
                self.tell(followers);
            }
            if let (HoldState::Suspect | HoldState::Lost(_), Some(observer)) = (after, observer) {
                observer.doubted(self);
            }
        }
        after
    }

    /// Reads the state anew, so that the last one told is the last one reached.
    fn tell(&self, followers: &watch::Sender<HoldState>) {
        followers.send_if_modified(|told| {
            let state = self.lock().state;
            std::mem::replace(told, state) != state
        });
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduled for Hold {
    fn place(&self) -> &TimerSlot {
        &self.place
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = *self.lock();
        f.debug_struct("Hold")
            .field("lock", self.record())
            .field("owner", &self.text)
            .field("generation", &self.generation)
            .field("state", &status.state)
            .field("left", &status.deadline.remaining())
            .finish()
    }
}
