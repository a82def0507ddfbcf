//! The releases that a key queue has to send. Plain data.

use crate::engine::unfinished::{Freeing, Undo};
use crate::error::Result;
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::lease::term::LevelTerm;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
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
    /// Removes the owner id from Redis's queue.
    Dequeue(Arc<dyn LockKind>, Arc<str>),
}

/// A level that is being released.
pub(crate) struct ReleasedLevel {
    pub hold: Arc<Hold>,
    /// `None` if the owner has not taken the level.
    pub term: Option<LevelTerm>,
    pub pipelined: bool,
    pub reply: Option<oneshot::Sender<Result<()>>>,
}
