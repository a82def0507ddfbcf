//! The subscriptions of a client: one task and one connection for each endpoint, and one subscription for each channel, which
//! any number of listeners share.
//!
//! ARCHITECTURE invariant 5, no wake-up is lost:
//! - A channel that is being unsubscribed has a state of its own, so a new listener waits for a newer confirmation.
//! - After a drop, every channel is subscribed again and every listener looks at its lock again, because messages were missed.
//! - The loop that receives messages awaits nothing else.

use crate::config::options::Options;
use crate::connection::{
    Messages, RetryDelay, SubscribeError, Subscriber, SubscriptionEndpoint, SubscriptionEndpoints,
};
use crate::error::{Error, Phase};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::atomic::{AtomicBool, Ordering};
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{select, time};
use crate::runtime::wakeup::Signal;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
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

/// One channel. A program may have many waiters, so what few channels need is not stored in place.
#[derive(Debug)]
struct Channel {
    listeners: SmallVec<[Arc<Listener>; 1]>,
    state: State,
    /// Why the server refuses the subscription.
    refusal: Option<Box<Error>>,
    /// The node at which the channel is subscribed, or about to be.
    at: Option<Arc<str>>,
    /// The id of the connection to the node that sends the channel's messages, once known.
    sender: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The subscription is due or in flight.
    Wanted,
    Confirmed,
    /// The server refuses the channel to this user. It is not tried again on this connection, because each try delays the other channels.
    Refused,
    /// The unsubscription is due or in flight. The state returns to `Wanted` if a listener came meanwhile.
    Leaving,
}

/// The connection has to be replaced.
struct Broken;

/// Whether the slots of the channels are still at the node.
#[derive(PartialEq, Eq)]
enum Slots {
    Here,
    Moved,
}

/// One listener of a channel. While one subscription replaces another, a signal has several listeners, so each listener keeps
/// its own confirmation.
#[derive(Debug)]
struct Listener {
    signal: Arc<Signal>,
    confirmed: AtomicBool,
}

impl Listener {
    /// Starts or ends the confirmation. Messages before its start may have been missed, so the signal has to look again.
    fn set_confirmed(&self, confirmed: bool) {
        self.confirmed.store(confirmed, Ordering::Release);
        if confirmed {
            self.signal.look_again();
        }
    }
}

/// A handle of one listener. Dropping it removes the listener.
#[derive(Debug)]
pub(crate) struct Subscription {
    pubsub: PubSub,
    channel: Arc<str>,
    listener: Arc<Listener>,
}

