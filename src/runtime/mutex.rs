//! A mutex that ignores poisoning, on top of the one that `sync.rs` chooses.
//!
//! A panic under a mutex must not make every later caller panic, in particular not in `Drop`.

use crate::runtime::sync;
use std::sync::PoisonError;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

pub(crate) use sync::MutexGuard;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The value, which nobody else uses.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
