//! Holds: the state and the deadline of each hold, the schedule of renewals, and the watchdog that renews.

pub(crate) mod hold;
mod losses;
pub(crate) mod schedule;
pub(crate) mod status;
pub(crate) mod term;
pub(crate) mod watchdog;
