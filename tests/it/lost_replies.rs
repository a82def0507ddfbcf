//! Answers that never come, requests that come late, and links that are dead without saying so.
//!
//! Whether a request ran is seen in the record and in what was published, both on the server itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redisson_lock::{
    Client, ClientBuilder, Error, HoldState, Lock, LockGuard, LossReason, Owner, Replication,
};
use tokio_stream::StreamExt;

use crate::support::proxy::{Link, Way, Words};
use crate::support::{Proxy, Server, Stopwatch, scripts};

const NAME: &str = "orders";
const CHANNEL: &str = "redisson_lock__channel:{orders}";
/// Short, so that what is found by waiting for an answer is found soon.
const RESPONSE: Duration = Duration::from_millis(300);

/// The reply is lost with its connection, or the connection is silent from then on.
const LOSSES: [Loss; 2] = [Loss::Cut, Loss::Silence];

#[derive(Clone, Copy, Debug)]
enum Loss {
    Cut,
    Silence,
}

impl Loss {
    /// Loses the reply to the next request that may change the lock's record.
    fn strike(self, link: &Link) {
        match self {
            Self::Cut => link.cut_at_reply_to(changes_record),
            Self::Silence => link.lose_reply_to(changes_record),
        }
    }
}

#[tokio::test]
async fn a_lost_reply_to_an_acquire_leaves_one_hold() {
    for loss in LOSSES {
        let bench = Bench::start().await;
        loss.strike(&bench.link);
        let started = Instant::now();
        let guard = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        // It is the hold whose reply was lost, and not another that waited until the first one's lease was over.
        assert!(!guard.owner().contains('~'), "{loss:?}: {} after {:?}", guard.owner(), started.elapsed());
        assert_eq!(guard.state(), HoldState::Held, "{loss:?}");
        assert_eq!(bench.record(), one(&guard, 1), "{loss:?}");

        let first = guard.owner().to_owned();
        guard.unlock().await.unwrap();
        assert_eq!(bench.record(), HashMap::new(), "{loss:?}");
        assert_eq!(bench.published(), 1, "{loss:?}");
        // The dead connection may still deliver something for the first text.
        let guard = bench.lock.lock().await.unwrap();
        assert_ne!(guard.owner(), first, "{loss:?}");
        guard.unlock().await.unwrap();
    }
}

/// One attempt ends with its time. What it may have done is undone.
#[tokio::test]
async fn a_lost_reply_to_a_try_lock_leaves_its_hold_or_none() {
    let bench = Bench::start().await;
    Loss::Cut.strike(&bench.link);
    // The new connection is there long before the time is over, and the request is harmless to repeat.
    let guard = bench.lock.try_lock().await.unwrap().expect("nobody else holds it");
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));

    let bench = Bench::start().await;
    Loss::Silence.strike(&bench.link);
    let started = Stopwatch::start();
    let error = bench.lock.try_lock().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(started.elapsed() < RESPONSE * 2, "{:?}", started.elapsed());
    // The library's own release tells that the hold is undone.
    bench.next_message().await;
    assert_eq!(bench.record(), HashMap::new());
    let guard = bench.lock.lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_to_an_unlock_is_a_release_all_the_same() {
    let bench = Bench::start().await;
    let guard = bench.lock.lock().await.unwrap();
    Loss::Cut.strike(&bench.link);
    guard.unlock().await.unwrap();
    bench.link.lost_reply().await;
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));

    // No answer within the response timeout: the release goes on in the background.
    let bench = Bench::start().await;
    let guard = bench.lock.lock().await.unwrap();
    Loss::Silence.strike(&bench.link);
    let outcome = guard.unlock().await;
    assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}");
    // Its place in the lane is behind the repeats.
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 2), "one message a release");
}

#[tokio::test]
async fn a_lost_reply_to_a_re_entry_counts_once() {
    for loss in LOSSES {
        let bench = Bench::start().await;
        let outer = bench.lock.lock().await.unwrap();
        loss.strike(&bench.link);
        let inner = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        assert_eq!(bench.record(), one(&outer, 2), "{loss:?}");
        assert_eq!(inner.state(), HoldState::Held, "{loss:?}");

        inner.unlock().await.unwrap();
        assert_eq!(bench.record(), one(&outer, 1), "{loss:?}");
        outer.unlock().await.unwrap();
        assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1), "{loss:?}");
    }
}

