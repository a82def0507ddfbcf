//! The doors through which the fuzz targets of `fuzz/` come in. Built with `--cfg fuzzing` only.

use crate::connection::fuzzing::subscriber;
use crate::connection::pubsub::PubSub;
use crate::owner::{self, Owner, OwnerId};
use crate::runtime::wakeup::Signal;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use crate::connection::fuzzing::{
    Info, Meant, cluster_slots, error, host, info, reply, reply_bytes, role, sentinel_master, shown, url,
    vote,
};
#[cfg(feature = "redisson-config")]
pub use crate::redisson_config::read_anything as configuration;

/// The words that the scripts answer today.
pub fn words() -> Vec<&'static str> {
    crate::protocol::script::words().into_iter().collect()
}

/// The record that `owner` holds once, as `RESTORE` reads it.
pub fn restore_payload(owner: &str) -> Vec<u8> {
    crate::protocol::restore_payload::held_once(owner)
}

/// The text of a record that says that this owner, of this client, holds it.
pub fn owner_text(kind: Kind, client: &str, era: u32) -> Option<String> {
    let id = match kind {
        Kind::Thread(n) => OwnerId::Thread(n),
        Kind::Guard(n) => OwnerId::Guard(n),
        Kind::Explicit(text) => OwnerId::Explicit(Owner::new(text).ok()?),
    };
    Some(id.text(client, era).to_string())
}

/// Who an owner is.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    Thread(u64),
    Guard(u64),
    Explicit(&'a str),
}

/// The part of an owner's text that names the owner.
pub fn owner_id(text: &str) -> &str {
    owner::id(text)
}

/// Whether `text` is of that client and of an earlier era than `era`.
pub fn is_retired(text: &str, client: &str, era: u32) -> bool {
    owner::is_retired(text, client, era)
}

/// One thing that happens around a connection for subscriptions.
#[allow(missing_docs)]
#[derive(Debug)]
pub enum Act {
    /// The server says this.
    Says(Vec<u8>),
    /// Somebody wants to hear a channel.
    Subscribe(String),
    /// The listener of that number, among those there are, leaves.
    Leave(u8),
}

/// Serves the registry of subscriptions while `acts` happen, until the server hangs up.
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
    // What is asked is not looked at: the acts say what comes back.
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
    // A connection that ended is seen to have ended.
    drop(says);
    reading.abort();
    let _ = reading.await;
    serving.await.expect("no panic");
}
