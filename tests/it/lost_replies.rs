//! Lost replies, late requests, and connections that die without notice.
//!
//! The tests read the record and the published messages from the server itself, not through the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::poll;
use redisson_lock::{
    Client, ClientBuilder, Error, HoldState, Lock, LockGuard, LossReason, Owner, Replication,
};
use tokio_stream::StreamExt;

use crate::support::proxy::{Direction, ProxyLink, Words};
use crate::support::{Proxy, Server, Stopwatch, eventually, scripts};

const NAME: &str = "orders";
const CHANNEL: &str = "redisson_lock__channel:{orders}";
/// Short, because the tests wait for it, and longer than this machine stalls for a moment.
const RESPONSE: Duration = Duration::from_millis(600);

/// The connection ends with the lost reply, or it is silent from then on.
const LOSSES: [Loss; 2] = [Loss::Cut, Loss::Silence];

#[derive(Clone, Copy, Debug)]
enum Loss {
    Cut,
    Silence,
}

impl Loss {
    /// Loses the reply to the next request that may change the lock's record.
    fn strike(self, link: &ProxyLink) {
        match self {
            Self::Cut => link.cut_at_reply_to(changes_record),
            Self::Silence => link.lose_reply_to(changes_record),
        }
    }
}

#[tokio::test]
async fn a_lost_reply_to_an_acquire_leaves_one_hold() {
    for loss in LOSSES {
        let bench = Bench::losing(loss).await;
        loss.strike(&bench.link);
        let started = Instant::now();
        let guard = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        // The hold is the one whose reply was lost, and not a second one that waited for the first one's lease.
        assert!(!guard.owner().contains('~'), "{loss:?}: {} after {:?}", guard.owner(), started.elapsed());
        assert_eq!(guard.state(), HoldState::Held, "{loss:?}");
        assert_eq!(bench.record(), one(&guard, 1), "{loss:?}");

        let first = guard.owner().to_owned();
        guard.unlock().await.unwrap();
        assert_eq!(bench.record(), HashMap::new(), "{loss:?}");
        assert_eq!(bench.published(), 1, "{loss:?}");
        // The dead connection may still deliver a request with the first owner id.
        let guard = bench.lock.lock().await.unwrap();
        assert_ne!(guard.owner(), first, "{loss:?}");
        guard.unlock().await.unwrap();
    }
}

/// A single attempt ends with the response timeout, and its possible effect is undone.
#[tokio::test]
async fn a_lost_reply_to_a_try_lock_leaves_its_hold_or_none() {
    let bench = Bench::patient(Client::builder()).await;
    Loss::Cut.strike(&bench.link);
    // The client reconnects well within that time, and repeating the request is harmless.
    let guard = bench.lock.try_lock().await.unwrap().expect("nobody else holds it");
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));

    let bench = Bench::start().await;
    Loss::Silence.strike(&bench.link);
    let started = Stopwatch::start();
    let error = bench.lock.try_lock().await.unwrap_err();
    // The heartbeat may find the silence first.
    assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error:?}");
    assert!(started.elapsed() < RESPONSE * 2, "{:?}", started.elapsed());
    // This message comes from the release that undoes the hold.
    bench.next_message().await;
    assert_eq!(bench.record(), HashMap::new());
    let guard = bench.lock.lock().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_to_an_unlock_still_releases() {
    let bench = Bench::patient(Client::builder()).await;
    let guard = bench.lock.lock().await.unwrap();
    Loss::Cut.strike(&bench.link);
    guard.unlock().await.unwrap();
    bench.link.lost_reply().await;
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));

    // Without a reply within the response timeout, the release goes on in the background.
    let bench = Bench::start().await;
    let guard = bench.lock.lock().await.unwrap();
    Loss::Silence.strike(&bench.link);
    let outcome = guard.unlock().await;
    assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}");
    // This acquire is queued behind the repeats.
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 2), "one message for each release");
}

