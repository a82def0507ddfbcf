//! The key actor: the one loop that serves a key queue, for every kind of lock.
//!
//! [`run_actor`] runs until the queue has no work left. A step releases or hands off (`release.rs`), attempts or re-enters
//! (`attempt.rs`), deals with other clients (`contention.rs`), or waits. No mutex is held between two steps. What the actor knows of
//! the lock in Redis (`BusyReply`) belongs to the queue and not to its first waiter, so the next waiter inherits it.
//!
//! `attempt.rs` has the invariants of grants and repeats. Here: the epoch is read before an attempt is sent, so a message that overtakes
//! the reply is not lost.

use crate::engine::key_actor::{KeyActor, PendingDequeue};
use crate::engine::session::{KeyQueue, Session};
use crate::engine::step::{Action, Step};
use crate::engine::work::{Release, Work};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::MutexGuard;
use crate::runtime::sync::{select, time};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
        false => RunningActor::new(session, queue).spawn(),
    }
    if session.is_closed() {
        // `close` may have emptied the queue before its work was added.
        queue.drop_work();
    }
}

/// Serves `queue` until it has no work left.
pub(crate) fn run_actor(
    session: Arc<Session>,
    queue: Arc<KeyQueue>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut actor = KeyActor::new(session, queue);
        loop {
            // In a block of its own, because a waiting actor should not keep the step.
            let until = {
                let step = actor.next();
                #[cfg(all(test, shuttle))]
                crate::runtime::sync::observe(&actor, &step);
                match step {
                    Step::Wait(until) => {
                        actor.queue.work().note_wait();
                        Some(until)
                    }
                    // Boxed, because it takes 3 KB, which a waiting actor should not keep.
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
    })
}

impl KeyActor {
    async fn act(&mut self, action: Action) {
        match action {
            Action::Release(Release::Level(level)) => self.release(level).await,
            Action::Release(Release::Free(freeing, repeated, reply)) => {
                let outcome = self.free(&freeing, repeated).await;
                if let Some(reply) = reply {
                    let _ = reply.send(outcome);
                }
            }
            Action::Release(Release::Undo(undo)) => self.undo(&undo).await,
            Action::Release(Release::Dequeue(kind, owner_id)) => {
                self.dequeue(PendingDequeue::new(kind, owner_id)).await
            }
            Action::RetryDequeue(dequeue) => self.dequeue(dequeue).await,
            Action::Reenter(waiters) => self.reenter(waiters).await,
            Action::Attempt(attempt) => self.attempt(attempt).await,
            Action::ProbeHolder(kind) => self.probe_holder(&kind).await,
            Action::CountCrowd => self.count_crowd().await,
            Action::Check => self.check().await,
            Action::Refresh(kind) => self.refresh(&kind).await,
            Action::MoveRecord => self.move_record().await,
        }
        self.queue.work().end_request();
    }

    async fn wait(&self, until: Moment) {
        let until = self.refresh_at.map_or(until, |at| until.min(at));
        let woken = async {
            select! {
                () = self.queue.signal.get().woken() => {}
                () = time::sleep(until.remaining()) => {}
            }
        };
        if self.dequeues.is_empty() {
            return woken.await;
        }
        // Boxed, because few actors wait for this, and it would make all of them larger.
        Box::pin(async {
            select! {
                () = woken => {}
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

/// A running actor. If it is dropped before its work is done, because its runtime ended, it closes the session.
pub(crate) struct RunningActor {
    queue: Arc<KeyQueue>,
    actor: Pin<Box<dyn Future<Output = ()> + Send>>,
    done: bool,
}

impl RunningActor {
    fn new(session: &Arc<Session>, queue: &Arc<KeyQueue>) -> Self {
        Self { queue: queue.clone(), actor: run_actor(session.clone(), queue.clone()), done: false }
    }

    /// An actor for a key queue that has releases and no actor.
    pub(crate) fn for_idle(session: &Arc<Session>, queue: &Arc<KeyQueue>) -> Option<Self> {
        let mut work = queue.work();
        let idle = !work.has_actor && !work.removed && !work.releases.is_empty();
        idle.then(|| {
            work.has_actor = true;
            Self::new(session, queue)
        })
    }

    /// Moves the actor to a task of its own, on the client's runtime, unless its work is done. If the session is gone, there is no
    /// work left.
    pub(crate) fn spawn(self) {
        if !self.done
            && let Some(session) = self.queue.session.upgrade()
        {
            session.spawn(self);
        }
    }
}

impl Future for RunningActor {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.done = self.actor.as_mut().poll(cx).is_ready();
        if self.done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for RunningActor {
    fn drop(&mut self) {
        if !self.done {
            self.queue.work().has_actor = false;
            if let Some(session) = self.queue.session.upgrade() {
                session.close();
            }
            self.queue.drop_work();
        }
    }
}
