//! Writes the requests of many tasks at once.
//!
//! Each write to a socket is a system call, and may have to wake the server. If each request were written as soon as it comes, tasks that
//! are ready at the same time would pay for one write each. If all of them were written at once, the server would have nothing to do until
//! then. So a write that follows another one without a reply in between waits. The wait ends when the other ready tasks have run, when
//! there is a portion to write, or when a reply comes. Portions are in proportion to the commands in flight. Requests that other tasks send
//! meanwhile join the write.

use crate::runtime::mutex::Mutex;
use std::io::{IoSlice, Result};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

/// The least size of a portion, in bytes: about two requests. While they are scripts, larger portions are slower, because a server takes
/// longer for them.
const LEAST_PORTION: usize = 256;
/// The size of a portion, in bytes for each command in flight. Most commands have 100 to 200 bytes, so a portion is a sixth of those in
/// flight.
const PORTION: usize = 24;

/// The number of commands on one connection that wait for a reply. A script does not count.
#[derive(Clone, Debug, Default)]
pub(super) struct Load(Arc<AtomicUsize>);

impl Load {
    /// Counts a command until the guard is dropped.
    pub(super) fn enter(&self) -> impl Drop {
        self.0.fetch_add(1, Ordering::Relaxed);
        Loaded(&self.0)
    }

    /// The number of bytes that are not kept waiting.
    fn portion(&self) -> usize {
        LEAST_PORTION.max(self.0.load(Ordering::Relaxed) * PORTION)
    }
}

struct Loaded<'a>(&'a AtomicUsize);

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that coalesces writes. Its user flushes it after each series of writes.
pub(super) struct Coalesced<S> {
    stream: S,
    /// Something was written, and nothing was read since.
    unanswered: bool,
    load: Load,
    state: State,
    turn: Arc<Turn>,
}

enum State {
    /// Nothing was written since the last flush.
    Flushed,
    /// A write waits for its turn.
    Waiting,
    Writing,
}

/// The turn of a write. The runtime gives it after the tasks that are ready.
#[derive(Default)]
struct Turn {
    has_come: AtomicBool,
    writer: Mutex<Option<Waker>>,
}

impl Turn {
    /// Asks the runtime for the turn.
    fn request(self: &Arc<Self>) {
        self.has_come.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.clone());
        // The first poll passes the waker to the runtime.
        let _ = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    }

    /// Waits for the turn. Each request that a task sends wakes the writer, too, and must not end the wait.
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut writer = self.writer.lock();
        match &mut *writer {
            Some(writer) => writer.clone_from(cx.waker()),
            None => *writer = Some(cx.waker().clone()),
        }
        if self.has_come.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl<S> Coalesced<S> {
    /// `load` is that of the connection.
    pub(super) fn new(stream: S, load: Load) -> Self {
        Self { stream, unanswered: false, load, state: State::Flushed, turn: Arc::default() }
    }

    /// Waits until `bytes` may be written.
    fn poll_turn(&mut self, cx: &Context<'_>, bytes: usize) -> Poll<()> {
        // A task that blocks its thread may delay the turn, so a reply ends the wait, too.
        let may_wait = self.unanswered && bytes < self.load.portion();
        if may_wait && !matches!(self.state, State::Writing) {
            if matches!(self.state, State::Flushed) {
                self.turn.request();
                self.state = State::Waiting;
            }
            ready!(self.turn.poll(cx));
        }
        (self.state, self.unanswered) = (State::Writing, true);
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.unanswered = false;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        ready!(self.poll_turn(cx, buf.len()));
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        ready!(self.poll_turn(cx, bufs.iter().map(|buf| buf.len()).sum()));
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.state = State::Flushed;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// A stream after its first write, and the server's end of it. `commands` are in flight.
    async fn after_a_write(commands: usize) -> (Coalesced<DuplexStream>, DuplexStream) {
        let (client, server) = duplex(8192);
        let mut client = Coalesced::new(client, Load(Arc::new(commands.into())));
        let written = poll_fn(|cx| Poll::Ready(Pin::new(&mut client).poll_write(cx, b"1"))).await;
        assert!(matches!(written, Poll::Ready(Ok(1))), "a request that is alone is written at once");
        client.flush().await.unwrap();
        (client, server)
    }

    #[tokio::test]
    async fn a_write_without_a_reply_to_the_last_one_waits_for_the_tasks_that_are_ready() {
        let (mut client, _server) = after_a_write(1).await;
        let ready = Arc::new(AtomicBool::new(false));
        let ran = ready.clone();
        tokio::spawn(async move { ran.store(true, Ordering::Relaxed) });
        poll_fn(|cx| {
            // A request of another task polls the writer again.
            for _ in 0..2 {
                if Pin::new(&mut client).poll_write(cx, &[b'2'; LEAST_PORTION - 1]).is_ready() {
                    assert!(ready.load(Ordering::Relaxed), "written before the ready task has run");
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Whether `bytes` are written when they are polled once.
    async fn is_written(client: &mut Coalesced<DuplexStream>, bytes: usize) -> bool {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *client).poll_write(cx, &vec![b'2'; bytes]))).await.is_ready()
    }

    #[tokio::test]
    async fn a_write_after_a_reply_is_written_at_once() {
        let (mut client, mut server) = after_a_write(1).await;
        server.write_all(b"r").await.unwrap();
        client.read_u8().await.unwrap();
        assert!(is_written(&mut client, 1).await);
    }

    #[tokio::test]
    async fn a_reply_ends_the_wait_of_a_write() {
        let (mut client, mut server) = after_a_write(0).await;
        server.write_all(b"r").await.unwrap();
        // In one poll, so that the turn cannot come.
        poll_fn(|cx| {
            assert!(Pin::new(&mut client).poll_write(cx, b"2").is_pending());
            assert!(Pin::new(&mut client).poll_read(cx, &mut ReadBuf::new(&mut [0])).is_ready());
            assert!(Pin::new(&mut client).poll_write(cx, b"2").is_ready());
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn a_portion_is_written_at_once() {
        for (commands, portion) in [(0, LEAST_PORTION), (100, 100 * PORTION)] {
            let (mut client, _server) = after_a_write(commands).await;
            assert!(!is_written(&mut client, portion - 1).await);
            assert!(is_written(&mut client, portion).await);
        }
    }

    #[test]
    fn the_load_is_the_number_of_commands_in_flight() {
        let load = Load::default();
        let mut commands: Vec<_> = (0..101).map(|_| load.enter()).collect();
        commands.pop();
        assert_eq!(load.portion(), 100 * PORTION);
    }
}
