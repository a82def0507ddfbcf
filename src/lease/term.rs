//! The terms of levels.

use crate::runtime::clock::Moment;
use std::fmt;

/// How long a level keeps its hold, unless it is released before: until a moment, and either as long as the watchdog renews or with a fixed
/// lease.
///
/// In one word, because each hold and each guard has one. The last bit says whether the watchdog renews. The clock and leases
/// have an even number of nanoseconds, so nothing is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelTerm(Moment);

impl LevelTerm {
    const RENEWED: u64 = 1;

    /// As long as the watchdog renews, and at most until `end`.
    pub(crate) fn renewed(end: Moment) -> Self {
        Self(Moment::from_nanos(end.nanos() | Self::RENEWED).unwrap_or(end))
    }

    /// Until `end`.
    pub(crate) fn fixed(end: Moment) -> Self {
        Self(Moment::from_nanos(end.nanos() & !Self::RENEWED).unwrap_or(end))
    }

    pub(crate) fn end(self) -> Moment {
        self.0
    }

    pub(crate) fn renewed_until(self) -> Option<Moment> {
        (self.0.nanos() & Self::RENEWED != 0).then_some(self.0)
    }
}

impl fmt::Debug for LevelTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.renewed_until().is_some() { "Renewed" } else { "Fixed" };
        f.debug_tuple(name).field(&self.0).finish()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_term_keeps_its_end_and_how_it_lasts() {
        for end in
            [1, 2, 3, 1_000_000_001, u64::MAX - 1].map(|nanos| Moment::from_nanos(nanos).expect("not 0"))
        {
            let (renewed, fixed) = (LevelTerm::renewed(end), LevelTerm::fixed(end));
            assert_eq!(renewed.renewed_until(), Some(renewed.end()));
            assert!(renewed.end().nanos().abs_diff(end.nanos()) <= 1);
            if end.nanos() > 1 {
                assert_eq!(fixed.renewed_until(), None);
                assert!(fixed.end() <= end && end.nanos() - fixed.end().nanos() <= 1);
            }
        }
        assert_eq!(LevelTerm::renewed(Moment::FAR).end(), Moment::FAR);
    }
}
