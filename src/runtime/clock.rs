//! The clock of all deadlines.
//!
//! On Linux it is `CLOCK_BOOTTIME`, which advances while the host sleeps, as the lease on the server does. Elsewhere it is
//! [`Instant`], which may stop during sleep.

#[cfg(all(test, shuttle))]
use crate::runtime::sync::time::since_boot;
use std::num::NonZeroU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A point in time, in nanoseconds of the boot-time clock. An `Option<Moment>` takes eight bytes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    /// Later than every deadline.
    pub(crate) const FAR: Self = Self(NonZeroU64::MAX);

    /// An even number of nanoseconds, see `LevelTerm`.
    pub(crate) fn now() -> Self {
        Self::at(nanos(since_boot()) & !1)
    }

    fn at(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }

    /// Never 0.
    pub(crate) fn nanos(self) -> u64 {
        self.0.get()
    }

    pub(crate) fn from_nanos(nanos: u64) -> Option<Self> {
        NonZeroU64::new(nanos).map(Self)
    }

    /// Time from now until this moment; zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.since(Self::now())
    }

    pub(crate) fn passed(self) -> bool {
        Self::now() >= self
    }

    /// Time from `earlier` until this moment; zero if it is the later one.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    /// The last moment that is a whole number of `step`s after the clock's zero and not after this moment.
    pub(crate) fn rounded_down(self, step: Duration) -> Self {
        Self::at(self.0.get() - self.0.get() % nanos(step).max(1))
    }

    /// The first moment that is a whole number of `step`s after the clock's zero and not before this moment.
    pub(crate) fn rounded_up(self, step: Duration) -> Self {
        (self + step - Duration::from_nanos(1)).rounded_down(step)
    }

    /// This moment on the standard clock. The result is the same each time, unless the host slept in between.
    pub(crate) fn to_instant(self) -> Instant {
        let (moment, instant) = anchor();
        let then = match self >= moment {
            true => instant.checked_add(self.since(moment)),
            false => instant.checked_sub(moment.since(self)),
        };
        then.unwrap_or(instant)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl std::ops::Add<Duration> for Moment {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

impl std::ops::Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self::at(self.0.get().saturating_sub(nanos(by)))
    }
}

/// A reading of both clocks at one time. It is kept until one of the clocks has stopped for a while.
fn anchor() -> (Moment, Instant) {
    const READING: Duration = Duration::from_millis(1);
    static ANCHOR: Mutex<Option<(Moment, Instant)>> = Mutex::new(None);
    let mut anchor = ANCHOR.lock().unwrap_or_else(PoisonError::into_inner);
    // `now` was read at some time between `before` and `after`.
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
        let moments = [Moment::now(), Moment::now() + Duration::from_secs(30), Moment::at(0)];
        let instants = moments.map(Moment::to_instant);
        assert!(instants[0] <= Instant::now() && instants[1] > Instant::now());
        for _ in 0..10_000 {
            assert_eq!(moments.map(Moment::to_instant), instants);
        }
    }
}
