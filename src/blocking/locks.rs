//! Locks, semaphores and latches whose kind is unknown, and their servers, for threads.

use super::Client;
use crate::client::{ServerReport, Sighting};
use crate::error::Result;
use crate::kinds::description::Description;
use std::time::Duration;
use tokio_stream::StreamExt;

impl Client {
    /// Returns what the record of `name` shows. See [`crate::Client::describe`].
    ///
    /// # Errors
    /// As for [`crate::Client::describe`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn describe(&self, name: impl AsRef<str>) -> Result<Option<Description>> {
        self.runtime.get().block_on(self.client.describe(name))
    }

    /// Returns an iterator over what the lock `name` shows, now and after each change. It blocks until there is something to show. See
    /// [`crate::Client::watch`].
    ///
    /// # Errors
    /// As for [`crate::Client::watch`].
    ///
    /// # Panics
    /// The iterator panics inside async code.
    pub fn watch(
        &self,
        name: &str,
        interval: Duration,
    ) -> impl Iterator<Item = Result<Sighting>> + Send + use<> {
        let (runtime, mut sightings) = (self.runtime.clone(), self.client.watch(name, interval));
        std::iter::from_fn(move || runtime.get().block_on(sightings.next()))
    }

    /// Asks the server, or each master of the cluster, what it permits and how it is set up. See [`crate::Client::examine`].
    ///
    /// # Errors
    /// As for [`crate::Client::examine`].
    ///
    /// # Panics
    /// If called from inside async code.
    pub fn examine(&self) -> Result<Vec<ServerReport>> {
        self.runtime.get().block_on(self.client.examine())
    }

    /// Returns an iterator over the locks, semaphores and latches whose names match the glob `pattern`. See [`crate::Client::locks`].
    ///
    /// # Errors
    /// As for [`crate::Client::locks`].
    ///
    /// # Panics
    /// The iterator panics inside async code.
    pub fn locks(&self, pattern: &str) -> impl Iterator<Item = Result<Description>> + Send + use<> {
        let (runtime, mut locks) = (self.runtime.clone(), self.client.locks(pattern));
        std::iter::from_fn(move || runtime.get().block_on(locks.next()))
    }
}