#[tokio::test]
async fn a_lost_reply_to_a_partial_release_counts_once() {
    for loss in LOSSES {
        let bench = Bench::start().await;
        let guards = [
            bench.lock.lock().await.unwrap(),
            bench.lock.lock().await.unwrap(),
            bench.lock.lock().await.unwrap(),
        ];
        let [outer, middle, inner] = guards;
        loss.strike(&bench.link);
        let outcome = inner.unlock().await;
        match loss {
            Loss::Cut => outcome.unwrap(),
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        // Its place in the lane is behind the repeats.
        let again = bench.lock.lock().await.unwrap();
        assert_eq!(bench.record(), one(&outer, 3), "{loss:?}");
        again.unlock().await.unwrap();
        middle.unlock().await.unwrap();
        assert_eq!(bench.record(), one(&outer, 1), "{loss:?}");
        assert_eq!(outer.state(), HoldState::Held, "{loss:?}");
        outer.unlock().await.unwrap();
        assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1), "{loss:?}");
    }
}

#[tokio::test]
async fn a_connection_cut_in_the_middle_of_an_acquire_is_replaced() {
    let bench = Bench::start().await;
    bench.link.hold(Way::ToServer);
    let lock = bench.lock.clone();
    let locking = tokio::spawn(async move { lock.lock().await });
    bench.link.asked(1, changes_record).await;
    bench.link.cut();
    let guard = locking.await.unwrap().unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// The client closes its half of the old link before it opens another.
#[tokio::test]
async fn a_half_open_link_is_found_by_the_heartbeat_and_a_watched_hold_survives_it() {
    let bench = Bench::with(Client::builder().watchdog_timeout(Duration::from_secs(3))).await;
    let guard = bench.lock.lock().await.unwrap();
    let first = guard.deadline();
    let mut states = guard.states();
    assert_eq!(states.next().await, Some(HoldState::Held));
    bench.link.swallow_both();
    assert_eq!(states.next().await, Some(HoldState::Suspect));
    assert!(Instant::now() < first, "the doubt came after the lease");
    assert_eq!(states.next().await, Some(HoldState::Held));
    assert!(guard.deadline() > first);
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!(states.next().await, Some(HoldState::Released));
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// A call that is under way finds the dead link by itself.
#[tokio::test]
async fn a_half_open_link_costs_a_call_no_more_than_its_time() {
    let bench = Bench::start().await;
    bench.proxy.darken();
    for call in ["try_lock", "is_locked", "holder", "force_unlock"] {
        let started = Stopwatch::start();
        let error = match call {
            "try_lock" => bench.lock.try_lock().await.map(drop),
            "is_locked" => bench.lock.is_locked().await.map(drop),
            "holder" => bench.lock.holder().await.map(drop),
            _ => bench.lock.force_unlock().await.map(drop),
        }
        .unwrap_err();
        assert!(started.elapsed() < RESPONSE * 2, "{call}: {:?}", started.elapsed());
        assert!(
            matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. } | Error::Ambiguous { .. }),
            "{call}: {error:?}"
        );
    }
    bench.proxy.lighten();
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_watched_hold_behind_a_dead_network_is_lost_by_its_deadline() {
    let bench = Bench::with(Client::builder().watchdog_timeout(Duration::from_secs(2))).await;
    let watch = Stopwatch::start();
    let guard = bench.lock.lock().await.unwrap();
    let mut states = guard.states();
    assert_eq!(states.next().await, Some(HoldState::Held));
    bench.proxy.darken();
    assert_eq!(states.next().await, Some(HoldState::Suspect));
    // Nothing can move it any more.
    let deadline = guard.deadline();
    assert!(deadline > Instant::now());
    let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut bench.server.cli()).unwrap();
    assert!(deadline <= Instant::now() + Duration::from_millis(left + 1), "the server lets go before we do");

    assert_eq!(states.next().await, Some(HoldState::Lost(LossReason::Unreachable)));
    let late = watch.since(deadline);
    // The time that it takes to be scheduled.
    assert!(late < Duration::from_millis(100), "{late:?}");
    // The last state is the end of the stream.
    let end = tokio::time::timeout(Duration::from_secs(5), states.next()).await;
    assert_eq!(end, Ok(None), "the stream goes on after its last state");

    // Confirmed or not by then: never back from Lost.
    let text = guard.owner().to_owned();
    bench.proxy.lighten();
    let again = bench.lock.lock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
    assert_ne!(again.owner(), text);
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(&error, Error::NotHeld { holder: Some(holder), .. } if holder.owner() == again.owner()));
    assert_eq!(again.state(), HoldState::Held);
    assert_eq!(bench.record(), one(&again, 1));
    again.unlock().await.unwrap();
}

