//! Measurements of this process.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

fn now(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// A clock that Java's `System.nanoTime` reads too.
pub fn monotonic_ns() -> u64 {
    now(ClockId::Monotonic).as_nanos() as u64
}

/// The CPU time of all threads.
pub fn cpu() -> Duration {
    now(ClockId::ProcessCPUTime)
}

/// The resident memory in bytes.
pub fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}
