//! The state of a hold, and everything else of it that changes. Plain data: `hold.rs` keeps it behind a mutex.

use crate::config::options::whole_millis;
use crate::error::LossReason;
use crate::lease::ending::Ending;
use crate::lease::term::LevelTerm;
use crate::runtime::clock::Moment;
use crate::runtime::sync::watch;
use crate::stats::{Counters, End};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;
use tracing::Span;

/// The state of a hold.
///
/// ```
/// use redisson_lock::HoldState;
/// assert!(HoldState::Suspect.is_live() && HoldState::Suspect != HoldState::Held); // live, but not confirmed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldState {
    /// The server confirmed the hold, and the lease has not ended.
    Held,
    /// The lease has not ended, but the connection dropped or a renewal failed since the last confirmation.
    ///
    /// Another owner holds the lock only if the record was lost or deleted. Continue work that can be repeated or that a fencing token
    /// protects. Begin no other write until the state is [`Held`](Self::Held) again. Stop when it is [`Lost`](Self::Lost).
    Suspect,
    /// The hold ended, or may have ended. This state is final.
    Lost(LossReason),
    /// The lock was released. This state is final.
    Released,
}

impl HoldState {
    /// Returns `true` for [`HoldState::Held`] and [`HoldState::Suspect`].
    pub fn is_live(self) -> bool {
        matches!(self, Self::Held | Self::Suspect)
    }
}

/// The part of a live hold's status that the watchdog uses.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    pub suspect: bool,
    pub deadline: Moment,
    /// When the last confirmed request was sent.
    pub confirmed: Moment,
    /// A request after the hold's first one was confirmed.
    pub again: bool,
    /// The watchdog has to renew the hold.
    pub renewed: bool,
    /// The record is confirmed to name the hold's owner.
    pub settled: bool,
    /// When the last level ends, whether the hold is renewed or not. [`Moment::FAR`] if a level has no limit.
    pub end: Moment,
    /// The shortest lease with which other clients renew the record.
    pub shortest: Option<Duration>,
}

impl Standing {
    /// The lease that a renewal requests at `now`: `lease`, but no more than what is left of the last level. In whole milliseconds, because
    /// Redis counts these, and rounded up, because the record must last until the level ends.
    pub(crate) fn renewal(&self, lease: Duration, now: Moment) -> Duration {
        lease.min(whole_millis(self.end.since(now) + Duration::from_millis(1)))
    }

    /// The length of the running lease, and how much of it is left at `now`.
    pub(super) fn term(&self, now: Moment) -> (Duration, Duration) {
        (self.deadline.since(self.confirmed), self.deadline.since(now))
    }
}

/// The state of a hold. A program may hold many locks, so the parts that few holds have are boxed.
pub(super) struct Status {
    pub state: HoldState,
    pub deadline: Moment,
    /// When the first level was taken.
    pub began: Moment,
    /// When the last confirmed request was sent.
    pub confirmed: Moment,
    /// A request after the hold's first one was confirmed.
    pub again: bool,
    /// The term of a level that its owner has taken. Further ones are in [`Rare::terms`].
    pub term: Option<LevelTerm>,
    /// The number of renewals without an answer. A dead connection may still deliver each of them.
    pub unanswered: u16,
    /// The record is confirmed to name the hold's owner.
    pub settled: bool,
    /// The data epoch of the last confirmation.
    pub data_epoch: u64,
    /// The reason of the loss, if the deadline passes without another confirmation.
    pub unrenewed: LossReason,
    /// The begin of the hold was counted, and its end is not. Unset until an owner has taken a level.
    pub counted: bool,
    /// The client no longer follows the hold. Nobody acts on its loss.
    pub abandoned: bool,
    pub rare: Option<Box<Rare>>,
}

/// The parts that few holds have.
#[derive(Default)]
pub(super) struct Rare {
    /// The token of a fenced lock's hold.
    pub token: Option<u64>,
    /// The terms of further levels.
    pub terms: Vec<LevelTerm>,
    /// Until when the record is kept, even if the hold is released earlier.
    pub kept: Option<Moment>,
    /// The time from the deadline to the end of the lease.
    pub margin: Duration,
    /// The shortest lease with which other clients renewed the record, and when one was last found.
    pub shortest: Option<(Duration, Moment)>,
    /// Created by the first caller that follows the state.
    pub followers: Option<Arc<watch::Sender<HoldState>>>,
    /// The span of the hold, if somebody records it.
    pub span: Option<Span>,
}

impl Deref for Status {
    type Target = Rare;
    fn deref(&self) -> &Rare {
        const NONE: &Rare = &Rare {
            token: None,
            terms: Vec::new(),
            kept: None,
            margin: Duration::ZERO,
            shortest: None,
            followers: None,
            span: None,
        };
        self.rare.as_deref().unwrap_or(NONE)
    }
}

impl DerefMut for Status {
    fn deref_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

impl Status {
    /// Counts the end of a hold at `now`, once.
    pub(super) fn count_end(&mut self, counters: &Arc<Counters>, end: End, now: Moment) -> Ending {
        if !std::mem::take(&mut self.counted) {
            return Ending::default();
        }
        counters.ended(end);
        let span = self.rare.as_mut().and_then(|rare| rare.span.take());
        Ending::new(counters, end, now.since(self.began), span)
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            suspect: self.state == HoldState::Suspect,
            deadline: self.deadline,
            confirmed: self.confirmed,
            again: self.again,
            renewed: self.is_renewed(),
            settled: self.settled,
            end: self.end().unwrap_or(Moment::FAR),
            shortest: self.shortest.map(|(shortest, _)| shortest),
        }
    }

    pub(super) fn confirm(&mut self, sent: Moment, data_epoch: u64, until: Moment) {
        self.data_epoch = data_epoch;
        self.state = HoldState::Held;
        self.settled = true;
        self.unrenewed = LossReason::Expired;
        (self.confirmed, self.again) = (self.confirmed.max(sent), true);
        self.deadline = self.deadline.max(until - self.margin);
    }

    /// The terms of the levels that their owners have taken.
    pub(super) fn terms(&self) -> impl Iterator<Item = LevelTerm> {
        self.term.into_iter().chain(self.terms.iter().copied())
    }

    pub(super) fn add_term(&mut self, term: LevelTerm) {
        match self.term {
            None => self.term = Some(term),
            Some(_) => self.terms.push(term),
        }
    }

    /// Removes a term, if it is there.
    pub(super) fn remove_term(&mut self, term: LevelTerm) {
        if self.term == Some(term) {
            self.term = self.rare.as_mut().and_then(|rare| rare.terms.pop());
        } else if let Some(at) = self.terms.iter().position(|other| *other == term) {
            self.terms.swap_remove(at);
        }
    }

    /// Ends the hold with the last of its `levels`. A level that its owner has not taken yet has no term, and needs the deadline as it is.
    pub(super) fn limit_to(&mut self, levels: usize) {
        if self.terms().count() == levels
            && let Some(end) = self.end()
        {
            self.deadline = self.deadline.min(end - self.margin);
        }
    }

    /// When the last level ends, if a level is taken.
    pub(super) fn end(&self) -> Option<Moment> {
        self.terms().map(LevelTerm::end).max()
    }

    /// When the last renewed level ends, if there is one.
    pub(super) fn renewed_until(&self) -> Option<Moment> {
        self.terms().filter_map(LevelTerm::renewed_until).max()
    }

    /// Whether a renewal would extend the hold.
    pub(super) fn is_renewed(&self) -> bool {
        self.renewed_until().is_some_and(|end| end - self.margin > self.deadline)
    }
}
