//! The registration of a client: a key that says which application, host and process the client's id belongs to.
//!
//! - One task per registered client writes the key, renews it, and deletes it when the client closes. A client without a name writes
//!   nothing.
//! - No lock waits for the registration, and its failure is only logged.
//! - The key outlasts the holds of a process that died, so that their holder still has a name.
//! - If another server answers, or the same one after a restart, the key is written again at once. If it vanished otherwise, the next
//!   renewal writes it again.

use crate::config::options::{Options, millis};
use crate::connection::{Connection, Failure, Limit};
use crate::error::Phase;
use crate::holder::ClientInfo;
use crate::protocol::keys;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::host;
use crate::runtime::sync::{select, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, warn};

/// The bounds of the time between two renewals.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(15);

/// The registration of this client, and whether the user may read those of others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Names(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None` if the client is not registered.
    registration: Option<Registration>,
    /// The user may not read names.
    unreadable: AtomicBool,
}

#[derive(Debug)]
struct Registration {
    key: Arc<str>,
    value: Arc<str>,
    interval: Duration,
    expiry: Duration,
    stage: watch::Sender<Stage>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Registered,
    /// The client closes.
    Leaving,
    /// The key was deleted, and is not written again.
    Left,
}

impl Names {
    pub(crate) fn of(options: &Options) -> Self {
        let registration = options.application.as_deref().map(|application| {
            let interval = (options.lease / 2).clamp(SHORTEST, LONGEST);
            Registration {
                key: keys::client(options.id),
                value: ClientInfo::of_process(application, &host::name()).value().into(),
                interval,
                // The last lease of a process may begin just before the next renewal of the key, and the key outlasts it.
                expiry: options.lease + 2 * interval,
                stage: watch::Sender::new(Stage::Registered),
            }
        });
        Self(Arc::new(Shared { registration, unreadable: AtomicBool::new(false) }))
    }

    /// Whether the user may read names, as far as known.
    pub(crate) fn are_readable(&self) -> bool {
        !self.0.unreadable.load(Ordering::Relaxed)
    }

    /// The server refused to let the user read a name. No further one is read, because servers log such refusals.
    pub(crate) fn refused(&self) {
        self.0.unreadable.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.0.registration.is_some()
    }

    /// Registers the client until [`leave`](Self::leave). The future never ends, and is meant for a task of its own.
    pub(crate) async fn serve(self, connection: Connection) {
        let Some(registration) = &self.0.registration else { return std::future::pending().await };
        let mut leaving = registration.stage.subscribe();
        // The sender lives as long as this future.
        select! {
            _ = leaving.wait_for(|stage| *stage != Stage::Registered) => {}
            () = registration.renew(&connection) => {}
        }
        registration.delete(&connection).await;
        registration.stage.send_replace(Stage::Left);
        std::future::pending().await
    }

    /// Deletes the client's key, if the server answers within `limit`. Otherwise the key expires.
    pub(crate) async fn leave(&self, connection: &Connection, limit: Duration) {
        let Some(registration) = &self.0.registration else { return };
        if !connection.is_up(&registration.key) {
            return;
        }
        registration.stage.send_if_modified(|stage| {
            let begins = *stage == Stage::Registered;
            if begins {
                *stage = Stage::Leaving;
            }
            begins
        });
        let mut left = registration.stage.subscribe();
        let _ = time::timeout(limit, left.wait_for(|stage| *stage == Stage::Left)).await;
    }
}

impl Registration {
    /// Writes the key again and again. Never ends.
    async fn renew(&self, connection: &Connection) {
        let (mut changes, mut warned) = (connection.clone(), false);
        loop {
            let (data_epoch, next) = match self.write(connection).await {
                Ok(data_epoch) => {
                    warned = false;
                    (Some(data_epoch), self.interval)
                }
                Err(failure) => {
                    let error = connection.error(failure, Phase::Renew);
                    if warned {
                        debug!(key = %self.key, %error, "could not register the client");
                    } else {
                        warn!(
                            key = %self.key,
                            %error,
                            "could not register the client: its holds show an id and no name until a later attempt succeeds"
                        );
                    }
                    warned = true;
                    (None, self.interval / 3)
                }
            };
            let due = Moment::now() + next;
            while !due.passed() {
                select! {
                    () = time::sleep(due.remaining()) => {}
                    () = changes.changed() => {
                        let now = connection.data_epoch(&self.key);
                        if now.is_some() && now != data_epoch {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Returns the data epoch of the server that has the key now.
    async fn write(&self, connection: &Connection) -> Result<u64, Failure> {
        let mut request = script::register(&self.key, &self.value, millis(self.expiry));
        let limit = Limit::For(connection.response_timeout());
        Ok(connection.call_within(&mut request, limit).await?.data_epoch)
    }

    async fn delete(&self, connection: &Connection) {
        if let Err(failure) = connection.call(&mut script::unregister(&self.key)).await {
            let error = connection.error(failure, Phase::Release);
            debug!(key = %self.key, %error, "the registration of the client stays until it expires");
        }
    }
}
