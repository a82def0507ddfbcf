//! The timeline of locks: [`Timeline`] keeps the latest events in memory, and writes them for a viewer.
//!
//! `event.rs` is the data model, which events of other processes share. `tracks.rs` turns events into slices, `trace.rs` writes the
//! slices as a trace, and `page.rs` puts the trace into a page.

pub(crate) mod event;
mod observer;
mod page;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod trace;
mod tracks;

use crate::timeline::event::TimelineEvent;
use crate::timeline::tracks::Recording;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Records who held which lock when, and writes it as a trace or as a page.
///
/// It is an [`Observer`](crate::observer::Observer): pass it to [`ClientBuilder::observer`](crate::ClientBuilder::observer), and keep
/// another `Arc` of it. It keeps the latest events, up to a limit, and counts the older ones that it dropped; both outputs show that number. Events of other
/// processes, also of Java, come by [`record`](Self::record).
///
/// - [`write_trace`](Self::write_trace): the Chrome trace event format, for <https://ui.perfetto.dev> and `chrome://tracing`.
/// - [`write_page`](Self::write_page): one HTML file, which needs no network.
///
/// Each lock is a track. Its holds and its waits are slices with the owner, the kind, the time waited and the end. Losses, re-entries and
/// calls that were refused at once are points. Holds that overlap, as those of readers do, are in rows of their own.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use redisson_lock::{Timeline, TimelineChange, TimelineEvent};
/// use std::time::Duration;
///
/// let timeline = Timeline::new(10_000);
/// let ms = Duration::from_millis;
/// let begun = TimelineChange::Acquired { call: 1, hold: 1, waited: ms(3) };
/// timeline.record(TimelineEvent::new(ms(103), "orders:42", "thread-7", begun).with_source("java"));
/// let released = TimelineChange::Released { hold: 1, held: ms(20) };
/// timeline.record(TimelineEvent::new(ms(123), "orders:42", "thread-7", released).with_source("java"));
///
/// let mut page = Vec::new();
/// timeline.write_page(&mut page)?;
/// # Ok(())
/// # }
/// ```
pub struct Timeline {
    capacity: usize,
    source: String,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<TimelineEvent>,
    dropped: u64,
}

impl Timeline {
    /// A timeline that keeps the latest `capacity` events, at least one. An event takes about 200 bytes and its names.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), source: "this process".to_owned(), ring: Mutex::default() }
    }

    /// Names this process in the outputs. The default is `this process`.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// The time now by the clock of the events: `CLOCK_MONOTONIC`, which the processes of a host share. On Linux, Java's
    /// `System.nanoTime()` reads it, too. On systems other than Unix, it is the time since the first call.
    pub fn now() -> Duration {
        now()
    }

    /// Adds an event, and drops the oldest one if the limit is reached. Events may come in any order.
    pub fn record(&self, event: TimelineEvent) {
        let mut ring = self.ring();
        if ring.events.len() == self.capacity {
            ring.events.pop_front();
            ring.dropped += 1;
        }
        ring.events.push_back(event);
    }

    /// The number of events in memory.
    pub fn len(&self) -> usize {
        self.ring().events.len()
    }

    /// Whether no event is in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of events that were dropped because of the limit.
    pub fn dropped(&self) -> u64 {
        self.ring().dropped
    }

    /// Writes the events in the Chrome trace event format (JSON), with times relative to the first one.
    ///
    /// A hold whose begin was dropped is drawn once it has ended. Holds and waits that have not ended are drawn until now, or until the
    /// last event if they are those of other processes.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_trace(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        trace::write(&self.recording(), &self.source, &mut out)?;
        out.flush()
    }

    /// Writes an HTML page that shows the same as [`write_trace`](Self::write_trace). The page has everything that it needs in itself.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_page(&self, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        page::write(&self.recording(), &self.source, &mut out)?;
        out.flush()
    }

    /// A copy, because a slow writer must not delay those who record.
    fn recording(&self) -> Recording {
        let ring = self.ring();
        Recording { events: ring.events.iter().cloned().collect(), dropped: ring.dropped, now: now() }
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring();
        f.debug_struct("Timeline")
            .field("capacity", &self.capacity)
            .field("events", &ring.events.len())
            .field("dropped", &ring.dropped)
            .finish_non_exhaustive()
    }
}

#[cfg(unix)]
fn now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
fn now() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