#[tokio::test]
async fn a_lost_reply_to_a_re_entry_counts_once() {
    for loss in LOSSES {
        let bench = Bench::losing(loss).await;
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
        let bench = Bench::losing(loss).await;
        let guards = [
            bench.lock.lock().await.unwrap(),
            bench.lock.lock().await.unwrap(),
            bench.lock.lock().await.unwrap(),
        ];
        let [outer, middle, inner] = guards;
        loss.strike(&bench.link);
        let outcome = inner.unlock().await;
        match loss {
            Loss::Cut => {
                outcome.unwrap();
                assert_eq!(bench.record(), one(&outer, 2), "a repeat was confirmed");
            }
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        // This acquire is queued behind the repeats. It also corrects a wrong count.
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
    let bench = Bench::patient(Client::builder()).await;
    bench.link.hold(Direction::ToServer);
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
async fn the_heartbeat_finds_a_half_open_link_and_the_hold_survives() {
    let bench = Bench::with(Client::builder().watchdog_timeout(Duration::from_secs(3))).await;
    let guard = bench.lock.lock().await.unwrap();
    let first = guard.deadline();
    let mut states = guard.status().states();
    assert_eq!(states.next().await, Some(HoldState::Held));
    bench.link.swallow_both();
    assert_eq!(states.next().await, Some(HoldState::Suspect));
    assert!(Instant::now() < first, "the hold became suspect after the end of its lease");
    assert_eq!(states.next().await, Some(HoldState::Held));
    assert!(guard.deadline() > first);
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
    assert_eq!(states.next().await, Some(HoldState::Released));
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// A call under way detects the dead link by itself.
#[tokio::test]
async fn a_call_on_a_half_open_link_ends_within_its_timeout() {
    let bench = Bench::start().await;
    bench.proxy.partition();
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
    bench.proxy.heal();
    let guard = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_watched_hold_behind_a_dead_network_is_lost_by_its_deadline() {
    let bench = Bench::with(Client::builder().watchdog_timeout(Duration::from_secs(2))).await;
    let watch = Stopwatch::start();
    let guard = bench.lock.lock().await.unwrap();
    let mut states = guard.status().states();
    assert_eq!(states.next().await, Some(HoldState::Held));
    bench.proxy.partition();
    assert_eq!(states.next().await, Some(HoldState::Suspect));
    // Nothing can move the deadline any more.
    let deadline = guard.deadline();
    assert!(deadline > Instant::now());
    let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut bench.server.cli()).unwrap();
    assert!(
        deadline <= Instant::now() + Duration::from_millis(left + 1),
        "the record expires before the client's deadline"
    );

    assert_eq!(states.next().await, Some(HoldState::Lost(LossReason::Unreachable)));
    let late = watch.since(deadline);
    // Allowance for scheduling.
    assert!(late < Duration::from_millis(100), "{late:?}");
    // The stream ends after a final state.
    let end = tokio::time::timeout(Duration::from_secs(5), states.next()).await;
    assert_eq!(end, Ok(None), "the stream continues after a final state");

    // A lost hold never comes back, whether or not its last renewal took effect.
    let text = guard.owner().to_owned();
    bench.proxy.heal();
    let again = bench.lock.lock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
    assert_ne!(again.owner(), text);
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(&error, Error::NotHeld { holder: Some(holder), .. } if holder.owner() == again.owner()));
    assert_eq!(again.state(), HoldState::Held);
    assert_eq!(bench.record(), one(&again, 1));
    again.unlock().await.unwrap();
}

/// The client gives up the old link, repeats the release on another one and locks again. Then the server reads the old
/// link. With one owner id for both holds it could not tell them apart.
#[tokio::test]
async fn a_late_release_leaves_the_next_hold_alone() {
    let bench = Bench::patient(Client::builder()).await;
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
    // A late release that is a transaction publishes its message. Its receivers look at the lock and go on waiting.
    assert!(bench.published() <= 1);
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// A hold that no replica confirms in time is undone, and that release may arrive late like any other.
#[tokio::test]
async fn a_late_undo_leaves_the_next_hold_alone() {
    let within = Duration::from_millis(1500);
    let bench = Bench::patient(Client::builder().replication(Replication::at_least(1).within(within))).await;
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
    bench.link.hold(Direction::ToServer);
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

/// A caller's own request goes unanswered. Its record is undone for another caller, and the undo is late. So the request must not be
/// repeated under the owner id of that record.
#[tokio::test]
async fn a_late_undo_of_an_unanswered_acquire_leaves_the_next_hold_alone() {
    let bench = Bench::patient(Client::builder()).await;
    let [earlier, later] = [(); 2].map(|()| bench.lock.with_owner(&Owner::unique()));
    bench.link.hold(Direction::ToClient);
    let first = tokio::spawn(async move { earlier.lock().await });
    eventually(|| !bench.record().is_empty()).await;
    let mut second = Box::pin(later.try_lock());
    assert!(poll!(second.as_mut()).is_pending(), "it is behind the request of the first");
    // The attempt of the second passes, and its reply. Then the undo waits.
    bench.proxy.shut_gate_after(2, changes_record);
    bench.link.cut_client();
    assert!(second.await.unwrap().is_none());
    bench.proxy.stopped().await;
    let link = bench.proxy.link(2).await;
    link.hold(Direction::ToServer);
    link.cut_client();
    bench.proxy.open_gate();
    let guard = first.await.unwrap().unwrap();
    let before = bench.record();
    assert_eq!(before, one(&guard, 1));
    link.deliver(changes_record).await;
    assert_eq!(bench.record(), before);
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_late_acquire_leaves_the_current_hold_alone() {
    let bench = Bench::patient(Client::builder()).await;
    let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
    let before = bench.record();
    assert_eq!(before, one(&guard, 1));
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), before);
    guard.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

/// The late acquire finds the lock free, and takes it for an owner id that no hold has.
#[tokio::test]
async fn a_late_acquire_of_a_free_lock_is_undone_for_waiters() {
    let bench = Bench::patient(Client::builder()).await;
    let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
    let orphan = guard.owner().to_owned();
    guard.unlock().await.unwrap();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), HashMap::from([(orphan.clone(), 1)]));
    let guard = bench
        .lock
        .try_lock_for(Duration::from_secs(2))
        .await
        .unwrap()
        .expect("the orphaned record is removed");
    assert_ne!(guard.owner(), orphan);
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

/// A late renewal would lengthen a lease that its owner wanted short.
#[tokio::test]
async fn a_late_renewal_does_not_touch_the_next_hold() {
    let bench = Bench::patient(Client::builder().watchdog_timeout(Duration::from_secs(3))).await;
    let guard = bench.lock.lock().await.unwrap();
    let deadline = guard.deadline();
    bench.link.hold_and_cut(changes_record, async {}).await;
    crate::support::eventually(|| guard.deadline() > deadline).await;
    guard.unlock().await.unwrap();
    let lock = bench.lock.with_lease(Duration::from_secs(2));
    let guard = lock.lock().await.unwrap();
    bench.link.deliver(changes_record).await;
    let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut bench.server.cli()).unwrap();
    assert!(left <= 2000, "{left} ms");
    assert_eq!(bench.record(), one(&guard, 1));
    guard.unlock().await.unwrap();
}

/// The server renews in time, but its reply comes too late.
#[tokio::test]
async fn a_late_reply_to_a_renewal_does_not_revive_the_hold() {
    let lease = Duration::from_millis(2_400);
    let bench = Bench::with_response(Client::builder().watchdog_timeout(lease), Duration::from_secs(5)).await;
    let guard = bench.lock.lock().await.unwrap();
    let deadline = guard.deadline();
    crate::support::eventually(|| guard.deadline() > deadline).await;
    bench.link.hold(Direction::ToClient);
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Unreachable));
    // After the confirmed renewal, the next one is sent after a third of the lease, and awaited for a third. The one
    // after that is sent a tenth later, so its reply is awaited until a tenth of the lease after the deadline.
    assert_eq!(bench.record(), one(&guard, 1));
    bench.link.pass(Direction::ToClient);
    bench.next_message().await;
    // Replies come in the order of the requests: once the second call here returns, the renewal's reply has been handled.
    for _ in 0..2 {
        assert!(!bench.lock.is_locked().await.unwrap());
    }
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
    assert_eq!(bench.record(), HashMap::new());
}

/// The hold and its owner id are the same. So a late request applies if the record has reached the count that it expects again.
#[tokio::test]
async fn a_late_partial_release_does_not_spoil_the_count() {
    let bench = Bench::patient(Client::builder()).await;
    let outer = bench.lock.lock().await.unwrap();
    let inner = bench.lock.lock().await.unwrap();
    bench.link.hold_and_cut(changes_record, async { inner.unlock().await.unwrap() }).await;
    assert_eq!(bench.record(), one(&outer, 1));
    let inner = bench.lock.lock().await.unwrap();
    assert_eq!(bench.record(), one(&outer, 2));
    bench.link.deliver(changes_record).await;
    // Whatever the record says now, the holder's next calls must work and the lock must end free.
    let third = bench.lock.lock().await.unwrap();
    third.unlock().await.unwrap();
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), HoldState::Held);
    assert!(bench.record().contains_key(outer.owner()));
    outer.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
}

