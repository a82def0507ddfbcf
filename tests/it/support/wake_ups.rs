//! The times that wake-ups take, and their bound.

use std::time::{Duration, Instant};

use super::Stopwatch;
use super::clock::monotonic_ns;

/// A message wakes a waiter well within this time. A wake-up by a timer takes much longer.
pub const WOKEN: Duration = Duration::from_millis(20);

/// The times of several wake-ups, without the machine's own delays.
pub struct WakeUps {
    watch: Stopwatch,
    took: Vec<Duration>,
}

impl WakeUps {
    pub fn new() -> Self {
        Self { watch: Stopwatch::start(), took: Vec::new() }
    }

    /// Adds the time between two readings of [`monotonic_ns`], of this process or of Java. It is zero if the second
    /// comes first.
    pub fn add(&mut self, from: u64, to: u64) {
        let (now, now_ns) = (Instant::now(), monotonic_ns());
        let at = |ns: u64| now - Duration::from_nanos(now_ns.saturating_sub(ns));
        self.took.push(self.watch.between(at(from), at(to)));
    }

    /// Asserts that the median is below `limit`, and every time below five seconds.
    #[track_caller]
    pub fn assert_below(mut self, limit: Duration, what: &str) {
        self.took.sort_unstable();
        let (median, longest) = (self.took[self.took.len() / 2], self.took[self.took.len() - 1]);
        println!("{what}: median {median:?}, longest {longest:?}");
        assert!(median < limit && longest < Duration::from_secs(5), "{what}: {median:?}, {longest:?}");
    }
}
