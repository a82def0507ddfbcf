//! What `src/runtime/sync.rs` hands to the crate in these tests.

pub(crate) use super::time;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};
pub(crate) use shuttle::thread_local;

/// As tokio's with `biased`: which branch is polled first is not left to a random number that nobody can repeat.
macro_rules! select {
    (biased; $($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
    ($($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
}
pub(crate) use select;

pub(crate) mod task {
    pub(crate) use shuttle::future::{AbortHandle, JoinHandle, spawn, yield_now};
}

/// Tokio's own is filled while its lock is held, by a function that waits for a lock of ours.
pub(crate) mod watch {
    use std::sync::PoisonError;
    use tokio::sync::watch;
    pub(crate) use tokio::sync::watch::Receiver;

    pub(crate) struct Sender<T> {
        sender: watch::Sender<T>,
        turn: shuttle::sync::Mutex<()>,
    }

    impl<T: Clone> Sender<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { sender: watch::Sender::new(value), turn: shuttle::sync::Mutex::new(()) }
        }

        pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let mut value = self.sender.borrow().clone();
            let modified = modify(&mut value);
            if modified {
                self.sender.send_replace(value);
            }
            modified
        }

        pub(crate) fn subscribe(&self) -> Receiver<T> {
            self.sender.subscribe()
        }
    }
}

/// The one runtime there is.
#[derive(Clone, Debug)]
pub(crate) struct Handle;

impl Handle {
    pub(crate) fn current() -> Self {
        Self
    }

    pub(crate) fn try_current() -> Result<Self, std::convert::Infallible> {
        Ok(Self)
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> task::JoinHandle<T> {
        task::spawn(future)
    }
}

/// A number that the run's seed decides.
pub(crate) fn random() -> u64 {
    use shuttle::rand::RngCore;
    shuttle::rand::thread_rng().next_u64()
}

/// A number below `end`.
pub(crate) fn below(end: u64) -> u64 {
    random() % end
}