/// The old link is dead to the client, which repeats the release elsewhere and locks again. Then the server reads the
/// old link: by its text alone it could not tell the new hold from the old one.
#[tokio::test]
async fn a_release_that_comes_late_leaves_the_next_hold_alone() {
    let bench = Bench::start().await;
    let guard = bench.lock.lock().await.unwrap();
    let text = guard.owner().to_owned();
    bench.link.hold_and_cut(changes_record, async { guard.unlock().await.unwrap() }).await;
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));

    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(guard.owner(), format!("{text}~1"));
    let before = bench.record();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), before);
    assert_eq!(before, one(&guard, 1));
    // The ghost of a transaction says so to those who listen, who look and go on waiting.
    assert!(bench.published() <= 1);
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// What a replica did not have in time is given back, and that may come late as any other release.
#[tokio::test]
async fn an_undo_that_comes_late_leaves_the_next_hold_alone() {
    let within = Duration::from_millis(1500);
    let bench = Bench::with(Client::builder().replication(Replication::at_least(1).within(within))).await;
    let lock = bench.lock.with_owner(&Owner::unique());
    let taking = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    bench.link.answered(1, changes_record).await;
    bench.proxy.shut_gate_after(0, changes_record);
    let taken = taking.await.unwrap();
    assert!(matches!(taken, Err(Error::NotReplicated { .. })), "{taken:?}");
    bench.proxy.stopped().await;
    bench.link.hold(Way::ToServer);
    bench.link.cut_client();
    bench.proxy.open_gate();
    bench.next_message().await;
    assert_eq!(bench.record(), HashMap::new());

    let _replica = Server::replica_of(&bench.server);
    let guard = lock.lock().await.unwrap();
    let before = bench.record();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), before);
    assert_eq!(before, one(&guard, 1));
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn an_acquire_that_comes_late_leaves_the_hold_alone() {
    let bench = Bench::start().await;
    let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
    let before = bench.record();
    assert_eq!(before, one(&guard, 1));
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), before);
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// It finds the lock free, and nobody holds it by the text that it brings.
#[tokio::test]
async fn an_acquire_that_comes_late_to_a_free_lock_is_undone_for_who_waits() {
    let bench = Bench::start().await;
    let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
    let ghost = guard.owner().to_owned();
    guard.unlock().await.unwrap();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), HashMap::from([(ghost.clone(), 1)]));
    let guard = bench.lock.try_lock_for(Duration::from_secs(2)).await.unwrap().expect("the ghost is let be");
    assert_ne!(guard.owner(), ghost);
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

/// It would lengthen a lease that its owner wanted short.
#[tokio::test]
async fn a_renewal_that_comes_late_does_not_touch_the_next_hold() {
    let bench = Bench::with(Client::builder().watchdog_timeout(Duration::from_millis(900))).await;
    let guard = bench.lock.lock().await.unwrap();
    let deadline = guard.deadline();
    bench.link.hold_and_cut(changes_record, async {}).await;
    crate::support::eventually(|| guard.deadline() > deadline).await;
    guard.unlock().await.unwrap();
    let lock = bench.lock.with_lease(Duration::from_millis(400));
    let guard = lock.lock().await.unwrap();
    bench.link.deliver(changes_record).await;
    let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut bench.server.cli()).unwrap();
    assert!(left <= 400, "{left} ms");
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

