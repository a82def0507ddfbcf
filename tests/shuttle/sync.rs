//! The types that `src/runtime/sync.rs` gives to the crate in these tests.

pub(crate) use super::explore::observe;
pub(crate) use super::time;
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

/// `tokio::select!` with `biased`. Otherwise tokio chooses the first branch by a random number that the seed does not decide.
macro_rules! select {
    (biased; $($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
    ($($branches:tt)*) => { tokio::select! { biased; $($branches)* } };
}
pub(crate) use select;

pub(crate) mod task {
    pub(crate) use shuttle::future::{AbortHandle, JoinHandle, yield_now};

    /// Spawns a task, which an exploration counts.
    pub(crate) fn spawn<T: Send + 'static>(
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let living = crate::shuttled::explore::Living::begin();
        shuttle::future::spawn(async move {
            let _living = living;
            future.await
        })
    }
}

/// Replaces the sender of `tokio::sync::watch`. The closure of `send_if_modified` locks a mutex of shuttle, which must not happen
/// while tokio's own lock is held.
pub(crate) mod watch {
    use crate::runtime::mutex::Mutex;
    use tokio::sync::watch;
    pub(crate) use tokio::sync::watch::Receiver;

    pub(crate) struct Sender<T> {
        sender: watch::Sender<T>,
        turn: Mutex<()>,
    }

    impl<T: Clone> Sender<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { sender: watch::Sender::new(value), turn: Mutex::new(()) }
        }

        pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
            let _turn = self.turn.lock();
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

/// The only runtime.
#[derive(Clone, Debug)]
pub(crate) struct Handle;

/// The id of the only runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeId;

impl Handle {
    pub(crate) fn id(&self) -> RuntimeId {
        RuntimeId
    }

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

/// A random number that the run's seed decides.
pub(crate) fn random() -> u64 {
    use shuttle::rand::RngCore;
    shuttle::rand::thread_rng().next_u64()
}

/// A random number below `end`.
pub(crate) fn below(end: u64) -> u64 {
    random() % end
}
