//! Holds: the state and the deadline of each, when a renewal is due, and the watchdog that renews.

pub mod hold;
pub mod schedule;
pub mod watchdog;