/// The server renewed in time and tells it too late.
#[tokio::test]
async fn a_renewal_that_is_answered_late_does_not_revive_the_hold() {
    let lease = Duration::from_millis(2_400);
    let bench = Bench::with_response(Client::builder().watchdog_timeout(lease), Duration::from_secs(5)).await;
    let guard = bench.lock.lock().await.unwrap();
    let deadline = guard.deadline();
    crate::support::eventually(|| guard.deadline() > deadline).await;
    bench.link.hold(Way::ToClient);
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Unreachable));
    // From the confirmed renewal on, one is sent after a third of the lease, and the next one when that was waited for
    // for a third and a tenth has passed: its answer is waited for until a tenth after the end.
    assert_eq!(bench.record(), one(&guard, 1));
    bench.link.pass(Way::ToClient);
    bench.next_message().await;
    // Answers come in the order of the requests: at the second one here, what the renewal's did has been done.
    for _ in 0..2 {
        assert!(!bench.lock.is_locked().await.unwrap());
    }
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
    assert_eq!(bench.record(), HashMap::new());
}

/// The hold is the same and so is its text: what comes late finds the count that it expects, if that was reached
/// again meanwhile.
#[tokio::test]
async fn a_partial_release_that_comes_late_does_not_spoil_the_count() {
    let bench = Bench::start().await;
    let outer = bench.lock.lock().await.unwrap();
    let inner = bench.lock.lock().await.unwrap();
    bench.link.hold_and_cut(changes_record, async { inner.unlock().await.unwrap() }).await;
    assert_eq!(bench.record(), one(&outer, 1));
    let inner = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&outer, 2));
    bench.link.deliver(changes_record).await;
    // Whatever the record says now: what the holder does next must work, and the lock end free.
    let third = bench.lock.lock().await.unwrap();
    third.unlock().await.unwrap();
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), HoldState::Held);
    assert!(bench.record().contains_key(outer.owner()));
    outer.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

#[tokio::test]
async fn a_re_entry_that_comes_late_does_not_spoil_the_count() {
    let bench = Bench::start().await;
    let outer = bench.lock.lock().await.unwrap();
    let inner = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
    assert_eq!(bench.record(), one(&outer, 2));
    inner.unlock().await.unwrap();
    assert_eq!(bench.record(), one(&outer, 1));
    bench.link.deliver(changes_record).await;
    let inner = bench.lock.lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), HoldState::Held);
    outer.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// The record passes from one task to the next, and the request for it comes twice.
#[tokio::test]
async fn a_hand_off_that_comes_late_leaves_later_holds_alone() {
    let bench = Bench::start().await;
    let [a, b] = ["a", "b"].map(|owner| bench.lock.with_owner(&Owner::new(owner).unwrap()));
    let guard = a.lock().await.unwrap();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move { b.lock().await.unwrap() }
    });
    // The waiter is in the queue once it has been polled, and needs no trip for that.
    tokio::task::yield_now().await;
    let second = bench
        .link
        .hold_and_cut(changes_record, async {
            guard.unlock().await.unwrap();
            waiting.await.unwrap()
        })
        .await;
    assert_eq!(bench.record(), one(&second, 1));
    assert_eq!(bench.published(), 0, "a hand-off tells nobody");
    second.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
    let third = a.lock().await.unwrap();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), one(&third, 1));
    assert_eq!(third.state(), HoldState::Held);
    third.unlock().await.unwrap();
}

/// Whom a second send would free is not known, so there is none.
#[tokio::test]
async fn a_force_unlock_whose_reply_is_lost_is_not_repeated() {
    for loss in LOSSES {
        let bench = Bench::start().await;
        let other = Client::connect(bench.server.url()).await.unwrap().lock(NAME);
        let freed = other.lock().await.unwrap();
        loss.strike(&bench.link);
        let outcome = bench.lock.force_unlock().await;
        assert!(matches!(outcome, Err(Error::Ambiguous { .. })), "{loss:?}: {outcome:?}");
        bench.link.lost_reply().await;
        let next = other.with_owner(&Owner::unique()).lock().await.unwrap();
        // Answered on the connection that came after, or after the one that is silent is given up.
        while bench.lock.is_locked().await.is_err() {}
        assert_eq!(bench.record(), one(&next, 1), "{loss:?}");
        next.unlock().await.unwrap();
        assert!(freed.unlock().await.unwrap_err().is_lost());
    }
}

