//! How long a hold with several levels lasts, and holds with a limit.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, LossReason, Owner};

use crate::support::kind::{Kind, each};
use crate::support::proxy::{Direction, Words};
use crate::support::raw::changes;
use crate::support::{FaultyClient, RawRedis, Server, Stopwatch, eventually};

const NAME: &str = "n";
const EXPIRED: HoldState = HoldState::Lost(LossReason::Expired);

async fn connect(server: &Server, watchdog: Duration) -> Client {
    Client::builder().watchdog_timeout(watchdog).connect(server.url()).await.unwrap()
}

/// An inner level with the watchdog's lease used to lengthen the outer hold for good.
#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_of_a_fixed_lease_returns_when_the_inner_level_ends() {
    each(Kind::locks().filter(|kind| kind.is_reentrant()), |kind| async move {
        let (server, lease) = (kind.server(NAME), Duration::from_secs(20));
        let lock = kind.lock(&connect(&server, lease * 3).await, NAME);
        let outer = lock.with_lease(lease).lock().await.unwrap();
        let deadline = outer.deadline();
        for _ in 0..2 {
            let inner = lock.lock().await.unwrap();
            let nested = lock.with_lease(lease * 2).lock().await.unwrap();
            assert!(inner.deadline() > deadline + lease, "{kind}");
            inner.unlock().await.unwrap();
            // The fixed lease of the other inner level counts now.
            assert!(nested.deadline() <= Instant::now() + lease * 2, "{kind}");
            drop(nested);
            let watch = Stopwatch::start();
            while outer.deadline() != deadline {
                assert!(watch.elapsed() < lease, "{kind}: {:?}", outer.deadline() - deadline);
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(outer.state(), HoldState::Held, "{kind}");
        outer.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_outer_hold_whose_time_passed_meanwhile_is_lost() {
    let (server, lease) = (Server::start(), Duration::from_millis(1800));
    let raw = RawRedis::of(&server);
    let lock = connect(&server, lease).await.lock(NAME);
    let outer = lock.with_lease(lease / 2).lock().await.unwrap();
    let passed = outer.deadline();
    let inner = lock.lock().await.unwrap();
    // The watchdog renews both until the inner level ends.
    while Instant::now() <= passed || inner.deadline() < passed + lease {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((outer.state(), inner.state()), (HoldState::Held, HoldState::Held));
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), EXPIRED);
    assert!(matches!(outer.unlock().await, Err(Error::NotHeld { .. })));
    eventually(|| raw.run::<u32>(&["EXISTS", NAME]) == 0).await;
}

#[tokio::test]
async fn a_remaining_fixed_level_is_not_renewed() {
    let (server, lease) = (Server::start(), Duration::from_millis(1800));
    let lock = connect(&server, lease).await.lock(NAME);
    let outer = lock.lock().await.unwrap();
    let inner = lock.with_lease(lease / 2).lock().await.unwrap();
    let end = Instant::now() + lease / 2;
    outer.unlock().await.unwrap();
    assert!(inner.deadline() <= end, "{:?} too late", inner.deadline() - end);
    assert_eq!(inner.lost().await, EXPIRED);
}

/// The watchdog renews the hold several times, warns, and stops.
#[tokio::test]
async fn a_hold_ends_at_its_limit_and_warns_before() {
    let (server, lease) = (Server::start(), Duration::from_millis(1500));
    let raw = RawRedis::of(&server);
    let client = connect(&server, lease).await;
    let (max, lock) = (lease * 3, client.mutex(NAME));
    let asked = Instant::now();
    let guard = lock.with_max_hold(max).lock().await.unwrap();
    let taken = Instant::now();
    let left = guard.ending().await;
    let warned = Instant::now();
    assert!(warned >= asked + max - lease, "warned after {:?}", warned - asked);
    assert!(left <= lease && guard.state() == HoldState::Held, "{left:?} {:?}", guard.state());
    assert_eq!(guard.lost().await, EXPIRED);
    assert!(asked.elapsed() >= max && guard.deadline() <= taken + max, "{:?}", asked.elapsed());
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    eventually(|| raw.run::<u32>(&["EXISTS", NAME]) == 0).await;

    // `run` cancels its body at the limit, also if that is shorter than the lease.
    let asked = Instant::now();
    let short = lock.with_max_hold(lease / 4);
    let outcome = short.run(|holding| async move {
        assert!(holding.ending().await <= lease / 4);
        std::future::pending::<()>().await
    });
    assert!(matches!(outcome.await, Err(Error::Lost { reason: LossReason::Expired, .. })));
    assert!(asked.elapsed() >= lease / 4);
    for bad in [Duration::ZERO, Duration::MAX] {
        assert!(matches!(lock.with_max_hold(bad).lock().await, Err(Error::Misuse { .. })));
    }
}

/// The last renewal asks for no more than the rest, so the record of a process that dies does not outlast the limit.
#[tokio::test]
async fn the_record_ends_at_the_limit_of_its_hold() {
    let (server, lease) = (Server::start(), Duration::from_secs(3));
    let raw = RawRedis::of(&server);
    let client = connect(&server, lease).await;
    // A whole lease from the second renewal, which is due after half a lease at the earliest, would end much later.
    let max = lease + lease / 3;
    let asked = Instant::now();
    let guard = client.mutex(NAME).with_max_hold(max).lock().await.unwrap();
    let latest = Instant::now() + max;
    eventually(|| guard.deadline() >= asked + max).await;
    // The record ends between these two.
    let before = Instant::now();
    let left = Duration::from_millis(raw.run(&["PTTL", NAME]));
    let (earliest, last) = (before + left, Instant::now() + left + Duration::from_millis(1));
    assert!(last >= guard.deadline(), "the record ends too early");
    assert!(earliest < latest + lease / 8, "the record outlasts the limit by {:?}", earliest - latest);
    guard.unlock().await.unwrap();
}

/// The release of an inner level asks for no more than the rest, either.
#[tokio::test]
async fn a_partial_release_does_not_lengthen_the_record_beyond_the_limit() {
    let (server, lease, used) = (Server::start(), Duration::from_secs(60), Duration::from_millis(500));
    let raw = RawRedis::of(&server);
    let lock = connect(&server, lease).await.lock(NAME);
    let max = lease + used / 5;
    let outer = lock.with_max_hold(max).lock().await.unwrap();
    let latest = Instant::now() + max;
    let inner = lock.lock().await.unwrap();
    tokio::time::sleep(used).await;
    inner.unlock().await.unwrap();
    let earliest = Instant::now() + Duration::from_millis(raw.run(&["PTTL", NAME]));
    assert!(earliest < latest + used / 5, "the record outlasts the limit by {:?}", earliest - latest);
    outer.unlock().await.unwrap();
}

/// The renewal asks for what is left of the outer level. The inner level is taken before the reply, and lasts longer than that.
#[tokio::test]
async fn a_level_that_is_taken_during_a_renewal_does_not_outlast_the_record() {
    let lease = Duration::from_secs(3);
    let bench = FaultyClient::patient_with(Client::builder().watchdog_timeout(lease)).await;
    let lock = bench.client.lock(NAME).with_owner(&Owner::unique());
    let outer = lock.with_max_hold(Duration::from_millis(1900)).lock().await.unwrap();
    let asked = bench.link.count(changes);
    bench.link.hold(Direction::ToClient);
    // One frame passes: the renewal itself. Its reply waits.
    bench.proxy.shut_gate_after(1, renews);
    let inner = lock.with_max_hold(Duration::from_millis(2200));
    let inner = tokio::spawn(async move { inner.lock().await.unwrap() });
    bench.link.asked(asked + 2, changes).await;
    bench.link.pass(Direction::ToClient);
    let inner = inner.await.unwrap();
    bench.proxy.open_gate();
    // Replies come in the order of the requests: once the second call here returns, the renewal's reply has been handled.
    for _ in 0..2 {
        assert!(lock.is_locked().await.unwrap());
    }
    let left = Duration::from_millis(bench.raw.run(&["PTTL", NAME]));
    let latest = Instant::now() + left + Duration::from_millis(1);
    assert!(outer.deadline() <= latest, "{:?} after the record", outer.deadline() - latest);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
}

/// The outer level, which the watchdog renews, ends after the grant of the inner one, and before its owner has taken it.
#[tokio::test]
async fn a_fixed_lease_is_taken_after_the_last_renewed_level_has_ended() {
    let (lease, fixed) = (Duration::from_secs(60), Duration::from_secs(10));
    let bench = FaultyClient::patient_with(Client::builder().watchdog_timeout(lease)).await;
    let lock = bench.client.lock(NAME).with_owner(&Owner::unique());
    for short in [lock.with_lease(fixed), lock.with_max_hold(fixed)] {
        let outer = lock.lock().await.unwrap();
        let asked = bench.link.count(changes);
        bench.link.hold(Direction::ToClient);
        let inner = tokio::spawn(async move { short.lock().await.unwrap() });
        bench.link.asked(asked + 1, changes).await;
        let unlocking = tokio::spawn(outer.unlock());
        // It is queued behind the request of the inner level.
        tokio::task::yield_now().await;
        bench.link.pass(Direction::ToClient);
        let inner = inner.await.unwrap();
        assert!(inner.deadline() <= Instant::now() + fixed, "{:?}", inner.deadline() - Instant::now());
        unlocking.await.unwrap().unwrap();
        inner.unlock().await.unwrap();
    }
}

/// The outer level is released late in the lease, without a new one. Only then the owner of the inner level takes it.
#[tokio::test]
async fn a_renewed_level_that_is_taken_late_is_renewed_in_time() {
    let (server, lease) = (Server::start(), Duration::from_secs(3));
    let raw = RawRedis::of(&server);
    let lock = connect(&server, lease).await.lock(NAME).with_owner(&Owner::unique());
    let outer = lock.with_lease(lease - lease / 10).lock().await.unwrap();
    let mut taking = std::pin::pin!(lock.lock());
    assert!(futures_util::poll!(taking.as_mut()).is_pending());
    eventually(|| raw.run::<Vec<u32>>(&["HVALS", NAME]) == [2]).await;
    let granted = Instant::now();
    tokio::time::sleep(lease * 7 / 10).await;
    outer.unlock().await.unwrap();
    let inner = taking.await.unwrap();
    eventually(|| inner.deadline() > granted + lease * 3 / 2).await;
    assert_eq!(inner.state(), HoldState::Held);
    inner.unlock().await.unwrap();
}

/// Whether a request renews one plain lock: an acquire and a change of the count have more words.
fn renews(words: &Words) -> bool {
    words[0] == b"EVALSHA" && words.len() == 6
}

/// Without a limit there is no warning, and a limit does not concern a hold that is released before.
#[tokio::test]
async fn the_warning_ends_with_the_hold() {
    let (server, lease) = (Server::start(), Duration::from_millis(1800));
    let lock = connect(&server, lease).await.mutex(NAME);
    for lock in [lock.clone(), lock.with_max_hold(lease * 1000)] {
        let guard = lock.lock().await.unwrap();
        let holding = guard.status();
        let ending = tokio::spawn(async move { holding.ending().await });
        let first = guard.deadline();
        eventually(|| guard.deadline() > first + lease).await;
        assert!(!ending.is_finished());
        guard.unlock().await.unwrap();
        assert_eq!(ending.await.unwrap(), Duration::ZERO);
    }
    let guard = lock.with_lease(lease * 100).lock().await.unwrap();
    assert!(guard.ending().await > lease);
    guard.unlock().await.unwrap();
}
