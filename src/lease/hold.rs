//! The state and the deadline of one hold of one owner on one key.
//!
//! Invariants:
//! 1. The deadline is the send time of the last confirmed request plus the lease, so it is never later than the server's
//!    expiry. Every look at the state compares the deadline with the clock first, so a process that was paused sees the
//!    loss before it acts.
//! 2. The deadline is also never later than the end of the last level. So a level that the watchdog renews lengthens the hold only until
//!    that level is released.
//! 3. A hold changes between Held and Suspect, and ends as Lost or Released. It never leaves these two states.

use crate::error::{Error, LossReason};
use crate::kinds::kind::LockKind;
use crate::lease::schedule::{Scheduled, TimerSlot};
use crate::lease::status::{HoldState, Rare, Standing, Status};
use crate::lease::term::LevelTerm;
use crate::owner::LocalOwner;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::watch;
use crate::stats::{Counters, End};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Observes holds that are no longer certain.
pub(crate) trait Observer: Send + Sync {
    /// A hold is about to become [`HoldState::Lost`]. This is called before any other task can see the new state. The
    /// implementation must neither block nor look at the hold.
    fn losing(&self);
    /// The hold left [`HoldState::Held`] without being released.
    fn doubted(self: Arc<Self>, hold: &Arc<Hold>);
}

/// One hold. A later hold of the same owner is another `Hold`.
pub(crate) struct Hold {
    /// Unique in the process.
    pub serial: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: LocalOwner,
    /// The owner id in the record.
    pub owner_id: Arc<str>,
    /// The lease with which the hold was requested.
    pub lease: Duration,
    /// The position in the watchdog's schedule.
    timer_slot: TimerSlot,
    status: Mutex<Status>,
    observer: Weak<dyn Observer>,
}

/// The properties of a hold that was just confirmed.
pub(crate) struct Begun {
    pub kind: Arc<dyn LockKind>,
    pub owner: LocalOwner,
    pub owner_id: Arc<str>,
    pub data_epoch: u64,
    pub sent: Moment,
    pub lease: Duration,
    pub token: Option<u64>,
}

/// A lower bound for the leases of other clients, which bounds how often a hold is renewed.
const SHORTEST: Duration = Duration::from_secs(1);
/// A shorter lease of another client counts for this multiple of its length after it was last found. A client that renews with
/// that lease does so several times within this period.
const REMEMBERED: u32 = 4;

impl Hold {
    pub(crate) fn new(begun: Begun, observer: Weak<dyn Observer>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Begun { kind, owner, owner_id, data_epoch, sent, lease, token } = begun;
        Arc::new(Self {
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
            owner,
            owner_id,
            lease,
            timer_slot: TimerSlot::default(),
            status: Mutex::new(Status {
                state: HoldState::Held,
                deadline: sent + lease,
                confirmed: sent,
                again: false,
                terms: SmallVec::new(),
                unanswered: 0,
                settled: true,
                data_epoch,
                unrenewed: LossReason::Expired,
                counters: None,
                rare: token.map(|_| Box::new(Rare { token, ..Rare::default() })),
            }),
            observer,
        })
    }

    /// A hold that begins where `before` ended, and that ends at `deadline`. `ahead` says that the record does not name its
    /// owner yet.
    pub(crate) fn passed_on(
        before: &Self,
        owner: LocalOwner,
        owner_id: Arc<str>,
        now: Moment,
        lease: Duration,
        deadline: Moment,
        ahead: bool,
    ) -> Arc<Self> {
        let (kind, data_epoch) = (before.kind.clone(), before.data_epoch());
        let begun = Begun { kind, owner, owner_id, data_epoch, sent: now, lease, token: None };
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

    /// The token of a fenced lock's hold.
    pub(crate) fn token(&self) -> Option<u64> {
        self.lock().token
    }

    /// The current state.
    pub(crate) fn state(self: &Arc<Self>) -> HoldState {
        self.state_at(Moment::now())
    }

    /// The state at `now`, for a caller that has just read the clock.
    pub(crate) fn state_at(self: &Arc<Self>, now: Moment) -> HoldState {
        self.change(now, |_| {})
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.lock().deadline
    }

    /// The data epoch of the last confirmation. It changes when the record moves to another server.
    pub(crate) fn data_epoch(&self) -> u64 {
        self.lock().data_epoch
    }

    /// Releases the hold if it is certain at `now`. Does not call the observer, so the caller may hold the observer's lock.
    pub(crate) fn release_if_held(self: &Arc<Self>, now: Moment) -> bool {
        let mut status = self.lock();
        let ends = status.state == HoldState::Held && now < status.deadline;
        if ends {
            status.state = HoldState::Released;
            status.count_end();
            let followers = status.followers.clone();
            drop(status);
            self.notify(followers);
        }
        ends
    }

    /// The status for the watchdog, or `None` once the hold was seen to be over.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let status = self.lock();
        status.state.is_live().then_some(Standing {
            suspect: status.state == HoldState::Suspect,
            deadline: status.deadline,
            confirmed: status.confirmed,
            again: status.again,
            renewed: status.is_renewed(),
            settled: status.settled,
            shortest: status.shortest.map(|(shortest, _)| shortest),
        })
    }

