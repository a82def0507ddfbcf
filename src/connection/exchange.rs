//! One exchange with a server: a request and its reply.
//!
//! The future of an exchange has more than 1 KB. Each waiter would have that size, too, if its own future contained it. A new box for each
//! request would be slow, because allocators take locks for sizes like this. So each thread keeps the boxes of a few exchanges that ended.

use super::node::Live;
use super::pulse::Cut;
use crate::protocol::script::{Reply, Request};
use crate::runtime::clock::Moment;
use crate::runtime::sync::select;
use redis::RedisError;
use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio_util::sync::ReusableBoxFuture;

/// A request for one connection.
pub(super) struct Exchange {
    pub live: Arc<Live>,
    pub request: Request,
    /// Send the script's source instead of its digest.
    pub by_source: bool,
    /// Send `ASKING` first.
    pub asking: bool,
}

/// Why an exchange brought no reply.
pub(super) enum NoReply {
    Cut(Cut),
    Failed(RedisError),
}

/// An exchange that ended, and its reply. The reply is `None` if the request's fast path did nothing.
pub(super) type Exchanged = (Exchange, Result<Option<Reply>, NoReply>);

impl Exchange {
    pub(super) fn new(live: Arc<Live>, request: Request) -> Self {
        Self { live, request, by_source: false, asking: false }
    }

    /// Sends the request once, and waits for the reply until `until`. `now` is the current time.
    pub(super) fn send(self, now: Moment, until: Moment) -> Sending {
        let sending = async move {
            let Self { live, request, by_source, asking } = &self;
            let answer = select! {
                biased;
                answer = live.exchange(request, *by_source, *asking) => answer.map_err(NoReply::Failed),
                cut = live.cut(now, until) => Err(NoReply::Cut(cut)),
            };
            (self, answer)
        };
        // In a thread that is ending, the boxes may be gone.
        let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        Sending(Some(match free {
            Some(mut free) => {
                free.set(sending);
                free
            }
            None => SendingBox::new(sending),
        }))
    }
}

type SendingBox = ReusableBoxFuture<'static, Exchanged>;

/// The number of boxes that a thread keeps.
const KEPT: usize = 16;

thread_local!(static FREE: RefCell<Vec<SendingBox>> = const { RefCell::new(Vec::new()) });

/// An exchange that runs when it is polled. If it is dropped before its end, its box is not used again.
pub(super) struct Sending(Option<SendingBox>);

impl Future for Sending {
    type Output = Exchanged;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exchanged> {
        let Some(sending) = &mut self.0 else { unreachable!("polled after its end") };
        let exchanged = ready!(sending.poll(cx));
        // A future that has ended has dropped what it had.
        let ended = self.0.take();
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.extend(ended);
            }
        });
        Poll::Ready(exchanged)
    }
}
