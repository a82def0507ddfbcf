//! A driver that talks to the server is a future of 3 KB, which one that waits is not to keep: so it is in a box of its
//! own. The boxes are used again, because they are too large for what an allocator keeps for a thread, and two threads
//! that take and give such boxes wait for each other.

use crate::engine::actor::KeyActor;
use crate::runtime::sync::thread_local;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio_util::sync::ReusableBoxFuture;

thread_local! {
    static BOXES: RefCell<Vec<ReusableBoxFuture<'static, KeyActor>>> = const { RefCell::new(Vec::new()) };
}
/// So many are kept by a thread.
const KEPT: usize = 16;

/// An action of a driver. Gives the driver back.
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
        let driver = ready!(work.poll(cx));
        let done = self.0.take();
        let _ = BOXES.try_with(|boxes| {
            let mut boxes = boxes.borrow_mut();
            if boxes.len() < KEPT {
                boxes.extend(done);
            }
        });
        Poll::Ready(driver)
    }
}