    /// Notes that a request which set the record's TTL to `lease` found the TTL `left` before.
    ///
    /// A short TTL may mean that another client had just renewed the record with such a lease, and will do so again. Clients with
    /// equal leases leave each other more than half of the lease, because they renew after a third.
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

    /// Whether the hold was seen to be over. Does not read the clock.
    pub(crate) fn is_over(&self) -> bool {
        !self.lock().state.is_live()
    }

    /// Whether the watchdog has to renew the hold.
    pub(crate) fn is_renewed(&self) -> bool {
        self.lock().is_renewed()
    }

    /// Whether the end of the lease is planned, because no owner has a level that is renewed.
    pub(crate) fn ends_as_planned(&self) -> bool {
        self.lock().renewed_until().is_none()
    }

    /// Notes that an owner has taken a level. Returns whether it is the first one, which begins the hold for `counters`.
    pub(crate) fn start(&self, counters: &Arc<Counters>) -> bool {
        let mut status = self.lock();
        let first = status.counters.is_none();
        if first {
            status.counters = Some(counters.clone());
        }
        first
    }

    /// Counts the hold as released, because it passes to the next owner as it is.
    pub(crate) fn passes_on(&self) {
        if let Some(counters) = self.lock().counters.take() {
            counters.ended(End::Released);
        }
    }

    /// Begins a level, which its owner has taken.
    pub(crate) fn begin_level(&self, term: LevelTerm) {
        self.lock().terms.push(term);
    }

    /// Ends a level. `levels` are left, including those that their owners have not taken yet.
    pub(crate) fn end_level(&self, term: Option<LevelTerm>, levels: u64) {
        let mut status = self.lock();
        if let Some(at) = status.terms.iter().position(|other| Some(*other) == term) {
            status.terms.swap_remove(at);
        }
        // A level that its owner has not taken yet has no term, and needs the deadline as it is.
        if status.terms.len() as u64 == levels
            && let Some(end) = status.end()
        {
            status.deadline = status.deadline.min(end - status.margin);
        }
    }

    /// Keeps the record until `end`, even if the hold is released earlier.
    pub(crate) fn keep_until(&self, end: Moment) {
        let mut status = self.lock();
        status.kept = status.kept.max(Some(end));
    }

    /// Until when the record is kept, if that is after `now`.
    pub(crate) fn kept_after(&self, now: Moment) -> Option<Moment> {
        self.lock().kept.filter(|end| *end > now)
    }

    /// When the last level ends, whether the hold is renewed or not. [`Moment::FAR`] if a level has no limit.
    pub(crate) fn end(&self) -> Moment {
        self.lock().end().unwrap_or(Moment::FAR)
    }

    pub(crate) fn renewal_sent(&self) {
        self.lock().unanswered += 1;
    }

    pub(crate) fn renewal_answered(&self) {
        self.lock().unanswered -= 1;
    }

    /// Whether a renewal in flight may still reach a later record with this hold's owner id.
    pub(crate) fn has_renewal_in_flight(&self) -> bool {
        self.lock().unanswered > 0
    }

    /// Notes a confirmation: at some time after `sent`, in the data epoch `data_epoch`, the server set the record's TTL to `lease` or
    /// more for a level that begins.
    pub(crate) fn confirm(self: &Arc<Self>, sent: Moment, data_epoch: u64, lease: Duration) -> HoldState {
        self.change(Moment::now(), |status| status.confirm(sent, data_epoch, sent + lease))
    }

