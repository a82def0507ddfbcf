//! The clock that this process shares with the Java peer.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds, which is also what Java's `System.nanoTime` reads on Linux.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let nanoseconds = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    u64::try_from(nanoseconds).expect("the clock starts at 0 and u64 lasts for 584 years")
}
