//! The subscriptions of a client: one task, one connection, one subscription a channel however many want it.
//!
//! Invariants:
//! 5. A channel that is being left is in a state of its own: a newcomer waits for a confirmation that is newer. After a
//!    drop every channel is subscribed again and everyone looks again, because messages were missed. The task that hears
//!    messages never awaits anything else.

use crate::clock::Moment;
use crate::connection::{Backoff, Messages, Servers, Subscriber, Unsubscribed};
use crate::options::Options;
use crate::sync::{Mutex, MutexGuard, select, time};
use crate::wakeup::Signal;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

/// Channels in one SUBSCRIBE or UNSUBSCRIBE.
const CHUNK: usize = 500;
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The subscriptions of a client. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PubSub(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    channels: Mutex<HashMap<Arc<str>, Channel>>,
    changed: Notify,
}

#[derive(Debug)]
struct Channel {
    listeners: Vec<Arc<Signal>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be subscribed, or on its way to be.
    Wanted,
    Confirmed,
    /// The server refuses it to this user. Not tried again on this connection; the others are not to suffer.
    Refused,
    /// To be unsubscribed, or on its way to be; back to `Wanted` if somebody came meanwhile.
    Leaving,
}

/// One listener's share in a subscription; ends it when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    pubsub: PubSub,
    channel: Arc<str>,
    signal: Arc<Signal>,
}

impl PubSub {
    /// `signal` hears of the channel's messages from its confirmation on, which is itself a look-again.
    pub(crate) fn subscribe(&self, channel: &Arc<str>, signal: &Arc<Signal>) -> Subscription {
        let mut channels = self.lock();
        let entry = channels
            .entry(channel.clone())
            .or_insert_with(|| Channel { listeners: Vec::new(), state: State::Wanted });
        entry.listeners.push(signal.clone());
        signal.set_confirmed(entry.state == State::Confirmed);
        drop(channels);
        self.0.changed.notify_one();
        Subscription { pubsub: self.clone(), channel: channel.clone(), signal: signal.clone() }
    }

    /// Serves for ever; meant for a task of its own.
    pub(crate) async fn serve(self, servers: Servers, options: Options) {
        let mut backoff = Backoff::new(options.reconnect_min, options.reconnect_max);
        let mut reconnect = false;
        loop {
            match Subscriber::open(&servers, &options).await {
                Ok((subscriber, messages)) => {
                    let opened = Moment::now();
                    if reconnect {
                        info!(node = servers.name(), channels = self.lock().len(), "resubscribing");
                    }
                    let node: Arc<str> = subscriber.node().into();
                    select! {
                        () = self.serve_over(subscriber, messages) => {}
                        () = servers.moved(&node, &options) => {}
                    }
                    warn!(%node, "subscriptions lost");
                    if Moment::now().since(opened) >= HEARTBEAT {
                        backoff.reset();
                    }
                    self.forget();
                    reconnect = true;
                }
                Err(error) => debug!(node = servers.name(), %error, "could not connect for subscriptions"),
            }
            backoff.wait().await;
        }
    }

    /// Serves over one connection, until it breaks.
    pub(crate) async fn serve_over(&self, subscriber: Subscriber, messages: Messages) {
        select! {
            () = self.hear(messages) => {}
            () = self.keep_subscribed(subscriber.clone()) => {}
            () = heartbeat(subscriber) => {}
        }
    }

    async fn hear(&self, mut messages: Messages) {
        while let Some(channel) = messages.next().await {
            if let Some(entry) = self.lock().get(channel.as_str()) {
                entry.listeners.iter().for_each(|listener| listener.hear());
            }
        }
    }

    /// Brings the server's subscriptions into line with what is wanted, until the connection breaks.
    async fn keep_subscribed(&self, mut subscriber: Subscriber) {
        loop {
            let leaving = self.collect(|entry| {
                let leave = entry.listeners.is_empty() && entry.state != State::Leaving;
                if leave {
                    entry.state = State::Leaving;
                }
                leave
            });
            let wanted = self.collect(|entry| entry.state == State::Wanted && !entry.listeners.is_empty());
            if leaving.is_empty() && wanted.is_empty() {
                self.0.changed.notified().await;
                continue;
            }
            for chunk in leaving.chunks(CHUNK) {
                if subscriber.unsubscribe(chunk).await.is_err() {
                    return;
                }
                let mut channels = self.lock();
                for channel in chunk {
                    if let Some(entry) = channels.get_mut(channel) {
                        if entry.listeners.is_empty() {
                            channels.remove(channel);
                        } else {
                            entry.state = State::Wanted;
                        }
                    }
                }
            }
            for chunk in wanted.chunks(CHUNK) {
                match subscriber.subscribe(chunk).await {
                    Ok(()) => self.settle(chunk, State::Confirmed),
                    Err(Unsubscribed::Broken) => return,
                    // One of them is refused: which?
                    Err(Unsubscribed::Refused) => {
                        for channel in chunk.chunks(1) {
                            match subscriber.subscribe(channel).await {
                                Ok(()) => self.settle(channel, State::Confirmed),
                                Err(Unsubscribed::Broken) => return,
                                Err(Unsubscribed::Refused) => {
                                    warn!(channel = ?channel, "the server refuses the subscription");
                                    self.settle(channel, State::Refused);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn settle(&self, chunk: &[Arc<str>], state: State) {
        let mut channels = self.lock();
        for channel in chunk {
            if let Some(entry) = channels.get_mut(channel) {
                entry.state = state;
                if state == State::Confirmed {
                    entry.listeners.iter().for_each(|listener| listener.set_confirmed(true));
                }
            }
        }
    }

    fn collect(&self, mut which: impl FnMut(&mut Channel) -> bool) -> Vec<Arc<str>> {
        self.lock().iter_mut().filter_map(|(name, entry)| which(entry).then(|| name.clone())).collect()
    }

    /// The connection is gone, and with it every subscription.
    fn forget(&self) {
        self.lock().retain(|_, entry| {
            entry.state = State::Wanted;
            entry.listeners.iter().for_each(|listener| listener.set_confirmed(false));
            !entry.listeners.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Channel>> {
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    pub(crate) fn channel(&self) -> &Arc<str> {
        &self.channel
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.pubsub.lock();
        if let Some(entry) = channels.get_mut(&self.channel)
            && let Some(at) = entry.listeners.iter().position(|s| Arc::ptr_eq(s, &self.signal))
        {
            entry.listeners.swap_remove(at);
        }
        drop(channels);
        self.signal.set_confirmed(false);
        self.pubsub.0.changed.notify_one();
    }
}

/// Ends when the connection stops answering.
async fn heartbeat(mut subscriber: Subscriber) {
    loop {
        time::sleep(HEARTBEAT).await;
        if subscriber.ping().await == Err(Unsubscribed::Broken) {
            return;
        }
    }
}
