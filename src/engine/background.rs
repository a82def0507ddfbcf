//! The tasks that send the releases of dropped guards and lost holds.
//!
//! Invariants:
//! 1. The number of tasks for a server is bounded while the server replies. An actor that talks to the server takes 3 KB, and a program
//!    may drop 100,000 guards at once. A task starts without delay until the bound is reached.
//! 2. A key queue that waits for a task has no actor. Another caller that needs the queue starts its actor, which sends the
//!    releases first. So the order of the queue is kept.
//! 3. Each server has tasks of its own, and a task stays with a queue for at most the response timeout. Then the queue's actor gets a
//!    task of its own, beyond the bound. So a server or slot that does not respond delays no other.

use crate::engine::actor;
use crate::engine::key_queue::KeyQueue;
use crate::engine::session::{Session, Unserved};
use crate::runtime::mutex::Mutex;
use crate::runtime::sync::time;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::mpsc::UnboundedReceiver;

/// The maximum number of tasks for a server. With 256 tasks and a round trip of 1 ms, 256,000 releases a second are possible.
const AT_ONCE: usize = 256;

/// Serves the key queues that need an actor.
pub(crate) async fn serve(mut unserved: UnboundedReceiver<Unserved>) {
    let background = Arc::<Background>::default();
    while let Some((session, queue)) = unserved.recv().await {
        background.serve(session, queue);
    }
}

/// The key queues that wait for a task, by the name of their server.
#[derive(Default)]
struct Background(Mutex<HashMap<Arc<str>, Backlog>>);

#[derive(Default)]
struct Backlog {
    queues: VecDeque<Arc<KeyQueue>>,
    tasks: usize,
}

impl Background {
    /// Gives `queue` to a task that sends its releases, now or when a task is free.
    fn serve(self: &Arc<Self>, session: Arc<Session>, queue: Arc<KeyQueue>) {
        let server = session.connection.node_of(queue.record());
        let mut backlogs = self.0.lock();
        let backlog = backlogs.entry(server.clone()).or_default();
        backlog.queues.push_back(queue);
        if backlog.tasks == AT_ONCE {
            return;
        }
        backlog.tasks += 1;
        drop(backlogs);
        let (this, session_of_task) = (self.clone(), session.clone());
        session.spawn(async move {
            while let Some(queue) = this.next(&server) {
                release(&session_of_task, &queue).await;
            }
        });
    }

    /// The next key queue for a task of `server`. If there is none, the task ends.
    fn next(&self, server: &str) -> Option<Arc<KeyQueue>> {
        let mut backlogs = self.0.lock();
        let backlog = backlogs.get_mut(server)?;
        let next = backlog.queues.pop_front();
        if next.is_none() {
            backlog.tasks -= 1;
            if backlog.tasks == 0 {
                backlogs.remove(server);
            }
        }
        next
    }
}

/// Polls the actor of `queue` until its releases are sent, for at most the response timeout. Any remaining work gets a task of
/// its own.
async fn release(session: &Arc<Session>, queue: &Arc<KeyQueue>) {
    let Some(mut actor) = actor::for_idle(session, queue) else { return };
    let mut done = false;
    let released = poll_fn(|cx| {
        done = actor.as_mut().poll(cx).is_ready();
        if done || !queue.work().is_releasing() { Poll::Ready(()) } else { Poll::Pending }
    });
    let _ = time::timeout(session.options.response_timeout, released).await;
    if !done {
        session.spawn(actor);
    }
}
