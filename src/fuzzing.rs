//! The entry points for the fuzz targets in `fuzz/`. Built with `--cfg fuzzing` only.

use crate::connection::fuzzing::subscriber;
use crate::connection::pubsub::PubSub;
use crate::owner::{self, LocalOwner, Owner};
use crate::runtime::wakeup::Signal;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use crate::connection::fuzzing::{
    Info, Meant, cluster_slots, error, host, info, reply, reply_bytes, role, sentinel_master, shown, url,
    vote,
};
#[cfg(feature = "redisson-config")]
pub use crate::redisson_config::read_anything as configuration;

/// The words that scripts use in their replies.
pub fn words() -> Vec<&'static str> {
    crate::protocol::script::words().into_iter().collect()
}

/// The `RESTORE` payload of a record that `owner` holds once. The record of a read/write lock also has a mode.
pub fn restore_payload(mode: Option<&str>, owner: &str) -> Vec<u8> {
    crate::protocol::restore_payload::held_once(mode, owner)
}

/// The owner id in a record that this owner of this client holds; `None` for an invalid explicit owner.
pub fn owner_text(kind: Kind, client: &str, generation: u32) -> Option<String> {
    let id = match kind {
        Kind::Thread(n) => LocalOwner::Thread(n),
        Kind::Guard(n) => LocalOwner::Guard(n),
        Kind::Explicit(text) => LocalOwner::Explicit(Owner::new(text).ok()?),
    };
    Some(id.owner_id(client, generation).to_string())
}

/// The kinds of owner.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    Thread(u64),
    Guard(u64),
    Explicit(&'a str),
}

/// The part of an owner id that names the owner.
pub fn owner_id(text: &str) -> &str {
    owner::id(text)
}

/// Whether `text` is an owner id of this client and of an earlier generation than `generation`.
pub fn is_retired(text: &str, client: &str, generation: u32) -> bool {
    owner::is_retired(text, client, generation)
}

/// An event around a connection for subscriptions.
#[allow(missing_docs)]
#[derive(Debug)]
pub enum Act {
    /// The server sends these bytes.
    Says(Vec<u8>),
    /// A listener subscribes to this channel.
    Subscribe(String),
    /// The listener with this index (modulo their number) leaves.
    Leave(u8),
}

/// Serves the subscription registry while `acts` happen, and then closes the server's side.
pub fn dispatch(acts: impl Iterator<Item = Act>) {
    thread_local!(static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));
    RUNTIME.with(|runtime| runtime.block_on(served(acts)));
}

async fn served(acts: impl Iterator<Item = Act>) {
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (mut asked, mut says) = tokio::io::split(theirs);
    let Some((connection, messages)) = subscriber(ours).await else { return };
    let pubsub = PubSub::default();
    let serving = {
        let pubsub = pubsub.clone();
        tokio::spawn(async move { pubsub.serve_over(connection, messages).await })
    };
    // Requests are discarded, because the acts have the replies.
    let reading = tokio::spawn(async move { while asked.read_u8().await.is_ok() {} });
    let mut listeners = Vec::new();
    for act in acts {
        match act {
            Act::Says(bytes) => {
                let _ = says.write_all(&bytes).await;
            }
            Act::Subscribe(channel) => {
                let signal = Arc::new(Signal::default());
                listeners.push(pubsub.subscribe(&channel.into(), &signal));
            }
            Act::Leave(number) if !listeners.is_empty() => {
                drop(listeners.swap_remove(usize::from(number) % listeners.len()));
            }
            Act::Leave(_) => {}
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    // The registry must notice the end of the connection.
    drop(says);
    reading.abort();
    let _ = reading.await;
    serving.await.expect("no panic");
}
