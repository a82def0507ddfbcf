//! Caller-runs mode: a caller that waits for the outcome of its work polls the key actor itself. Without contention this saves a
//! task and two wake-ups for each request.
//!
//! Invariants:
//! 1. The work does not depend on the caller. The actor moves to a task on the client's runtime when the caller is dropped, or when
//!    somebody else needs the key queue, because it is not known when the caller will poll again.
//! 2. An actor that a caller polls makes no timer, because the caller's runtime may end before the timer. It moves first
//!    ([`move_to_task`]).

use crate::runtime::sync::atomic::{AtomicBool, Ordering};
use crate::runtime::sync::{Mutex, MutexGuard, thread_local};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// How the actor on this thread is being polled.
#[derive(Clone, Copy, PartialEq)]
enum PolledBy {
    /// By a task of its own, or no actor is being polled.
    Own,
    /// By a caller.
    Callers,
    /// By a caller, and the actor asks for a task of its own.
    CallersToLeave,
}

thread_local! {
    static POLLED_BY: Cell<PolledBy> = const { Cell::new(PolledBy::Own) };
}

/// Whether an actor is being polled by a caller.
pub(crate) fn polled_by_caller() -> bool {
    POLLED_BY.with(Cell::get) != PolledBy::Own
}

/// Moves the actor that calls this to a task of its own, if a caller polls it.
pub(crate) async fn move_to_task() {
    poll_fn(|_| {
        if polled_by_caller() {
            POLLED_BY.with(|polled_by| polled_by.set(PolledBy::CallersToLeave));
            // The task polls it again.
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// An actor that can go on in a task of its own.
pub(crate) trait Spawn: Future<Output = ()> {
    fn spawn(self);
}

fn spawn(actor: Option<impl Spawn>) {
    if let Some(actor) = actor {
        actor.spawn();
    }
}

/// The slot of an actor that a caller polls.
pub(crate) struct CallerSlot<D> {
    actor: Mutex<Option<D>>,
    /// Somebody else needs the key queue.
    wanted: AtomicBool,
}

impl<D: Spawn + Unpin> CallerSlot<D> {
    pub(crate) fn new(actor: D) -> Arc<Self> {
        Arc::new(Self { actor: Mutex::new(Some(actor)), wanted: AtomicBool::new(false) })
    }

    /// Moves the actor to a task, now or as soon as the caller's poll is over.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        // If a poll has locked the slot, that poll checks `wanted` after it has unlocked it.
        let actor = self.actor.try_lock().ok().and_then(|mut actor| actor.take());
        spawn(actor);
    }

    fn lock(&self) -> MutexGuard<'_, Option<D>> {
        self.actor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller's part in running the actor of a key queue.
pub(crate) struct CallerTurn<D: Spawn + Unpin>(Option<Arc<CallerSlot<D>>>);

impl<D: Spawn + Unpin> CallerTurn<D> {
    pub(crate) fn new(slot_of_caller: Option<Arc<CallerSlot<D>>>) -> Self {
        Self(slot_of_caller)
    }

    /// Waits for `outcome`, and polls the actor meanwhile, if the caller has one.
    pub(crate) async fn wait<T>(
        &mut self,
        outcome: &mut oneshot::Receiver<T>,
    ) -> Result<T, oneshot::error::RecvError> {
        poll_fn(|cx| {
            self.poll(cx);
            Pin::new(&mut *outcome).poll(cx)
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        let Some(slot_of_caller) = &self.0 else { return };
        let mut slot = slot_of_caller.lock();
        let Some(actor) = slot.as_mut() else {
            drop(slot);
            self.0 = None;
            return;
        };
        let (polled, polled_by) = {
            let lent = Lent::new();
            (Pin::new(actor).poll(cx), lent.end())
        };
        if polled.is_ready() || polled_by == PolledBy::CallersToLeave {
            let actor = slot.take();
            drop(slot);
            if polled.is_pending() {
                spawn(actor);
            }
            self.0 = None;
            return;
        }
        drop(slot);
        if slot_of_caller.wanted.load(Ordering::SeqCst) {
            let actor = slot_of_caller.lock().take();
            spawn(actor);
            self.0 = None;
        }
    }
}

impl<D: Spawn + Unpin> Drop for CallerTurn<D> {
    fn drop(&mut self) {
        if let Some(slot_of_caller) = &self.0 {
            let actor = slot_of_caller.lock().take();
            spawn(actor);
        }
    }
}

/// Marks that a caller polls an actor, until it is dropped, also by a panic.
struct Lent(PolledBy);

impl Lent {
    fn new() -> Self {
        Self(POLLED_BY.with(|polled_by| polled_by.replace(PolledBy::Callers)))
    }

    fn end(self) -> PolledBy {
        POLLED_BY.with(Cell::get)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        POLLED_BY.with(|polled_by| polled_by.set(self.0));
    }
}
