//! Driving a lane in the hands of the caller who gave it work, who waits for the outcome anyway: where nobody contends
//! that saves a task and two wake-ups a request.
//!
//! Invariants:
//! 4. The work goes on without the caller: a driver whose caller is gone moves to a task of its own on the client's
//!    runtime, and so does one whose lane somebody else needs, because nobody knows when the caller polls it again.
//! - A driver makes no timer in the hands of a caller, whose runtime may end before it: it moves first ([`settle`]).

use crate::runtime::sync::atomic::{AtomicBool, Ordering};
use crate::runtime::sync::{Mutex, MutexGuard, thread_local};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// What a driver that is being polled on this thread is told, and tells.
#[derive(Clone, Copy, PartialEq)]
enum Hands {
    /// It has a task of its own, or this is no driver.
    Own,
    Callers,
    /// A caller's, and it wants a task.
    CallersToLeave,
}

thread_local! {
    static HANDS: Cell<Hands> = const { Cell::new(Hands::Own) };
}

/// Whether what is being polled is a driver in the hands of a caller.
pub(crate) fn in_callers_hands() -> bool {
    HANDS.with(Cell::get) != Hands::Own
}

/// Moves the driver that calls it to a task of its own, if it is in the hands of a caller.
pub(crate) async fn settle() {
    poll_fn(|_| {
        if in_callers_hands() {
            HANDS.with(|hands| hands.set(Hands::CallersToLeave));
            // Polled again by its task.
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// A driver, which can go on in a task of its own.
pub(crate) trait Spawn: Future<Output = ()> {
    fn spawn(self);
}

fn spawn(driver: Option<impl Spawn>) {
    if let Some(driver) = driver {
        driver.spawn();
    }
}

/// Where a driver is that a caller has.
pub(crate) struct Place<D> {
    driver: Mutex<Option<D>>,
    /// Somebody else needs the lane.
    wanted: AtomicBool,
}

impl<D: Spawn + Unpin> Place<D> {
    pub(crate) fn new(driver: D) -> Arc<Self> {
        Arc::new(Self { driver: Mutex::new(Some(driver)), wanted: AtomicBool::new(false) })
    }

    /// Moves the driver to a task, now or as soon as the caller's poll of it is over.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        // Held by a poll: that looks at `wanted` when it has let go.
        let driver = self.driver.try_lock().ok().and_then(|mut driver| driver.take());
        spawn(driver);
    }

    fn lock(&self) -> MutexGuard<'_, Option<D>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller's part in the work that it gave to a lane.
pub(crate) struct Turn<D: Spawn + Unpin>(Option<Arc<Place<D>>>);

impl<D: Spawn + Unpin> Turn<D> {
    pub(crate) fn new(place: Option<Arc<Place<D>>>) -> Self {
        Self(place)
    }

    /// Waits for `outcome`, and drives meanwhile where there is something to drive.
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
        let Some(place) = &self.0 else { return };
        let mut slot = place.lock();
        let Some(driver) = slot.as_mut() else {
            drop(slot);
            self.0 = None;
            return;
        };
        let (polled, hands) = {
            let lent = Lent::new();
            (Pin::new(driver).poll(cx), lent.end())
        };
        if polled.is_ready() || hands == Hands::CallersToLeave {
            let driver = slot.take();
            drop(slot);
            if polled.is_pending() {
                spawn(driver);
            }
            self.0 = None;
            return;
        }
        drop(slot);
        if place.wanted.load(Ordering::SeqCst) {
            let driver = place.lock().take();
            spawn(driver);
            self.0 = None;
        }
    }
}

impl<D: Spawn + Unpin> Drop for Turn<D> {
    fn drop(&mut self) {
        if let Some(place) = &self.0 {
            let driver = place.lock().take();
            spawn(driver);
        }
    }
}

/// While a caller polls a driver. Ends with a panic, too.
struct Lent(Hands);

impl Lent {
    fn new() -> Self {
        Self(HANDS.with(|hands| hands.replace(Hands::Callers)))
    }

    fn end(self) -> Hands {
        HANDS.with(Cell::get)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        HANDS.with(|hands| hands.set(self.0));
    }
}
