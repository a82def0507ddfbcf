//! The state and the deadline of one hold of one owner on one key.
//!
//! Invariants:
//! 1. The deadline is the send time of the last confirmed request plus the lease, so it is never later than the server's
//!    expiry. Every look at the state compares the deadline with the clock first, so a process that was paused sees the
//!    loss before it acts.
//! 2. The deadline is also never later than the end of the last level. So a level that the watchdog renews lengthens the hold only until
//!    that level is released.
//! 3. A hold changes between Held and Suspect, and ends as Lost or Released. It never leaves these two states.

use crate::config::options::millis;
use crate::error::{Error, LossReason};
use crate::kinds::kind::LockKind;
use crate::lease::ending::{Ending, Unreported};
use crate::lease::schedule::{Scheduled, TimerSlot};
use crate::lease::spans;
use crate::lease::status::{HoldState, Rare, Standing, Status};
use crate::lease::term::LevelTerm;
use crate::observer::Ended;
use crate::owner::LocalOwner;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::watch;
use crate::stats::{Counters, End};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tracing::Span;

/// The counters and the loss handler of all holds of a client.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub counters: Arc<Counters>,
    pub loss_handler: Weak<dyn LossHandler>,
}

/// Observes holds that are no longer certain.
pub(crate) trait LossHandler: Send + Sync {
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
    /// The lease with which the hold was requested, in milliseconds.
    lease_ms: u64,
    /// The position in the watchdog's schedule.
    timer_slot: TimerSlot,
    status: Mutex<Status>,
    listeners: Arc<Listeners>,
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
    pub(crate) fn new(begun: Begun, listeners: &Arc<Listeners>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Begun { kind, owner, owner_id, data_epoch, sent, lease, token } = begun;
        Arc::new(Self {
            serial: NEXT.fetch_add(1, Ordering::Relaxed),
            kind,
            owner,
            owner_id,
            lease_ms: millis(lease),
            timer_slot: TimerSlot::default(),
            status: Mutex::new(Status {
                state: HoldState::Held,
                deadline: sent + lease,
                began: sent,
                confirmed: sent,
                again: false,
                term: None,
                unanswered: 0,
                settled: true,
                data_epoch,
                unrenewed: LossReason::Expired,
                counted: false,
                abandoned: false,
                rare: token.map(|_| Box::new(Rare { token, ..Rare::default() })),
            }),
            listeners: listeners.clone(),
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
        let hold = Self::new(begun, &before.listeners);
        let mut status = hold.lock();
        status.deadline = deadline;
        status.settled = !ahead;
        drop(status);
        hold
    }

    /// The lease with which the hold was requested.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        self.kind.record()
    }

    /// The text that identifies the owner in the record.
    pub(crate) fn owner_in_record(&self) -> &str {
        self.kind.owner(&self.owner_id)
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

    /// The end of the confirmed lease. [`Moment::FAR`] while the hold is ahead of the record.
    pub(crate) fn lease_end(&self) -> Moment {
        let status = self.lock();
        if status.settled { status.deadline + status.margin } else { Moment::FAR }
    }

    /// The data epoch of the last confirmation. It changes when the record moves to another server.
    pub(crate) fn data_epoch(&self) -> u64 {
        self.lock().data_epoch
    }

    /// Releases the hold if it is certain at `now`. Does not call the loss handler, so the caller may hold the loss handler's lock. The
    /// caller then reports the end, without that lock.
    pub(crate) fn release_if_held(self: &Arc<Self>, now: Moment) -> Option<Ending> {
        let mut status = self.lock();
        if status.state != HoldState::Held || now >= status.deadline {
            return None;
        }
        status.state = HoldState::Released;
        let ending = status.count_end(&self.listeners.counters, End::Released, now);
        let followers = status.followers.clone();
        drop(status);
        self.notify(followers);
        Some(ending)
    }

    /// The status for the watchdog, or `None` once the hold was seen to be over.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let status = self.lock();
        status.state.is_live().then(|| status.standing())
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

    /// Notes that an owner has taken a level at `now`. Returns whether it is the first one, which begins the hold for the counters.
    /// `None` if the hold has ended before.
    pub(crate) fn start(&self, now: Moment) -> Option<bool> {
        let mut status = self.lock();
        if !status.state.is_live() {
            return None;
        }
        let first = !std::mem::replace(&mut status.counted, true);
        if first {
            status.began = now;
        }
        Some(first)
    }

    /// Makes the span of a hold that has begun, and keeps it until the end of the hold, if somebody records it.
    pub(crate) fn trace(&self, call: &Span) {
        let span = spans::hold(&*self.kind, self.owner_in_record(), self.serial, || self.token(), call);
        if span.is_disabled() {
            return;
        }
        let mut status = self.lock();
        if status.counted {
            status.span = Some(span);
        }
    }

    /// The span of the hold, if somebody records it.
    pub(super) fn span(&self) -> Option<Span> {
        self.lock().span.clone()
    }

    /// Counts and reports the hold as released, because it passes to the next owner as it is.
    pub(crate) fn passes_on(&self, now: Moment) {
        let ending = self.lock().count_end(&self.listeners.counters, End::Released, now);
        self.report(ending);
    }

    /// Counts and reports the hold as unended, because the client no longer follows it. Another process may release it, or extend its lease.
    pub(crate) fn abandon(&self) {
        let mut status = self.lock();
        status.abandoned = true;
        let ending = status.count_end(&self.listeners.counters, End::Unseen, Moment::now());
        drop(status);
        self.report(ending);
    }

    /// Begins a level, which its owner has taken. It is one of `levels`, including those that their owners have not taken yet.
    pub(crate) fn begin_level(&self, term: LevelTerm, levels: usize) {
        let mut status = self.lock();
        status.add_term(term);
        status.limit_to(levels);
    }

    /// Ends a level. `levels` are left, including those that their owners have not taken yet.
    pub(crate) fn end_level(&self, term: Option<LevelTerm>, levels: usize) {
        let mut status = self.lock();
        if let Some(term) = term {
            status.remove_term(term);
        }
        status.limit_to(levels);
    }

    /// Ends the hold with the last of its `levels`, if their owners have taken all of them.
    pub(crate) fn limit_to(&self, levels: usize) {
        self.lock().limit_to(levels);
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

    /// Notes that a renewal is about to be sent. Returns the standing before, or `None` if the hold was seen to be over: then no renewal
    /// may be sent.
    pub(crate) fn renewal_sent(&self) -> Option<Standing> {
        let mut status = self.lock();
        let standing = status.state.is_live().then(|| status.standing())?;
        status.unanswered = status.unanswered.saturating_add(1);
        Some(standing)
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

    /// Applies `change` if the hold is still live, and notifies the followers, the observers and the loss handler.
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
        let ending = match after {
            HoldState::Held | HoldState::Suspect => Ending::default(),
            HoldState::Lost(reason) => status.count_end(&self.listeners.counters, End::Lost(reason), now),
            HoldState::Released => status.count_end(&self.listeners.counters, End::Released, now),
        };
        let handled = after != before && !status.abandoned;
        let loss_handler = handled.then(|| self.listeners.loss_handler.upgrade()).flatten();
        if let (HoldState::Lost(_), Some(loss_handler)) = (after, &loss_handler) {
            loss_handler.losing();
        }
        let followers = if after == before { None } else { status.followers.clone() };
        drop(status);
        if after != before {
            self.notify(followers);
            self.report(ending);
            if let (HoldState::Suspect | HoldState::Lost(_), Some(loss_handler)) = (after, loss_handler) {
                loss_handler.doubted(self);
            }
        }
        after
    }

    /// Reports the end of the hold to the observers and to its span. No mutex may be locked.
    pub(crate) fn report(&self, ending: Ending) {
        let Ending(Some(Unreported { counters, end, held, span })) = ending else { return };
        if let Some(span) = span {
            spans::ended(&span, end, held);
        }
        let ended = Ended {
            hold: self.serial,
            name: self.record(),
            kind: self.kind.traits().name,
            owner: self.owner_in_record(),
            held,
        };
        counters.observers.tell(|observer| match end {
            End::Released => observer.on_released(&ended),
            End::Lost(reason) => observer.on_lost(&ended, reason),
            End::Unseen => observer.on_unended(&ended),
        });
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

impl Drop for Hold {
    fn drop(&mut self) {
        let status = self.status.get_mut();
        if !status.counted {
            return;
        }
        let ending = status.count_end(&self.listeners.counters, End::Unseen, Moment::now());
        if let Ending(Some(Unreported { end, held, span: Some(span), .. })) = ending {
            spans::ended(&span, end, held);
        }
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