    /// The same for a renewal. It extends the hold only as long as there is a level to renew.
    pub(crate) fn renew(self: &Arc<Self>, sent: Moment, data_epoch: u64, lease: Duration) -> HoldState {
        self.change(Moment::now(), |status| {
            let until = status.renewed_until().map_or(sent, |end| end.min(sent + lease));
            status.confirm(sent, data_epoch, until);
        })
    }

    /// Makes the hold end `margin` before its lease from now on.
    pub(crate) fn end_early(&self, margin: Duration) {
        let mut status = self.lock();
        let more = margin.saturating_sub(status.margin);
        status.margin += more;
        status.deadline = status.deadline - more;
    }

    /// Notes that the record may be gone. `unrenewed` becomes the reason of the loss, unless a confirmation arrives before the
    /// deadline.
    pub(crate) fn doubt(self: &Arc<Self>, unrenewed: LossReason) -> HoldState {
        self.change(Moment::now(), |status| {
            status.state = HoldState::Suspect;
            status.unrenewed = unrenewed;
        })
    }

    /// The reason of the loss, if the record was found absent in the data epoch `data_epoch`.
    pub(crate) fn gone_in(&self, data_epoch: u64) -> LossReason {
        if data_epoch == self.data_epoch() { LossReason::Gone } else { LossReason::DataLost }
    }

    /// The error of an unlock of this hold, which is over.
    pub(crate) fn not_held(self: &Arc<Self>) -> Error {
        let reason = match self.state() {
            HoldState::Lost(reason) => Some(reason),
            _ => None,
        };
        Error::NotHeld { name: self.record().to_string(), reason, holder: None }
    }

    pub(crate) fn lose(self: &Arc<Self>, reason: LossReason) -> HoldState {
        self.change(Moment::now(), |status| status.state = HoldState::Lost(reason))
    }

    /// Releases the hold, so that it is no longer renewed. Returns its state before.
    pub(crate) fn release(self: &Arc<Self>) -> HoldState {
        let mut before = None;
        let after = self.change(Moment::now(), |status| {
            before = Some(std::mem::replace(&mut status.state, HoldState::Released))
        });
        before.unwrap_or(after)
    }

    /// Returns a receiver of the current state and all later ones.
    pub(crate) fn watch_state(self: &Arc<Self>) -> watch::Receiver<HoldState> {
        let new = || Arc::new(watch::Sender::new(HoldState::Held));
        let followers = self.lock().followers.get_or_insert_with(new).clone();
        self.notify(Some(followers.clone()));
        followers.subscribe()
    }

    /// Applies `change` if the hold is still live, and notifies the followers and the observer.
    fn change(self: &Arc<Self>, now: Moment, change: impl FnOnce(&mut Status)) -> HoldState {
        let mut status = self.lock();
        let before = status.state;
        if !before.is_live() {
            return before;
        }
        if now >= status.deadline {
            // A fixed lease ends at its deadline, whether the server is reachable or not.
            let reason = if status.is_renewed() { status.unrenewed } else { LossReason::Expired };
            status.state = HoldState::Lost(reason);
        } else {
            change(&mut status);
        }
        let after = status.state;
        if !after.is_live() {
            status.count_end();
        }
        let observer = (after != before).then(|| self.observer.upgrade()).flatten();
        if let (HoldState::Lost(_), Some(observer)) = (after, &observer) {
            observer.losing();
        }
        let followers = if after == before { None } else { status.followers.clone() };
        drop(status);
        if after != before {
            self.notify(followers);
            if let (HoldState::Suspect | HoldState::Lost(_), Some(observer)) = (after, observer) {
                observer.doubted(self);
            }
        }
        after
    }

    /// Sends the state that the hold has by now, so that concurrent calls end with the latest state.
    fn notify(&self, followers: Option<Arc<watch::Sender<HoldState>>>) {
        let Some(followers) = followers else { return };
        followers.send_if_modified(|sent| {
            let state = self.lock().state;
            std::mem::replace(sent, state) != state
        });
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock()
    }
}

impl Scheduled for Hold {
    fn timer_slot(&self) -> &TimerSlot {
        &self.timer_slot
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.lock();
        f.debug_struct("Hold")
            .field("lock", self.record())
            .field("owner", &self.owner_id)
            .field("serial", &self.serial)
            .field("state", &status.state)
            .field("left", &status.deadline.remaining())
            .finish()
    }
}
