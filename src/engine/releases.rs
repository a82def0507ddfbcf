//! The releases that a key queue has to send. Plain data.

use crate::engine::unfinished::{Freeing, Undo};
use crate::error::Result;
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::lease::term::LevelTerm;
use crate::runtime::clock::Moment;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// The releases of a key queue, in order. A program may drop many guards at once, and hold many locks. So a queue without releases has no
/// list, and the list is not part of [`Company`](crate::engine::work::Company).
#[derive(Default)]
#[expect(clippy::box_collection, reason = "a queue without releases has only a pointer")]
pub(crate) struct Releases(Option<Box<VecDeque<Release>>>);

impl Releases {
    /// Takes the next release.
    pub(crate) fn pop(&mut self) -> Option<Release> {
        let release = self.0.as_mut()?.pop_front();
        if self.is_empty() {
            self.0 = None;
        }
        release
    }
}

impl Deref for Releases {
    type Target = VecDeque<Release>;
    fn deref(&self) -> &VecDeque<Release> {
        const NONE: &VecDeque<Release> = &VecDeque::new();
        self.0.as_deref().unwrap_or(NONE)
    }
}

impl DerefMut for Releases {
    fn deref_mut(&mut self) -> &mut VecDeque<Release> {
        // Most releases are alone.
        self.0.get_or_insert_with(|| Box::new(VecDeque::with_capacity(1)))
    }
}

/// A release that the actor has to send.
pub(crate) enum Release {
    Level(ReleasedLevel),
    /// Hands off or frees the record of a hold that has ended. The flag says that an earlier request to do so went unanswered.
    Free(Box<Freeing>, bool, Option<oneshot::Sender<Result<()>>>),
    Undo(Undo),
    Dequeue(Dequeue),
}

impl Release {
    /// Clears an owner id that no later hold has.
    pub(crate) fn undo(kind: &Arc<dyn LockKind>, owner_id: &Arc<str>, until: Moment) -> Self {
        Self::Undo(Undo { kind: kind.clone(), owner_id: owner_id.clone(), until, sent_on: None })
    }

    pub(crate) fn dequeue(kind: &Arc<dyn LockKind>, owner_id: &Arc<str>) -> Self {
        let until = Moment::now() + LEAVE_RETRY_FOR;
        Self::Dequeue(Dequeue { kind: kind.clone(), owner_id: owner_id.clone(), until })
    }
}

/// How long a removal is retried: the longest `fair_wait_timeout` that a client may set.
const LEAVE_RETRY_FOR: Duration = Duration::from_secs(24 * 3600);

/// Removes an owner id from Redis's queue.
pub(crate) struct Dequeue {
    pub kind: Arc<dyn LockKind>,
    pub owner_id: Arc<str>,
    /// The removal is retried until then.
    pub until: Moment,
}

/// A level that is being released.
pub(crate) struct ReleasedLevel {
    pub hold: Arc<Hold>,
    /// `None` if the owner has not taken the level.
    pub term: Option<LevelTerm>,
    pub pipelined: bool,
    pub reply: Option<oneshot::Sender<Result<()>>>,
}
