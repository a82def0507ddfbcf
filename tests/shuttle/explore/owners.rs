//! The owners of an exploration: each makes its next step when the director says so.

use super::kinds::{Guard, Handle};
use super::with;
use crate::error::Error;
use crate::shuttled::sync::task;
use crate::status::HoldStatus;
use std::sync::Arc;
use tokio::sync::Notify;

/// The steps of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Lock,
    TryLock,
    Unlock,
    /// Drops the guard.
    Drop,
}

pub(super) struct Owner {
    pub client: usize,
    /// It waits for the director.
    pub ready: bool,
    /// The acquire that it waits for may be dropped.
    pub cancellable: bool,
    /// It waits for the lock or the permit.
    pub waits: bool,
    /// A single attempt may fail: since it began, there was a time when nothing was free, or when another owner of its client waited.
    pub may_be_busy: bool,
    pub steps_left: usize,
    /// When it made its last step: the number of that step among all of them.
    pub acted: usize,
    /// The guards that it has.
    pub guards: usize,
    pub holds: Vec<Hold>,
    go: Arc<Notify>,
    cancel: Arc<Notify>,
    /// The failures of its steps.
    pub failures: Vec<Error>,
}

/// A hold that an owner had at some time.
#[derive(Clone)]
pub(super) struct Hold {
    pub status: HoldStatus,
    /// It was seen to have ended.
    pub ended: bool,
}

impl Owner {
    pub(super) fn new(client: usize, steps: usize, cancellable: bool) -> Self {
        Self {
            client,
            ready: false,
            cancellable,
            waits: false,
            may_be_busy: false,
            steps_left: steps,
            acted: 0,
            guards: 0,
            holds: Vec::new(),
            go: Arc::default(),
            cancel: Arc::default(),
            failures: Vec::new(),
        }
    }

    /// Lets the owner make its next step, which is step `acted` of all owners.
    pub(super) fn go(&mut self, acted: usize) {
        self.acted = acted;
        (self.ready, self.steps_left) = (false, self.steps_left - 1);
        self.go.notify_one();
    }

    /// Drops the acquire that the owner waits for.
    pub(super) fn cancel(&mut self) {
        (self.waits, self.cancellable) = (false, false);
        self.cancel.notify_one();
    }

    pub(super) fn is_done(&self) -> bool {
        self.steps_left == 0 && !self.waits && self.ready
    }
}

/// Makes the steps of the owner with this number.
pub(super) async fn act(number: usize, handle: Handle, steps: &'static [Step]) {
    let mut guards = Vec::new();
    for step in steps {
        let go = with(|world| {
            world.owners[number].ready = true;
            world.owners[number].go.clone()
        });
        go.notified().await;
        match step {
            Step::Lock | Step::TryLock => match acquire(number, &handle, *step).await {
                Some(guard) => guards.push(guard),
                None => break,
            },
            Step::Unlock => {
                let guard: Guard = guards.pop().expect("a step before acquired it");
                with(|world| world.owners[number].guards -= 1);
                if let Err(error) = guard.release().await {
                    with(|world| world.owners[number].failures.push(error));
                }
            }
            Step::Drop => {
                with(|world| world.owners[number].guards -= 1);
                drop(guards.pop());
            }
        }
    }
    with(|world| {
        let owner = &mut world.owners[number];
        (owner.ready, owner.steps_left, owner.guards) = (true, 0, 0);
    });
    // Guards that are left are dropped here: their owner gave up.
    drop(guards);
    task::yield_now().await;
}

async fn acquire(number: usize, handle: &Handle, step: Step) -> Option<Guard> {
    let cancel = with(|world| {
        world.owners[number].waits = true;
        world.owners[number].cancel.clone()
    });
    let guard = tokio::select! {
        biased;
        () = cancel.notified() => Ok(None),
        guard = handle.acquire(step == Step::TryLock) => {
            let may_be_busy = with(|world| world.owners[number].may_be_busy);
            assert!(may_be_busy || !matches!(guard, Ok(None)), "an attempt failed, but nothing was held");
            guard
        }
    };
    with(|world| {
        let owner = &mut world.owners[number];
        owner.waits = false;
        match guard {
            Ok(Some(guard)) => {
                owner.guards += 1;
                owner.holds.extend(guard.status().map(|status| Hold { status, ended: false }));
                Some(guard)
            }
            Ok(None) => None,
            Err(error) => {
                owner.failures.push(error);
                None
            }
        }
    })
}
