//! The key actor: the one loop that serves a key queue, for every kind of lock.
//!
//! [`serve`] runs until the queue has no work left. A step releases (`release.rs`), hands off (`hand_off.rs`, `pipelined.rs`), passes
//! permits (`permits.rs`), attempts or re-enters (`attempt.rs`), deals with other clients (`contention.rs`), or waits. No mutex is held
//! between two steps. The actor keeps the last busy reply beyond the waiter that got it, so the next waiter inherits it. Exception: shared
//! kinds (`BusyReply::only`).
//!
//! `attempt.rs` has the invariants of grants and repeats. Here: the epoch is read before an attempt is sent, so a message that overtakes
//! the reply is not lost.

use crate::engine::current::Rest;
use crate::engine::key_actor::KeyActor;
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::Release;
use crate::engine::session::Session;
use crate::engine::step::{Action, Step};
use crate::engine::work::Work;
use crate::kinds::kind::HeldPermits;
use crate::runtime::clock::Moment;
use crate::runtime::mutex::MutexGuard;
use crate::runtime::sync::{select, time};
use std::pin::Pin;
use std::sync::Arc;

/// Adds work to a key queue, or to the queue that has replaced it in the table, and makes sure that an actor serves it. The caller
/// has checked the process.
pub(crate) fn submit<T>(session: &Arc<Session>, queue: Arc<KeyQueue>, add: impl FnOnce(&mut Work) -> T) -> T {
    let serve = |queue: &Arc<KeyQueue>, work: MutexGuard<'_, Work>| {
        if !work.has_actor || session.is_closed() || !work.only_joins() {
            wake(session, queue, work);
        }
    };
    session.add_work(queue, add, serve)
}

/// Wakes the actor of a key queue, or starts one.
pub(crate) fn wake(session: &Arc<Session>, queue: &Arc<KeyQueue>, mut work: MutexGuard<'_, Work>) {
    let has_actor = std::mem::replace(&mut work.has_actor, true);
    drop(work);
    match has_actor {
        true => queue.signal.nudge(),
        false => session.spawn(serve(session.clone(), queue.clone())),
    }
    if session.is_closed() {
        // `close` may have emptied the queue before its work was added.
        queue.drop_work();
    }
}

/// Serves `queue` until it has no work left. If the future is dropped earlier, because its runtime ended, it closes the session.
fn serve(session: Arc<Session>, queue: Arc<KeyQueue>) -> impl Future<Output = ()> + Send + use<> {
    let mut actor = KeyActor::new(session, queue);
    async move {
        loop {
            // In a block of its own, because a waiting actor should not keep the step.
            let until = {
                let step = actor.next();
                #[cfg(all(test, shuttle))]
                crate::runtime::sync::observe(&actor, &step);
                match step {
                    Step::Wait(until) => {
                        let subscribed = actor.own_subscriptions() > 0;
                        actor.queue.work().note_wait(Rest { until, subscribed, epoch: actor.epoch });
                        Some(until)
                    }
                    // Boxed, because it takes 1 KB, which a waiting actor should not keep. (From 1,032 bytes on, glibc's allocator
                    // takes a lock.)
                    Step::Do(action) => {
                        Box::pin(actor.act(action)).await;
                        None
                    }
                    Step::Tell(ticket, outcome) => {
                        actor.tell(ticket, outcome);
                        None
                    }
                    Step::Again => None,
                    Step::Finish => return,
                }
            };
            if let Some(until) = until {
                actor.wait(until).await;
            }
        }
    }
}

/// An actor for a key queue that needs one and has none.
pub(crate) fn for_idle(
    session: &Arc<Session>,
    queue: &Arc<KeyQueue>,
) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let mut work = queue.work();
    if work.has_actor || work.removed || !work.needs_cleanup() {
        return None;
    }
    work.has_actor = true;
    drop(work);
    Some(Box::pin(serve(session.clone(), queue.clone())))
}

impl KeyActor {
    /// Does what a step requires.
    #[expect(clippy::manual_async_fn, reason = "an async function would store `action` twice")]
    fn act(&mut self, action: Action) -> impl Future<Output = ()> + Send {
        async move {
            match action {
                Action::Release(Release::Level(level)) => {
                    let left = match level.hold.kind.permits() {
                        Some(HeldPermits::WithIds(_)) => self.pass_permits(level).await,
                        _ => Some(level),
                    };
                    if let Some(level) = left {
                        self.release(level).await;
                    }
                }
                Action::Release(Release::Free(freeing, repeated, reply)) => {
                    let outcome = self.hand_off_or_free(freeing, repeated).await;
                    self.end_release(outcome, reply);
                }
                Action::Release(Release::Undo(undo)) => self.undo(&undo).await,
                Action::Release(Release::Dequeue(dequeue)) => self.dequeue(dequeue).await,
                Action::Reenter(waiters) => self.reenter(waiters).await,
                Action::Attempt(attempt) => {
                    self.queue.work().attempting = Some(attempt.ticket);
                    self.attempt(attempt).await;
                    self.queue.work().attempting = None;
                }
                Action::ProbeHolder(kind) => self.probe_holder(&kind).await,
                Action::CountCrowd => self.count_crowd().await,
                Action::Check => self.check().await,
                Action::Refresh(kind) => self.refresh(&kind).await,
                Action::MoveRecord => self.move_record().await,
            }
            if self.queue.is_readers() {
                self.queue.work().in_flight = None;
            }
        }
    }

    async fn wait(&self, until: Moment) {
        let refresh_at = self.refresh_at.filter(|_| !self.is_behind_caller);
        let until = refresh_at.map_or(until, |at| until.min(at));
        let woken = time::timeout(until.remaining(), self.queue.signal.get().woken());
        if self.dequeues.is_empty() || self.is_behind_caller {
            let _ = woken.await;
            return;
        }
        // Boxed, because few actors wait for this, and it would make all of them larger.
        Box::pin(async {
            select! {
                _ = woken => {}
                () = self.dequeue_due() => {}
            }
        })
        .await;
    }

    /// Completes when removals from Redis's queue may be retried.
    async fn dequeue_due(&self) {
        time::sleep(self.dequeue_at.remaining()).await;
        let mut connection = self.session.connection.clone();
        while !connection.is_up(self.queue.record()) {
            connection.changed().await;
        }
    }
}

impl Drop for KeyActor {
    fn drop(&mut self) {
        if !self.done {
            self.queue.work().has_actor = false;
            self.session.close();
            self.queue.drop_work();
        }
    }
}
