//! An abstraction of std and tokio that tests can replace: mutexes, timers and tasks of std and tokio, or those of `tests/shuttle`; the
//! clock; wake-ups.

pub mod clock;
pub mod mutex;
pub mod sync;
pub mod wakeup;