impl PubSub {
    /// Notifies `signal` of the channel's messages, once the subscription is confirmed. The confirmation makes it look again.
    pub(crate) fn subscribe(&self, channel: &Arc<str>, signal: &Arc<Signal>) -> Subscription {
        let mut channels = self.lock();
        let entry = channels.entry(channel.clone()).or_insert_with(|| Channel {
            listeners: SmallVec::new(),
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

    /// Serves the subscriptions until the task is aborted.
    pub(crate) async fn serve(self, mut endpoints: SubscriptionEndpoints, options: Options) {
        if let Some(endpoint) = endpoints.only() {
            return select! {
                () = self.clone().serve_at(endpoint, options) => {}
                () = self.follow_senders(endpoints) => {}
            };
        }
        let mut serving = HashMap::new();
        loop {
            let now = endpoints.now();
            serving.retain(|name, _| now.iter().any(|endpoint| endpoint.name == *name));
            for endpoint in now {
                let name = endpoint.name.clone();
                let serve = || Serving(task::spawn(self.clone().serve_at(endpoint, options.clone())));
                serving.entry(name).or_insert_with(serve);
            }
            // A channel may belong to another endpoint now.
            self.0.changed.send_replace(());
            endpoints.changed().await;
        }
    }

    /// Makes listeners look again when another node, or a new connection to it, sends their messages. The messages that the
    /// last sender did not deliver are lost.
    async fn follow_senders(&self, mut endpoints: SubscriptionEndpoints) {
        loop {
            endpoints.changed().await;
            for (name, entry) in self.lock().iter_mut() {
                let sender = endpoints.sender(name);
                if sender.is_some() && std::mem::replace(&mut entry.sender, sender) != sender {
                    entry.listeners.iter().for_each(|listener| listener.signal.look_again());
                }
            }
        }
    }

    async fn serve_at(self, endpoint: SubscriptionEndpoint, options: Options) {
        let mut backoff = RetryDelay::new(options.reconnect_min, options.reconnect_max);
        let mut reconnect = false;
        loop {
            match Subscriber::open(&endpoint, &options).await {
                Ok((subscriber, messages)) => {
                    let opened = Moment::now();
                    if reconnect {
                        info!(node = %endpoint.name, channels = self.lock().len(), "resubscribing");
                    }
                    let node = subscriber.node().clone();
                    let forgetting = Forget(&self, node.clone());
                    select! {
                        () = self.serve_over(subscriber.clone(), messages) => {}
                        () = endpoint.until_moved(&node, &options) => {}
                    }
                    let moved = subscriber.has_moved();
                    if moved {
                        info!(%node, "a slot migrated: resubscribing");
                    } else {
                        warn!(%node, "subscriptions lost");
                    }
                    // Slots migrate one after the other, often many of them, and a migration is no failure.
                    if moved || Moment::now().since(opened) >= HEARTBEAT {
                        backoff.reset();
                    }
                    drop(forgetting);
                    reconnect = true;
                }
                Err(error) => debug!(node = %endpoint.name, %error, "could not connect for subscriptions"),
            }
            backoff.wait().await;
        }
    }

    /// Serves over one connection, until it breaks.
    pub(crate) async fn serve_over(&self, subscriber: Subscriber, messages: Messages) {
        select! {
            () = self.receive(messages) => {}
            () = self.keep_subscribed(subscriber.clone()) => {}
            () = heartbeat(subscriber) => {}
        }
    }

    async fn receive(&self, mut messages: Messages) {
        while let Some(channel) = messages.next().await {
            if let Some(entry) = self.lock().get(channel.as_str()) {
                entry.listeners.iter().for_each(|listener| listener.signal.hear());
            }
        }
    }

    /// Subscribes and unsubscribes as the listeners require, until the connection breaks.
    async fn keep_subscribed(&self, mut subscriber: Subscriber) {
        let mut changed = self.0.changed.subscribe();
        let mut backoff = RetryDelay::new(Duration::from_millis(2), Duration::from_millis(100));
        loop {
            changed.borrow_and_update();
            let (leaving, wanted) = self.claim_work(&subscriber);
            if leaving.is_empty() && wanted.is_empty() {
                if changed.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let Ok(()) = self.unsubscribe_all(&mut subscriber, &leaving).await else { return };
            match self.subscribe_all(&mut subscriber, &wanted).await {
                Ok(Slots::Here) => backoff.reset(),
                // The new master may not be known yet.
                Ok(Slots::Moved) => backoff.wait().await,
                Err(Broken) => return,
            }
        }
    }

    /// Claims the channels to unsubscribe from and to subscribe to.
    fn claim_work(&self, subscriber: &Subscriber) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let leaving = self.claim(subscriber, |entry| {
            let leave = entry.listeners.is_empty() && entry.state != State::Leaving;
            if leave {
                entry.state = State::Leaving;
            }
            leave
        });
        let wanted =
            self.claim(subscriber, |entry| entry.state == State::Wanted && !entry.listeners.is_empty());
        (leaving, wanted)
    }

    async fn unsubscribe_all(&self, subscriber: &mut Subscriber, leaving: &[Arc<str>]) -> Result<(), Broken> {
        for chunk in leaving.chunks(CHUNK) {
            subscriber.unsubscribe(chunk).await.map_err(|_| Broken)?;
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
        Ok(())
    }

    async fn subscribe_all(&self, subscriber: &mut Subscriber, wanted: &[Arc<str>]) -> Result<Slots, Broken> {
        let mut slots = Slots::Here;
        for chunk in wanted.chunks(CHUNK) {
            match subscriber.subscribe(chunk).await {
                Ok(()) => self.settle(chunk, State::Confirmed),
                Err(SubscribeError::Broken) => return Err(Broken),
                // The server refuses one channel of the chunk. Find it by subscribing one at a time.
                Err(SubscribeError::Refused { .. } | SubscribeError::Elsewhere) => {
                    for channel in chunk {
                        if self.subscribe_one(subscriber, channel).await? == Slots::Moved {
                            slots = Slots::Moved;
                        }
                    }
                }
            }
        }
        Ok(slots)
    }

    async fn subscribe_one(&self, subscriber: &mut Subscriber, channel: &Arc<str>) -> Result<Slots, Broken> {
        let one = std::slice::from_ref(channel);
        match subscriber.subscribe(one).await {
            Ok(()) => self.settle(one, State::Confirmed),
            Err(SubscribeError::Broken) => return Err(Broken),
            Err(SubscribeError::Elsewhere) => {
                self.settle(one, State::Wanted);
                return Ok(Slots::Moved);
            }
            Err(SubscribeError::Refused { code, message }) => {
                let node = subscriber.node();
                warn!(%node, ?channel, code, message, "the server refuses the subscription");
                let message = format!("{message} (to subscribe to {channel:?})");
                let (phase, node) = (Phase::Acquire, node.to_string());
                self.refuse(channel, Error::Refused { phase, node, code, message });
            }
        }
        Ok(Slots::Here)
    }

    /// Sets the state of these channels. `Wanted` releases them for another node to subscribe.
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
            (entry.state, entry.refusal) = (State::Refused, Some(Box::new(refusal)));
            entry.listeners.iter().for_each(|listener| listener.signal.nudge());
        }
    }

    /// Claims for this node the channels that it serves and for which `which` is true.
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

    /// The connection to `node` has ended, and with it every subscription there.
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
        self.0.channels.lock()
    }
}

impl Subscription {
    pub(crate) fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Whether the server has confirmed the subscription: every message from here on is received.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.listener.confirmed.load(Ordering::Acquire)
    }