/// What the network takes is not the holder's to use.
#[tokio::test]
async fn a_lease_counts_from_the_send() {
    let bench = Bench::start().await;
    let (lease, delay) = (Duration::from_secs(2), RESPONSE / 2);
    bench.link.delay(Way::ToClient, delay);
    let sent = Instant::now();
    let guard = bench.lock.with_lease(lease).lock().await.unwrap();
    assert!(sent.elapsed() >= delay);
    let late = guard.deadline().saturating_duration_since(sent + lease);
    assert!(late < delay / 2, "{late:?}");
    guard.unlock().await.unwrap();
}

/// A client behind a proxy, and what the server says without it.
struct Bench {
    server: Server,
    proxy: Proxy,
    lock: Lock,
    /// Commands go here at first.
    link: Link,
    subscriber: Arc<Mutex<redis::Connection>>,
}

impl Bench {
    async fn start() -> Self {
        Self::with(Client::builder()).await
    }

    async fn with(builder: ClientBuilder) -> Self {
        Self::with_response(builder, RESPONSE).await
    }

    async fn with_response(builder: ClientBuilder, response: Duration) -> Self {
        let server = Server::start();
        scripts::load(&server);
        // Without a time limit of its own: that would be interrupted by signals, and what is waited for always comes.
        let mut subscriber = server.cli();
        redis::cmd("SUBSCRIBE").arg(CHANNEL).exec(&mut subscriber).unwrap();
        let proxy = Proxy::start(server.port()).await;
        let client = builder.response_timeout(response).connect(proxy.url()).await.unwrap();
        // The second link is that of the subscriptions, so that the third is the second for commands.
        let link = proxy.link(0).await;
        proxy.link(1).await;
        Self { lock: client.lock(NAME), link, proxy, server, subscriber: Arc::new(Mutex::new(subscriber)) }
    }

    fn record(&self) -> HashMap<String, u64> {
        redis::cmd("HGETALL").arg(NAME).query(&mut self.server.cli()).unwrap()
    }

    /// How many messages were published on the lock's channel since the last call. One of our own tells where to
    /// stop, because a channel delivers in order.
    fn published(&self) -> usize {
        redis::cmd("PUBLISH").arg(CHANNEL).arg("that was all").exec(&mut self.server.cli()).unwrap();
        let mut subscriber = self.subscriber.lock().unwrap();
        std::iter::repeat_with(|| receive(&mut subscriber)).take_while(|message| message == "0").count()
    }

    /// The next message that is published, or was since the last call.
    async fn next_message(&self) {
        let subscriber = self.subscriber.clone();
        // The client needs this thread to publish it.
        let hearing = tokio::task::spawn_blocking(move || receive(&mut subscriber.lock().unwrap()));
        assert_eq!(hearing.await.unwrap(), "0");
    }
}

fn receive(subscriber: &mut redis::Connection) -> String {
    let push = subscriber.recv_response().expect("the channel is silent");
    let (kind, _, message): (String, String, String) = redis::from_redis_value(push).unwrap();
    assert_eq!(kind, "message");
    message
}

/// Whether a request names the lock's record, other than to look at it.
fn changes_record(words: &Words) -> bool {
    const LOOKS: [&[u8]; 4] = [b"PTTL", b"EXISTS", b"HGET", b"HSCAN"];
    names_record(words) && !LOOKS.contains(&words[0].as_slice())
}

fn names_record(words: &Words) -> bool {
    words.iter().any(|word| word == NAME.as_bytes())
}

/// The record of one holder.
fn one(guard: &LockGuard, count: u64) -> HashMap<String, u64> {
    HashMap::from([(guard.owner().to_owned(), count)])
}
