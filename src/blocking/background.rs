//! The runtime of a client for threads.

use crate::error::{Error, Result};
use tokio::runtime::Runtime;

/// The runtime of a client's background work. Dropping it does not block.
#[derive(Debug)]
pub(super) struct Background {
    runtime: Option<Runtime>,
    /// Closed when the runtime is dropped.
    pub(super) client: Option<crate::Client>,
}

impl Background {
    pub(super) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redisson-lock")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::misuse(format!(
                    "cannot start a thread for the client's runtime ({e}): raise the process's limits on threads and memory"
                ))
            })?;
        Ok(Self { runtime: Some(runtime), client: None })
    }

    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.get().block_on(future)
    }

    pub(super) fn get(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("only `drop` takes the runtime"),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let (Some(runtime), client) = (self.runtime.take(), self.client.take()) else { return };
        let Some(client) = client else { return runtime.shutdown_background() };
        // Releases of guards that were just dropped are still unsent, so the runtime's own thread waits for them.
        let handle = runtime.handle().clone();
        let ending = async move {
            client.close().await;
            std::thread::spawn(move || runtime.shutdown_background());
        };
        handle.spawn(ending);
    }
}
