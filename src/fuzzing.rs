//! The doors through which the fuzz targets of `fuzz/` come in. Built with `--cfg fuzzing` only.

use crate::connection::fuzzing::subscriber;
use crate::pubsub::PubSub;
use crate::wakeup::Signal;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub use crate::connection::fuzzing::{reply, reply_bytes, url};
#[cfg(feature = "redisson-config")]
pub use crate::redisson_config::read_anything as configuration;

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
