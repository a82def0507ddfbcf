//! The clock that every deadline is measured by, and nothing else.
//!
//! On Linux it is `CLOCK_BOOTTIME`, which goes on while the host sleeps: a lease on the server does too.
//! Elsewhere it is [`Instant`], which may stand still in sleep.

#[cfg(all(test, shuttle))]
use crate::sync::time::since_boot;
use std::time::{Duration, Instant};

/// A point of the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// Later than every deadline.
    pub(crate) const FAR: Self = Self(Duration::MAX);

    pub(crate) fn now() -> Self {
        Self(since_boot())
    }

    /// Time from now until this moment; zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_sub(since_boot())
    }

    pub(crate) fn passed(self) -> bool {
        since_boot() >= self.0
    }

    /// Time from `earlier` until this moment; zero if it is the later one.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The last moment, not after this one, that is a whole number of `step`s away from the clock's zero.
    pub(crate) fn rounded_down(self, step: Duration) -> Self {
        let (at, step) = (self.0.as_nanos(), step.as_nanos().max(1));
        u64::try_from(at - at % step).map_or(self, |at| Self(Duration::from_nanos(at)))
    }

    /// The same moment on the standard clock, as seen now.
    pub(crate) fn to_instant(self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.remaining()).unwrap_or(now)
    }
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }
}

#[cfg(all(target_os = "linux", not(all(test, shuttle))))]
fn since_boot() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

#[cfg(not(any(target_os = "linux", all(test, shuttle))))]
fn since_boot() -> Duration {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
