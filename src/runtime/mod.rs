//! The seam to the runtime: locks, timers and tasks of std and tokio, or those of `tests/shuttle`; the clock; wake-ups.

pub mod clock;
pub mod in_place;
pub mod sync;
pub mod wakeup;
