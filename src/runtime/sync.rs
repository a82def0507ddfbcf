//! What the crate shares, waits and runs by: the locks of std, the timers and tasks of tokio.
//!
//! In the tests under `cfg(shuttle)` these are others, of the same names, which are scheduled at random and keep a
//! time of their own (see `tests/shuttle`).

#[cfg(not(all(test, shuttle)))]
pub(crate) use {
    real::random,
    std::sync::{Mutex, MutexGuard, atomic},
    std::thread_local,
    tokio::{runtime::Handle, select, sync::watch, task, time},
};

#[cfg(all(test, shuttle))]
pub(crate) use crate::shuttled::sync::{
    Handle, Mutex, MutexGuard, atomic, random, select, task, thread_local, time, watch,
};

#[cfg(not(all(test, shuttle)))]
mod real {
    /// A number that nobody can foresee.
    pub(crate) fn random() -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().1
    }
}
