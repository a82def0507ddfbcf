//! Adds the names of clients to holders. A name is read for an explicit question only, and never on the way to a lock.

use crate::connection::Limit;
use crate::engine::session::Session;
use crate::holder::{ClientInfo, Holder};
use crate::protocol::keys;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::gather::gather;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;
use uuid::Uuid;

/// The most names that one question reads.
const AT_ONCE: usize = 100;
/// The longest time that a name may take. A name may be on another server than its lock.
const LIMIT: Duration = Duration::from_secs(1);

/// The clients that were looked up, with their descriptions if they have one.
#[derive(Debug, Default)]
pub(crate) struct KnownClients(HashMap<Uuid, Option<Arc<ClientInfo>>>);

impl KnownClients {
    /// Forgets the clients without a description, which may get one.
    pub(crate) fn keep_described(&mut self) {
        self.0.retain(|_, info| info.is_some());
    }
}

impl Session {
    /// The end of a question that begins now.
    pub(crate) fn question_ends(&self) -> Moment {
        Moment::now() + self.options.response_timeout
    }

    /// Adds to the holders the descriptions of their clients, by one more exchange with the servers until `until`. A client whose
    /// description cannot be read has none.
    pub(crate) async fn name_holders<'a>(
        &self,
        holders: impl IntoIterator<Item = &'a mut Holder>,
        known: &mut KnownClients,
        until: Moment,
    ) {
        let mut holders: Vec<_> =
            holders.into_iter().filter_map(|holder| Some((id(holder)?, holder))).collect();
        let mut unknown = Vec::new();
        for (id, _) in &holders {
            if !known.0.contains_key(id) && !unknown.contains(id) && unknown.len() < AT_ONCE {
                unknown.push(*id);
            }
        }
        let until = until.min(Moment::now() + LIMIT);
        let found = gather(unknown.iter().map(|id| self.read_client(*id, until)), |_| false).await;
        known.0.extend(unknown.into_iter().zip(found.into_iter().map(Option::flatten)));
        for (id, holder) in &mut holders {
            holder.set_client(known.0.get(id).cloned().flatten());
        }
    }

    async fn read_client(&self, id: Uuid, until: Moment) -> Option<Arc<ClientInfo>> {
        let (key, names) = (keys::client(id), self.watchdog.names());
        // A call would wait for a connection.
        if !names.are_readable() || !self.connection.is_up(&key) {
            return None;
        }
        match self.connection.call_within(&mut script::client(&key), Limit::Until(until)).await {
            Ok(answer) => script::described_client(&answer.reply).ok().flatten().map(Arc::new),
            Err(failure) => {
                if failure.code() == Some("NOPERM") {
                    debug!(%key, "the user may not read the names of clients");
                    names.refused();
                }
                None
            }
        }
    }

    /// Deletes the registration of this client.
    pub(crate) async fn unregister(&self) {
        if self.is_closed() {
            return;
        }
        self.watchdog.names().leave(&self.connection, self.options.response_timeout).await;
    }
}

/// The id of the holder's client, if it can be registered.
fn id(holder: &Holder) -> Option<Uuid> {
    Some(holder.client_id()).filter(|id| id.len() == 36).and_then(|id| Uuid::try_parse(id).ok())
}
