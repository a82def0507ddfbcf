//! Holds: the state and the deadline of each hold, the schedule of renewals, and the watchdog that renews.

pub mod hold;
pub mod schedule;
pub mod watchdog;
