//! Requests that have been sent, or that have to be sent, and whose effect is not known yet.

use crate::engine::run::Run;
use crate::error::Result;
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::owner::LocalOwner;
use crate::protocol::script::Request;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A request that a caller sends itself, see `direct.rs`.
pub(crate) struct DirectRequest {
    /// The ticket of the caller.
    pub ticket: u64,
    /// Until when an actor waits for the reply.
    pub until: Moment,
    /// Taken while the caller acts on the reply.
    pub unfinished: Option<Unfinished>,
}

/// The work that remains if the caller leaves.
pub(crate) enum Unfinished {
    Acquire(DirectAttempt),
    Release(Freeing),
    /// An actor has overtaken the release, and reports its outcome.
    Overtaken(oneshot::Receiver<Result<()>>),
}

/// An acquire to undo.
pub(crate) struct DirectAttempt {
    pub kind: Arc<dyn LockKind>,
    pub owner_id: Arc<str>,
    /// The length of its lease.
    pub lease: Duration,
    pub sent_on: u64,
    /// An actor has undone it, although its caller may still send it.
    pub overtaken: bool,
}

impl DirectAttempt {
    pub(crate) fn undo(&self) -> Undo {
        let (kind, owner_id, sent_on) = (self.kind.clone(), self.owner_id.clone(), Some(self.sent_on));
        Undo { kind, owner_id, until: Moment::now() + self.lease, sent_on }
    }
}

impl DirectRequest {
    pub(crate) fn is_release(&self) -> bool {
        matches!(self.unfinished, Some(Unfinished::Release(_)))
    }

    /// Whether it is an acquire whose caller comes before all waiters.
    pub(crate) fn is_timely_acquire(&self) -> bool {
        matches!(self.unfinished, Some(Unfinished::Acquire(DirectAttempt { overtaken: false, .. })))
    }

    pub(crate) fn is_overtaken_acquire(&self) -> bool {
        matches!(self.unfinished, Some(Unfinished::Acquire(DirectAttempt { overtaken: true, .. })))
    }

    /// The owner id that the record may have until the reply.
    pub(crate) fn owner_id(&self) -> Option<&Arc<str>> {
        match self.unfinished.as_ref()? {
            Unfinished::Acquire(acquire) => Some(&acquire.owner_id),
            Unfinished::Release(freeing) => Some(&freeing.named),
            Unfinished::Overtaken(_) => None,
        }
    }
}

/// Makes sure that an owner id does not hold the record.
pub(crate) struct Undo {
    pub kind: Arc<dyn LockKind>,
    pub owner_id: Arc<str>,
    /// The request is repeated until then.
    pub until: Moment,
    /// The connection that the acquire was sent on, if its owner id may be used again once it is undone. An undo that the same
    /// connection answers comes after the acquire.
    pub sent_on: Option<u64>,
}

/// An acquire that went unanswered. It is repeated unchanged, so that it counts once even if an earlier send took effect.
pub(crate) struct Unanswered {
    pub request: Request,
    pub owner_id: Arc<str>,
    /// If it took effect, it lasts at most until then.
    pub until: Moment,
}

/// A record that has to be handed off or freed: its hold has ended.
pub(crate) struct Freeing {
    pub hold: Arc<Hold>,
    /// The owner id in the record, or another id of the release ([`LockKind::release_id`]).
    pub named: Arc<str>,
    /// The deadline and the state that the hold had.
    pub deadline: Moment,
    pub was: HoldState,
    pub run: Run,
    /// When the release began: before its first send, and at most shortly before if a caller sent it.
    pub began: Moment,
    /// The waiter that the lock is handed to. `None` if the record is freed.
    pub successor: Option<Box<Successor>>,
}

/// A waiter on its way to a lock, or to permits, that a holder of the same client hands to it.
pub(crate) struct Successor {
    pub ticket: u64,
    pub owner: LocalOwner,
    /// The owner id that the record gets.
    pub owner_id: Arc<str>,
    pub lease: Duration,
}
