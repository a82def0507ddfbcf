//! Requests that have been sent, or that have to be sent, and whose effect is not known yet.

use crate::engine::run::Run;
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::lease::status::HoldState;
use crate::protocol::script::Request;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A request that a caller sends itself, see `direct.rs`.
pub(crate) struct DirectRequest {
    /// The ticket of the caller.
    pub ticket: u64,
    /// Until when an actor waits for the reply.
    pub until: Moment,
    /// An actor goes on although the request may still be sent, and may still take effect.
    pub overtaken: bool,
    /// Taken while the caller acts on the reply.
    pub unfinished: Option<Unfinished>,
}

/// The work that remains if the caller leaves.
pub(crate) enum Unfinished {
    /// Undo the acquire. Its lease lasts this long.
    Acquire {
        kind: Arc<dyn LockKind>,
        owner_id: Arc<str>,
        lease: Duration,
        sent_on: u64,
    },
    Release(Freeing),
}

impl DirectRequest {
    pub(crate) fn is_release(&self) -> bool {
        matches!(self.unfinished, Some(Unfinished::Release(_)))
    }

    /// The owner id that the record may have until the reply.
    pub(crate) fn owner_id(&self) -> Option<&Arc<str>> {
        self.unfinished.as_ref().map(|unfinished| match unfinished {
            Unfinished::Acquire { owner_id, .. } => owner_id,
            Unfinished::Release(freeing) => &freeing.named,
        })
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

/// A record that has to be freed: its hold has ended.
pub(crate) struct Freeing {
    pub hold: Arc<Hold>,
    /// The owner id in the record.
    pub named: Arc<str>,
    /// The deadline and the state that the hold had.
    pub deadline: Moment,
    pub was: HoldState,
    pub run: Run,
}
