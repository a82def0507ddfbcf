//! Several futures in one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Polls all `futures` in this task until all are done, or until the finished ones are `enough`. Drops the others.
pub(crate) async fn gather<F: Future>(
    futures: impl IntoIterator<Item = F>,
    enough: impl Fn(&[Option<F::Output>]) -> bool,
) -> Vec<Option<F::Output>> {
    let mut running: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut done: Vec<_> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (running, done) in running.iter_mut().zip(&mut done) {
            if let Some(future) = running
                && let Poll::Ready(output) = Pin::new(future).poll(cx)
            {
                (*running, *done) = (None, Some(output));
            }
        }
        if enough(&done) || running.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done
}
