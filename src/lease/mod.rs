//! Holds: the state and the deadline of each hold, the schedule of renewals, and the watchdog that renews; the registration of a client.

pub(crate) mod ending;
pub(crate) mod hold;
mod losses;
pub(crate) mod registration;
pub(crate) mod schedule;
pub(crate) mod spans;
pub(crate) mod status;
pub(crate) mod term;
pub(crate) mod watchdog;