#[tokio::test]
async fn a_late_re_entry_does_not_spoil_the_count() {
    let bench = Bench::patient(Client::builder()).await;
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

/// The record passes from one task to the next, and the request for that arrives twice.
#[tokio::test]
async fn a_late_hand_off_leaves_later_holds_alone() {
    let bench = Bench::patient(Client::builder()).await;
    let [a, b] = ["a", "b"].map(|owner| bench.lock.with_owner(&Owner::new(owner).unwrap()));
    let guard = a.lock().await.unwrap();
    let waiting = tokio::spawn({
        let b = b.clone();
        async move { b.lock().await.unwrap() }
    });
    // A waiter is queued once it has been polled. That needs no round trip.
    tokio::task::yield_now().await;
    let second = bench
        .link
        .hold_and_cut(changes_record, async {
            guard.unlock().await.unwrap();
            waiting.await.unwrap()
        })
        .await;
    assert_eq!(bench.record(), one(&second, 1));
    assert_eq!(bench.published(), 0, "a hand-off publishes nothing");
    second.unlock().await.unwrap();
    assert_eq!((bench.record(), bench.published()), (HashMap::new(), 1));
    let third = a.lock().await.unwrap();
    bench.link.deliver(changes_record).await;
    assert_eq!(bench.record(), one(&third, 1));
    assert_eq!(third.state(), HoldState::Held);
    third.unlock().await.unwrap();
}

/// The next holder has left by the time that the servers are reached again. Only the releasing client knows of its record.
#[tokio::test]
async fn a_hand_off_without_a_reply_until_the_deadline_leaves_no_record() {
    let lease = Duration::from_secs(2);
    let bench = Bench::with(Client::builder().connect_timeout(Duration::from_secs(1))).await;
    let [a, b] = ["a", "b"].map(|owner| bench.lock.with_owner(&Owner::new(owner).unwrap()));
    let guard = a.with_lease(lease).lock().await.unwrap();
    let (deadline, holder) = (guard.deadline(), guard.owner().to_owned());
    let longer = b.with_lease(lease * 5 / 2);
    let waiting = tokio::spawn(async move { longer.lock().await });
    // A waiter is queued once it has been polled. That needs no round trip.
    tokio::task::yield_now().await;
    Loss::Silence.strike(&bench.link);
    let unlocking = tokio::spawn(async move { guard.unlock().await });
    bench.link.lost_reply().await;
    bench.proxy.partition();
    waiting.abort();
    assert!(!bench.record().contains_key(&holder), "the record has moved");
    let outcome = unlocking.await.unwrap();
    assert!(matches!(outcome, Err(Error::Ambiguous { .. })), "{outcome:?}");
    tokio::time::sleep_until(deadline.into()).await;
    bench.proxy.heal();
    eventually(|| bench.record().is_empty()).await;
    assert_eq!(bench.published(), 1, "the record was left to expire");
}

/// An earlier waiter's busy reply does not tell whether the lock was busy during a later wait.
#[tokio::test]
async fn a_wait_on_a_silent_link_does_not_end_as_busy_by_an_old_reply() {
    // The heartbeat must not end the connection before the wait ends.
    let bench = Bench::patient(Client::builder()).await;
    let other = Client::connect(bench.server.url()).await.unwrap();
    let guard = other.mutex(NAME).lock().await.unwrap();
    let [a, b] = ["a", "b"].map(|owner| bench.lock.with_owner(&Owner::new(owner).unwrap()));
    let waiting = tokio::spawn(async move { a.lock().await });
    bench.link.answered(2, names_record).await;
    bench.link.swallow_both();
    // A reply of the last 15 ms would count.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let error = b.try_lock_for(Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    waiting.abort();
    guard.unlock().await.unwrap();
}

/// A second send could free another holder, so there is none.
#[tokio::test]
async fn a_force_unlock_whose_reply_is_lost_is_not_repeated() {
    for loss in LOSSES {
        let bench = Bench::losing(loss).await;
        let other = Client::connect(bench.server.url()).await.unwrap().lock(NAME);
        let freed = other.lock().await.unwrap();
        loss.strike(&bench.link);
        let outcome = bench.lock.force_unlock().await;
        assert!(matches!(outcome, Err(Error::Ambiguous { .. })), "{loss:?}: {outcome:?}");
        bench.link.lost_reply().await;
        let next = other.with_owner(&Owner::unique()).lock().await.unwrap();
        // Answered on the next connection, or once the silent one is given up.
        while bench.lock.is_locked().await.is_err() {}
        assert_eq!(bench.record(), one(&next, 1), "{loss:?}");
        next.unlock().await.unwrap();
        assert!(freed.unlock().await.unwrap_err().is_lost());
    }
}

/// The time on the network counts against the lease.
#[tokio::test]
async fn a_lease_counts_from_the_send() {
    let bench = Bench::patient(Client::builder()).await;
    let (lease, delay) = (Duration::from_secs(2), Duration::from_millis(150));
    bench.link.delay(Direction::ToClient, delay);
    let guard = bench.lock.with_lease(lease).lock().await.unwrap();
    // The reply came at least this long after the request was sent.
    let latest = Instant::now() + lease - delay;
    assert!(guard.deadline() <= latest, "{:?} too late", guard.deadline() - latest);
    guard.unlock().await.unwrap();
}

/// A client behind a proxy, and direct access to its server.
struct Bench {
    server: Server,
    proxy: Proxy,
    lock: Lock,
    /// The first link of the client for commands.
    link: ProxyLink,
    subscriber: Arc<Mutex<redis::Connection>>,
}

impl Bench {
    async fn start() -> Self {
        Self::with(Client::builder()).await
    }

    async fn with(builder: ClientBuilder) -> Self {
        Self::with_response(builder, RESPONSE).await
    }

    /// Where every connection either replies or ends. The machine may stall for as long as the response timeout.
    async fn patient(builder: ClientBuilder) -> Self {
        Self::with_response(builder, Duration::from_secs(10)).await
    }

    async fn losing(loss: Loss) -> Self {
        match loss {
            Loss::Cut => Self::patient(Client::builder()).await,
            Loss::Silence => Self::start().await,
        }
    }

    async fn with_response(builder: ClientBuilder, response: Duration) -> Self {
        let server = Server::start();
        scripts::load(&server);
        // No read timeout: signals would interrupt it, and an awaited message always comes.
        let mut subscriber = server.cli();
        redis::cmd("SUBSCRIBE").arg(CHANNEL).exec(&mut subscriber).unwrap();
        let proxy = Proxy::start(server.port()).await;
        let client = builder.response_timeout(response).connect(proxy.url()).await.unwrap();
        // The second link carries the subscriptions, so the third is the second one for commands.
        let link = proxy.link(0).await;
        proxy.link(1).await;
        Self { lock: client.lock(NAME), link, proxy, server, subscriber: Arc::new(Mutex::new(subscriber)) }
    }

    fn record(&self) -> HashMap<String, u64> {
        redis::cmd("HGETALL").arg(NAME).query(&mut self.server.cli()).unwrap()
    }

    /// The number of messages on the lock's channel since the last call. A message of our own marks the end, because a
    /// channel delivers in order.
    fn published(&self) -> usize {
        redis::cmd("PUBLISH").arg(CHANNEL).arg("that was all").exec(&mut self.server.cli()).unwrap();
        let mut subscriber = self.subscriber.lock().unwrap();
        std::iter::repeat_with(|| receive(&mut subscriber)).take_while(|message| message == "0").count()
    }

    /// Waits for the next message. One that was published since the last call counts, too.
    async fn next_message(&self) {
        let subscriber = self.subscriber.clone();
        // The client needs this thread to publish the message.
        let hearing = tokio::task::spawn_blocking(move || receive(&mut subscriber.lock().unwrap()));
        assert_eq!(hearing.await.unwrap(), "0");
    }
}

fn receive(subscriber: &mut redis::Connection) -> String {
    let push = subscriber.recv_response().expect("a message arrives");
    let (kind, _, message): (String, String, String) = redis::from_redis_value(push).unwrap();
    assert_eq!(kind, "message");
    message
}

/// Whether a request names the lock's record and may change it.
fn changes_record(words: &Words) -> bool {
    const LOOKS: [&[u8]; 4] = [b"PTTL", b"EXISTS", b"HGET", b"HSCAN"];
    names_record(words) && !LOOKS.contains(&words[0].as_slice())
}

fn names_record(words: &Words) -> bool {
    words.iter().any(|word| word == NAME.as_bytes())
}

/// The record of a single holder.
fn one(guard: &LockGuard, count: u64) -> HashMap<String, u64> {
    HashMap::from([(guard.owner().to_owned(), count)])
}
