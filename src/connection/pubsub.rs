//! The subscriptions of a client: one task, one connection, one subscription a channel however many want it.
//!
//! Invariants:
//! 5. A channel that is being left is in a state of its own: a newcomer waits for a confirmation that is newer. After a
//!    drop every channel is subscribed again and everyone looks again, because messages were missed. The task that hears
//!    messages never awaits anything else.

use crate::config::options::Options;
use crate::connection::{
    Backoff, Messages, Subscriber, SubscriptionEndpoint, SubscriptionEndpoints, Unsubscribed,
};
use crate::error::{Error, Phase};
use crate::runtime::clock::Moment;
use crate::runtime::sync::atomic::{AtomicBool, Ordering};
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{Mutex, MutexGuard, select, time};
use crate::runtime::wakeup::Signal;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
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
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Channel {
    listeners: Vec<Arc<Listener>>,
    state: State,
    /// Why it is refused.
    refusal: Option<Error>,
    /// The node that was asked for it, or is about to be.
    at: Option<Arc<str>>,
    /// Which connection led to who sends its messages, where that was looked at.
    sender: Option<u64>,
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

/// One share in a channel. A signal may have several while one subscription replaces another, so the confirmation is
/// kept here.
#[derive(Debug)]
struct Listener {
    signal: Arc<Signal>,
    confirmed: AtomicBool,
}

impl Listener {
    /// The subscription is in force from now on (messages before it are missed), or no longer.
    fn set_confirmed(&self, confirmed: bool) {
        self.confirmed.store(confirmed, Ordering::Release);
        if confirmed {
            self.signal.look_again();
        }
    }
}

/// One listener's share in a subscription; ends it when dropped.
#[derive(Debug)]
pub(crate) struct Subscription {
    pubsub: PubSub,
    channel: Arc<str>,
    listener: Arc<Listener>,
}

impl PubSub {
    /// `signal` hears of the channel's messages from its confirmation on, which is itself a look-again.
    pub(crate) fn subscribe(&self, channel: &Arc<str>, signal: &Arc<Signal>) -> Subscription {
        let mut channels = self.lock();
        let entry = channels.entry(channel.clone()).or_insert_with(|| Channel {
            listeners: Vec::new(),
            state: State::Wanted,
            refusal: None,
            at: None,
            sender: None,
        });
        let listener = Arc::new(Listener { signal: signal.clone(), confirmed: AtomicBool::new(false) });
        entry.listeners.push(listener.clone());
        listener.set_confirmed(entry.state == State::Confirmed);
        drop(channels);
        self.0.changed.send_replace(());
        Subscription { pubsub: self.clone(), channel: channel.clone(), listener }
    }

    /// Serves for ever; meant for a task of its own.
    pub(crate) async fn serve(self, mut places: SubscriptionEndpoints, options: Options) {
        if let Some(place) = places.only() {
            return select! {
                () = self.clone().serve_at(place, options) => {}
                () = self.follow_senders(places) => {}
            };
        }
        let mut serving = HashMap::new();
        loop {
            let now = places.now();
            serving.retain(|name, _| now.iter().any(|place| place.name == *name));
            for place in now {
                let name = place.name.clone();
                let serve = || Serving(task::spawn(self.clone().serve_at(place, options.clone())));
                serving.entry(name).or_insert_with(serve);
            }
            // What one of them had may be another's now.
            self.0.changed.send_replace(());
            places.changed().await;
        }
    }

    /// Has everyone look again whose messages come from another server by now, or by way of it anew: what the last one did not
    /// send any more is heard nowhere.
    async fn follow_senders(&self, mut places: SubscriptionEndpoints) {
        loop {
            places.changed().await;
            for (name, entry) in self.lock().iter_mut() {
                let sender = places.sender(name);
                if sender.is_some() && std::mem::replace(&mut entry.sender, sender) != sender {
                    entry.listeners.iter().for_each(|listener| listener.signal.look_again());
                }
            }
        }
    }

    async fn serve_at(self, place: SubscriptionEndpoint, options: Options) {
        let mut backoff = Backoff::new(options.reconnect_min, options.reconnect_max);
        let mut reconnect = false;
        loop {
            match Subscriber::open(&place, &options).await {
                Ok((subscriber, messages)) => {
                    let opened = Moment::now();
                    if reconnect {
                        info!(node = %place.name, channels = self.lock().len(), "resubscribing");
                    }
                    let node = subscriber.node().clone();
                    let forgetting = Forget(&self, node.clone());
                    select! {
                        () = self.serve_over(subscriber.clone(), messages) => {}
                        () = place.moved(&node, &options) => {}
                    }
                    let moved = subscriber.has_moved();
                    if moved {
                        info!(%node, "a slot moved: subscribing anew");
                    } else {
                        warn!(%node, "subscriptions lost");
                    }
                    // Slots move one after the other, often many of them.
                    if moved || Moment::now().since(opened) >= HEARTBEAT {
                        backoff.reset();
                    }
                    drop(forgetting);
                    reconnect = true;
                }
                Err(error) => debug!(node = %place.name, %error, "could not connect for subscriptions"),
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
                entry.listeners.iter().for_each(|listener| listener.signal.hear());
            }
        }
    }

    /// Brings the server's subscriptions into line with what is wanted of it, until the connection breaks.
    async fn keep_subscribed(&self, mut subscriber: Subscriber) {
        let mut changed = self.0.changed.subscribe();
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));
        loop {
            changed.borrow_and_update();
            let leaving = self.claim(&subscriber, |entry| {
                let leave = entry.listeners.is_empty() && entry.state != State::Leaving;
                if leave {
                    entry.state = State::Leaving;
                }
                leave
            });
            let wanted =
                self.claim(&subscriber, |entry| entry.state == State::Wanted && !entry.listeners.is_empty());
            if leaving.is_empty() && wanted.is_empty() {
                if changed.changed().await.is_err() {
                    return;
                }
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
                            (entry.state, entry.refusal) = (State::Wanted, None);
                        }
                    }
                }
            }
            let mut moved = false;
            for chunk in wanted.chunks(CHUNK) {
                match subscriber.subscribe(chunk).await {
                    Ok(()) => self.settle(chunk, State::Confirmed),
                    Err(Unsubscribed::Broken) => return,
                    // One of them is refused: which?
                    Err(Unsubscribed::Refused { .. } | Unsubscribed::Elsewhere) => {
                        for channel in chunk.chunks(1) {
                            match subscriber.subscribe(channel).await {
                                Ok(()) => self.settle(channel, State::Confirmed),
                                Err(Unsubscribed::Broken) => return,
                                Err(Unsubscribed::Elsewhere) => {
                                    moved = true;
                                    self.settle(channel, State::Wanted);
                                }
                                Err(Unsubscribed::Refused { code, message }) => {
                                    warn!(?channel, code, message, "the server refuses the subscription");
                                    let (phase, node) = (Phase::Acquire, subscriber.node().to_string());
                                    let message = format!("{message} (to subscribe to {channel:?})");
                                    self.refuse(&channel[0], Error::Refused { phase, node, code, message });
                                }
                            }
                        }
                    }
                }
            }
            if moved {
                // Until it is known where to.
                backoff.wait().await;
            } else {
                backoff.reset();
            }
        }
    }

    /// `Wanted` is what is wanted of another node.
    fn settle(&self, chunk: &[Arc<str>], state: State) {
        let mut channels = self.lock();
        for channel in chunk {
            if let Some(entry) = channels.get_mut(channel) {
                entry.state = state;
                match state {
                    State::Confirmed => {
                        entry.listeners.iter().for_each(|listener| listener.set_confirmed(true));
                    }
                    State::Wanted => entry.at = None,
                    _ => {}
                }
            }
        }
        drop(channels);
        if state == State::Wanted {
            self.0.changed.send_replace(());
        }
    }

    fn refuse(&self, channel: &Arc<str>, refusal: Error) {
        if let Some(entry) = self.lock().get_mut(channel) {
            (entry.state, entry.refusal) = (State::Refused, Some(refusal));
            entry.listeners.iter().for_each(|listener| listener.signal.nudge());
        }
    }

    /// Those for which that subscriber is to do something, which nobody else does then.
    fn claim(&self, subscriber: &Subscriber, mut which: impl FnMut(&mut Channel) -> bool) -> Vec<Arc<str>> {
        let node = subscriber.node();
        let claim = |(name, entry): (&Arc<str>, &mut Channel)| {
            let here = entry.at.as_ref().map_or_else(|| subscriber.hears(name), |at| at == node);
            (here && which(entry)).then(|| {
                entry.at = Some(node.clone());
                name.clone()
            })
        };
        self.lock().iter_mut().filter_map(claim).collect()
    }

    /// The connection to that node is gone, and with it every subscription there.
    fn forget(&self, node: &Arc<str>) {
        self.lock().retain(|_, entry| {
            if entry.at.as_ref() != Some(node) {
                return true;
            }
            (entry.at, entry.state, entry.refusal) = (None, State::Wanted, None);
            entry.listeners.iter().for_each(|listener| listener.set_confirmed(false));
            !entry.listeners.is_empty()
        });
        self.0.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Channel>> {
        self.0.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    pub(crate) fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Whether it is in force: each message from here on is heard.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.listener.confirmed.load(Ordering::Acquire)
    }

    /// Why there will be no messages, if the server refuses them.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.is_confirmed() {
            return None;
        }
        self.pubsub.lock().get(&self.channel)?.refusal.clone()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.pubsub.lock();
        if let Some(entry) = channels.get_mut(&self.channel)
            && let Some(at) = entry.listeners.iter().position(|l| Arc::ptr_eq(l, &self.listener))
        {
            entry.listeners.swap_remove(at);
        }
        drop(channels);
        self.pubsub.0.changed.send_replace(());
    }
}

/// A place that is listened to, for as long as this lives.
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// However a connection to that node ends, also with its task.
struct Forget<'a>(&'a PubSub, Arc<str>);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(&self.1);
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_that_replaces_another_is_confirmed_at_once_if_its_channel_is() {
        let pubsub = PubSub::default();
        let [heard, other]: [Arc<str>; 2] = ["heard".into(), "other".into()];
        let _somebody = pubsub.subscribe(&heard, &Arc::default());
        pubsub.settle(std::slice::from_ref(&heard), State::Confirmed);
        let signal = Arc::new(Signal::default());
        let mut subscription = pubsub.subscribe(&other, &signal);
        assert!(!subscription.is_confirmed(), "{:?} is not confirmed", subscription.channel());
        let before = signal.mark();
        // The old one is dropped after the new one has begun.
        subscription = pubsub.subscribe(&heard, &signal);
        assert!(subscription.is_confirmed(), "{:?} is confirmed", subscription.channel());
        assert_ne!(signal.mark().epoch, before.epoch, "a confirmation is a look-again");
    }
}
