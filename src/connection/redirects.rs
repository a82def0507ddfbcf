//! Redirects of a cluster's nodes, from the requests that met them to the task that owns the layout.

use crate::runtime::sync::Mutex;
use std::sync::PoisonError;
use tokio::sync::Notify;

/// What stands for a host in the place of a name that a node has not got.
pub(super) const NAMELESS: &str = "?";

/// Redirects that requests met since the layout was read.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    met: Mutex<Vec<Redirect>>,
    pub notify: Notify,
}

/// A node that serves a slot, or imports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub slot: u16,
    pub host: String,
    pub port: u16,
    /// The node serves only requests that follow `ASKING`.
    pub ask: bool,
}

impl Redirect {
    /// `host` is the node that sent the redirect.
    pub(super) fn met_at(self, host: &str) -> Self {
        match self.host.is_empty() {
            // A node does not know by what name we reach the others.
            true => Self { host: host.to_owned(), ..self },
            false => self,
        }
    }

    pub(super) fn is_to_somebody(&self) -> bool {
        self.host != NAMELESS
    }
}

impl Redirects {
    /// Reports that the layout is out of date.
    pub(super) fn doubt(&self) {
        self.notify.notify_one();
    }

    pub(super) fn meet(&self, redirect: Redirect) {
        if redirect.is_to_somebody() {
            self.met.lock().unwrap_or_else(PoisonError::into_inner).push(redirect);
        }
        self.notify.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Redirect> {
        std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
