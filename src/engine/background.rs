//! The tasks that give back for guards that were dropped and holds that were lost.
//!
//! Invariants:
//! - They are few, however many lanes there are: a driver at work takes 4 KB, and a program may drop a hundred thousand
//!   guards at once. One dropped guard has a task at once.
//! - A lane that waits for a task has no driver. Whoever else needs it drives it, and gives back first. So its order stays.
//! - Each server has tasks of its own, and none of them stays with a lane for longer than an answer is waited for. So a
//!   server or a slot that does not answer holds up no other.

use crate::engine::key_queue::KeyQueue;
use crate::engine::session::{ActorInHand, Session};
use crate::runtime::sync::{Mutex, MutexGuard, time};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;

/// The lanes of one server that give back at once. With 256 of them a round trip of 1 ms allows 256,000 releases a second.
const AT_ONCE: usize = 256;

/// The lanes that wait for a task, by the name of their server.
#[derive(Default)]
pub(crate) struct Background(Mutex<HashMap<Arc<str>, Queue>>);

#[derive(Default)]
struct Queue {
    lanes: VecDeque<Arc<KeyQueue>>,
    tasks: usize,
}

impl Background {
    /// Sends the releases that wait on `lane`.
    pub(crate) fn give_back(session: &Arc<Session>, mut lane: Arc<KeyQueue>) {
        let server = session.connection.node_of(lane.record());
        let mut queues = session.background.lock();
        let queue = queues.entry(server.clone()).or_default();
        if queue.tasks == AT_ONCE {
            return queue.lanes.push_back(lane);
        }
        queue.tasks += 1;
        drop(queues);
        let this = session.clone();
        session.run(async move {
            loop {
                release(&this, &lane).await;
                match this.background.next(&server) {
                    Some(next) => lane = next,
                    None => return,
                }
            }
        });
    }

    /// The next lane for a task of that server. Without one the task ends.
    fn next(&self, server: &str) -> Option<Arc<KeyQueue>> {
        let mut queues = self.lock();
        let queue = queues.get_mut(server)?;
        let next = queue.lanes.pop_front();
        if next.is_none() {
            queue.tasks -= 1;
            if queue.tasks == 0 {
                queues.remove(server);
            }
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drives a lane until nothing is left to be given back. The rest of its work gets a task of its own.
async fn release(session: &Arc<Session>, lane: &Arc<KeyQueue>) {
    let Some(mut driving) = ActorInHand::of_idle(session, lane) else { return };
    let released = poll_fn(|cx| match Pin::new(&mut driving).poll(cx) {
        Poll::Pending if lane.work().is_releasing() => Poll::Pending,
        _ => Poll::Ready(()),
    });
    let _ = time::timeout(session.options.response_timeout, released).await;
    driving.go_on();
}
