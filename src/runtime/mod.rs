//! An abstraction of std and tokio that tests can replace: mutexes, timers and tasks of std and tokio, or those of `tests/shuttle`; the
//! clock; wake-ups; several futures in one task; the name of the host.

pub(crate) mod clock;
pub(crate) mod gather;
pub(crate) mod host;
pub(crate) mod mutex;
pub(crate) mod sync;
pub(crate) mod wakeup;
