//! The terms of levels.

use crate::runtime::clock::Moment;

/// How long a level keeps its hold, unless it is released before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelTerm {
    /// As long as the watchdog renews, and at most until this moment.
    Renewed(Moment),
    /// Until this moment.
    Fixed(Moment),
}

impl LevelTerm {
    pub(crate) fn end(self) -> Moment {
        match self {
            Self::Renewed(end) | Self::Fixed(end) => end,
        }
    }

    pub(crate) fn renewed_until(self) -> Option<Moment> {
        match self {
            Self::Renewed(end) => Some(end),
            Self::Fixed(_) => None,
        }
    }
}
