//! The mutexes and atomics of std, and the timers and tasks of tokio, that the crate uses.
//!
//! In tests with `cfg(shuttle)` these names stand for the types of `tests/shuttle`, which are scheduled at random and have a clock
//! of their own.

#[cfg(not(all(test, shuttle)))]
pub(crate) use {
    real::random,
    std::sync::{Mutex, MutexGuard, atomic},
    tokio::{
        runtime::{Handle, Id as RuntimeId},
        select,
        sync::watch,
        task, time,
    },
};

#[cfg(all(test, shuttle))]
pub(crate) use crate::shuttled::sync::{
    Handle, Mutex, MutexGuard, RuntimeId, atomic, observe, random, select, task, time, watch,
};

#[cfg(not(all(test, shuttle)))]
mod real {
    /// A random number.
    pub(crate) fn random() -> u64 {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        // Each half has bits that are the same in every uuid, at different places.
        high ^ low
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::random;

    #[test]
    fn every_bit_of_a_random_number_varies() {
        let (mut all, mut any) = (u64::MAX, 0);
        for number in std::iter::repeat_with(random).take(100) {
            (all, any) = (all & number, any | number);
        }
        assert_eq!((all, any), (0, u64::MAX));
    }
}
