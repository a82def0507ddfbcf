//! The registry of subscriptions: a confirmed subscription hears every message, and no subscription is left over.

use super::run::{Pace, run};
use super::server::server;
use super::sync::{atomic, below, task, time};
use crate::config::options::Options;
use crate::connection::pubsub::{PubSub, Subscription};
use crate::connection::{SubscriptionEndpoints, Topology};
use crate::runtime::wakeup::Signal;
use std::sync::Arc;
use std::time::Duration;

/// Listeners of one channel come and go while the connection drops. Each of them waits for its confirmation and publishes a message.
/// The message must wake it, or the drop that lost the message, without any timer.
#[test]
fn a_confirmed_listener_hears_every_message() {
    run("a_confirmed_listener_hears_every_message", 1000, Pace::Patient, Duration::from_secs(20), || async {
        let pubsub = PubSub::default();
        let servers = Topology::parse("redis://server", &Options::default()).expect("a URL");
        let serving =
            task::spawn(pubsub.clone().serve(SubscriptionEndpoints::of(servers), Options::default()));
        let channel: Arc<str> = "channel".into();
        let (cutting, cut) = (below(3) == 0, Arc::new(atomic::AtomicU64::new(0)));
        let listeners: Vec<_> = (0..3)
            .map(|_| {
                let (pubsub, channel, cut) = (pubsub.clone(), channel.clone(), cut.clone());
                task::spawn(async move {
                    for _ in 0..3 {
                        listen(&pubsub, &channel, &cut).await;
                    }
                })
            })
            .collect();
        if cutting {
            let signal = Arc::new(Signal::default());
            let subscription = pubsub.subscribe(&channel, &signal);
            confirmed(&subscription, &signal).await;
            cut.fetch_add(1, atomic::Ordering::SeqCst);
            server().cut();
            // Long enough to notice the drop, and too short to connect again.
            time::sleep(Duration::from_nanos(1)).await;
            assert!(!subscription.is_confirmed(), "confirmed without a connection");
            confirmed(&subscription, &signal).await;
        }
        for listener in listeners {
            listener.await.expect("no panic");
        }
        // After the last listener has left, the client unsubscribes at once.
        time::sleep(Duration::from_millis(if cutting { 1500 } else { 1 })).await;
        assert_eq!(server().subscriptions(), 0);
        serving.abort();
    });
}

/// A listener changes between two channels. Another listener keeps one of them subscribed throughout. After each change the listener
/// is confirmed again, and a message wakes it.
#[test]
fn a_listener_that_changes_its_channel_is_confirmed() {
    let name = "a_listener_that_changes_its_channel_is_confirmed";
    run(name, 200, Pace::Patient, Duration::from_secs(20), || async {
        let pubsub = PubSub::default();
        let servers = Topology::parse("redis://server", &Options::default()).expect("a URL");
        let serving =
            task::spawn(pubsub.clone().serve(SubscriptionEndpoints::of(servers), Options::default()));
        let channels: [Arc<str>; 2] = ["shared".into(), "own".into()];
        let other = pubsub.subscribe(&channels[0], &Arc::default());
        let signal = Arc::new(Signal::default());
        let mut subscription = None;
        for turn in 0..4 {
            let channel = &channels[turn % 2];
            // The new subscription exists before `insert` drops the earlier one.
            let subscription = subscription.insert(pubsub.subscribe(channel, &signal));
            confirmed(subscription, &signal).await;
            let before = signal.reading();
            assert!(server().publish(channel) > 0, "confirmed, but not subscribed");
            while signal.reading() == before {
                signal.woken().await;
            }
        }
        drop((subscription, other));
        serving.abort();
    });
}

/// Subscribes, and checks that a message of its own wakes the listener at once.
async fn listen(pubsub: &PubSub, channel: &Arc<str>, cut: &atomic::AtomicU64) {
    let signal = Arc::new(Signal::default());
    let subscription = pubsub.subscribe(channel, &signal);
    if below(4) == 0 {
        return;
    }
    confirmed(&subscription, &signal).await;
    let (before, cuts) = (signal.reading(), cut.load(atomic::Ordering::SeqCst));
    let (receivers, since) = (server().publish(channel), time::since_boot());
    assert!(receivers > 0 || cut.load(atomic::Ordering::SeqCst) > 0, "confirmed, but not subscribed");
    while signal.reading() == before {
        signal.woken().await;
    }
    let waited = time::since_boot() - since;
    assert!(
        waited.is_zero() || cut.load(atomic::Ordering::SeqCst) > cuts || receivers == 0,
        "woken after {waited:?}"
    );
}

/// Waits until the subscription is confirmed.
async fn confirmed(subscription: &Subscription, signal: &Signal) {
    while !subscription.is_confirmed() {
        signal.woken().await;
    }
}