    /// Why the server refuses the subscription, if it does.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if self.is_confirmed() {
            return None;
        }
        self.pubsub.lock().get(&self.channel)?.refusal.as_deref().cloned()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.pubsub.lock();
        if let Some(entry) = channels.get_mut(&self.channel)
            && let Some(at) = entry.listeners.iter().position(|l| Arc::ptr_eq(l, &self.listener))
        {
            entry.listeners.swap_remove(at);
            if entry.listeners.is_empty() && entry.at.is_none() {
                // No node has subscribed to it, so none would remove it.
                channels.remove(&self.channel);
            }
        }
        drop(channels);
        self.pubsub.0.changed.send_replace(());
    }
}

/// The task of one endpoint, which is aborted on drop.
struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Forgets the subscriptions at a node on drop, so also when its task is aborted.
struct Forget<'a>(&'a PubSub, Arc<str>);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(&self.1);
    }
}

/// Waits until the connection stops replying.
async fn heartbeat(mut subscriber: Subscriber) {
    loop {
        time::sleep(HEARTBEAT).await;
        if subscriber.ping().await == Err(SubscribeError::Broken) {
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
        let _first = pubsub.subscribe(&heard, &Arc::default());
        pubsub.settle(std::slice::from_ref(&heard), State::Confirmed);
        let signal = Arc::new(Signal::default());
        let mut subscription = pubsub.subscribe(&other, &signal);
        assert!(!subscription.is_confirmed(), "{:?} is not confirmed", subscription.channel());
        let before = signal.reading();
        // The assignment drops the old subscription after the new one exists.
        subscription = pubsub.subscribe(&heard, &signal);
        assert!(subscription.is_confirmed(), "{:?} is confirmed", subscription.channel());
        assert_ne!(signal.reading().epoch, before.epoch, "a confirmation is a look-again");
    }

    #[test]
    fn a_channel_without_a_connection_leaves_with_its_last_listener() {
        let pubsub = PubSub::default();
        let subscriptions = [(); 2].map(|()| pubsub.subscribe(&"channel".into(), &Arc::default()));
        for (left, subscription) in [1, 0].into_iter().zip(subscriptions) {
            drop(subscription);
            assert_eq!(pubsub.lock().len(), left);
        }
    }
}
