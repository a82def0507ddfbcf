//! Reusable boxes for the futures of actors that talk to the server.
//!
//! Such a future takes 3 KB, which a waiting actor should not keep, so it has a box of its own. The boxes are reused: they are too
//! large for an allocator's thread cache, so threads that allocate and free them wait for each other.

use crate::engine::actor::KeyActor;
use crate::runtime::sync::thread_local;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::sync::ReusableBoxFuture;

thread_local! {
    static BOXES: RefCell<Vec<ReusableBoxFuture<'static, KeyActor>>> = const { RefCell::new(Vec::new()) };
}
/// The number of boxes that a thread keeps.
const KEPT: usize = 16;

/// A step of an actor. Its output is the actor.
pub(crate) struct ActorFuture(Option<ReusableBoxFuture<'static, KeyActor>>);

impl ActorFuture {
    pub(crate) fn new(work: impl Future<Output = KeyActor> + Send + 'static) -> Self {
        let kept = BOXES.try_with(|boxes| boxes.borrow_mut().pop()).ok().flatten();
        Self(Some(match kept {
            Some(mut kept) => {
                kept.set(work);
                kept
            }
            None => ReusableBoxFuture::new(work),
        }))
    }
}

impl Future for ActorFuture {
    type Output = KeyActor;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<KeyActor> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        let actor = ready!(work.poll(cx));
        let done = self.0.take();
        let _ = BOXES.try_with(|boxes| {
            let mut boxes = boxes.borrow_mut();
            if boxes.len() < KEPT {
                boxes.extend(done);
            }
        });
        Poll::Ready(actor)
    }
}
