//! The clock that every deadline is measured by, and nothing else.
//!
//! On Linux it is `CLOCK_BOOTTIME`, which goes on while the host sleeps: a lease on the server does too.
//! Elsewhere it is [`Instant`], which may stand still in sleep.

#[cfg(all(test, shuttle))]
use crate::sync::time::since_boot;
use std::sync::{Mutex, PoisonError};
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

    /// The same moment on the standard clock. The same one each time, unless the host slept in between.
    pub(crate) fn to_instant(self) -> Instant {
        let (moment, instant) = anchor();
        let then = match self.0.checked_sub(moment.0) {
            Some(later) => instant.checked_add(later),
            None => instant.checked_sub(moment.0 - self.0),
        };
        then.unwrap_or(instant)
    }
}

/// A point of both clocks, kept until one of them has stood still.
fn anchor() -> (Moment, Instant) {
    const READING: Duration = Duration::from_millis(1);
    static ANCHOR: Mutex<Option<(Moment, Instant)>> = Mutex::new(None);
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    // The reading in the middle may be any time after the first one and before the last.
    let (before, now, after) = (Instant::now(), Moment::now(), Instant::now());
    let holds = |&(moment, instant): &(Moment, Instant)| {
        let expected = instant + now.since(moment);
        before <= expected + READING && expected <= after + READING
    };
    match anchor.filter(holds) {
        Some(kept) => kept,
        None => *anchor.insert((now, before)),
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_instant_each_time() {
        let moments = [Moment::now(), Moment::now() + Duration::from_secs(30), Moment(Duration::ZERO)];
        let instants = moments.map(Moment::to_instant);
        assert!(instants[0] <= Instant::now() && instants[1] > Instant::now());
        for _ in 0..10_000 {
            assert_eq!(moments.map(Moment::to_instant), instants);
        }
    }
}
