//! Redirects of cluster nodes: requests report them, and the topology manager takes them.

use crate::runtime::mutex::Mutex;
use tokio::sync::Notify;

/// The host of a node that does not know its own name.
pub(super) const NAMELESS: &str = "?";

/// Redirects that requests received since the topology manager last took them.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    reported: Mutex<Vec<Redirect>>,
    notify: Notify,
}

/// A redirect to the node that serves a slot, or imports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub slot: u16,
    pub host: String,
    pub port: u16,
    /// The node imports the slot, and serves only requests that follow `ASKING`.
    pub ask: bool,
}

impl Redirect {
    /// Fills in a missing host. `host` is the node that sent the redirect.
    pub(super) fn seen_at(self, host: &str) -> Self {
        match self.host.is_empty() {
            // An empty host stands for the one that sent the redirect.
            true => Self { host: host.to_owned(), ..self },
            false => self,
        }
    }

    pub(super) fn has_host(&self) -> bool {
        self.host != NAMELESS
    }
}

impl Redirects {
    /// Reports that the layout may be out of date.
    pub(super) fn doubt(&self) {
        self.notify.notify_one();
    }

    /// Reports a redirect. One without a usable host only makes the manager read the layout again.
    pub(super) fn report(&self, redirect: Redirect) {
        if redirect.has_host() {
            self.reported.lock().push(redirect);
        }
        self.notify.notify_one();
    }

    /// Waits until a redirect or a doubt is reported.
    pub(super) async fn changed(&self) {
        self.notify.notified().await;
    }

    pub(super) fn take(&self) -> Vec<Redirect> {
        std::mem::take(&mut *self.reported.lock())
    }
}
