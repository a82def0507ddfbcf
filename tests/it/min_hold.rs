//! Locks whose record stays for a minimum time, although the hold is released earlier.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, Lock, LossReason, MultiLock};

use crate::support::kind::{Kind, each, is_idle};
use crate::support::proxy::ProxyLink;
use crate::support::raw::NAME;
use crate::support::{BUSY_WAIT, FaultyClient, Java, RawRedis, Server, Stopwatch, eventually, versions};

const MIN: Duration = Duration::from_secs(60);

fn is_supported(kind: Kind) -> bool {
    kind.hands_off() && !kind.is_queued()
}

/// The record names nobody, and ends within the rest of the minimum time.
async fn assert_kept(lock: &Lock) {
    let seen = lock.inspect().await.unwrap();
    let [holder] = seen.holders.as_slice() else { panic!("{seen:?}") };
    assert!(holder.owner().ends_with(":kept") && holder.count() == 1, "{seen:?}");
    let left = seen.remaining_lease.unwrap();
    assert!(left > Duration::ZERO && left <= MIN, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lock_stays_busy_for_the_rest_of_its_minimum_time() {
    each(Kind::locks(), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = tokio::join!(Client::connect(server.url()), Client::connect(server.url()));
        let (lock, other) = (kind.lock(&one.unwrap(), NAME), kind.lock(&two.unwrap(), NAME));
        let kept = lock.with_min_hold(MIN);
        if !is_supported(kind) {
            assert!(matches!(kept.lock().await, Err(Error::Misuse { .. })), "{kind}");
            return;
        }
        let guard = kept.lock().await.unwrap();
        // The record outlives the process for the minimum time, which is longer than the client's lease.
        assert!(lock.remaining_lease().await.unwrap() > Some(Duration::from_secs(31)), "{kind}");
        guard.unlock().await.unwrap();
        assert_kept(&lock).await;
        for lock in [&lock, &other, &kept] {
            assert!(lock.try_lock().await.unwrap().is_none(), "{kind}");
        }
        assert!(other.force_unlock().await.unwrap(), "{kind}");
        // A dropped guard is released in the background.
        drop(kept.lock().await.unwrap());
        let released = async { while !lock.holder().await.unwrap().unwrap().owner().ends_with(":kept") {} };
        tokio::time::timeout(Duration::from_secs(20), released).await.expect("the guard is released");
        assert_kept(&lock).await;
    })
    .await;
}

#[tokio::test]
async fn a_waiter_gets_the_lock_when_the_minimum_time_is_over() {
    let (server, min) = (Server::start(), Duration::from_millis(500));
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let kept = client.mutex(NAME).with_min_hold(min);
    for waiter in [client.mutex(NAME), other.mutex(NAME)] {
        let asked = Instant::now();
        let watch = Stopwatch::start();
        let guard = kept.lock().await.unwrap();
        let waiting = tokio::spawn(async move { waiter.lock().await.unwrap() });
        guard.unlock().await.unwrap();
        let next = waiting.await.unwrap();
        assert!(asked.elapsed() >= min, "{:?}", asked.elapsed());
        assert!(watch.elapsed() < min + Duration::from_secs(2), "{:?}", watch.elapsed());
        next.unlock().await.unwrap();
    }
    // A hold that lasts longer is released at once.
    let guard = kept.lock().await.unwrap();
    tokio::time::sleep(min).await;
    guard.unlock().await.unwrap();
    client.mutex(NAME).try_lock().await.unwrap().expect("the time is over").unlock().await.unwrap();
}

/// Only the last release counts, and a re-entry may prolong the minimum time.
#[tokio::test]
async fn inner_levels_share_the_minimum_time() {
    let server = Server::start();
    let lock = Client::connect(server.url()).await.unwrap().lock(NAME);
    let outer = lock.lock().await.unwrap();
    lock.with_min_hold(MIN).lock().await.unwrap().unlock().await.unwrap();
    assert!(lock.is_held().await.unwrap());
    outer.unlock().await.unwrap();
    assert_kept(&lock).await;
}

/// How long a release is delayed.
const OUTAGE: Duration = Duration::from_secs(2);

/// The record names nobody, and ends `MIN` after the acquire, which took place between `asked` and `taken`.
fn assert_ends_on_time(raw: &RawRedis, asked: Instant, taken: Instant) {
    let kept = raw.run::<Vec<String>>(&["HKEYS", NAME]);
    assert!(kept.len() == 1 && kept[0].ends_with(":kept"), "{kept:?}");
    let before = Instant::now();
    let left = Duration::from_millis(raw.ttl(NAME).try_into().unwrap());
    let (from, to) = (before + left, Instant::now() + left);
    // A request takes some time to the server, but less than the outage did.
    assert!(from < taken + MIN + OUTAGE / 2, "the record ends {:?} too late", from - taken - MIN);
    assert!(to > asked + MIN - Duration::from_millis(5), "the record ends {:?} too early", asked + MIN - to);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_keeps_the_record_once() {
    for cut in [true, false] {
        let bench = FaultyClient::losing(cut).await;
        let lock = bench.client.mutex(NAME);
        let asked = Instant::now();
        let guard = lock.with_min_hold(MIN).lock().await.unwrap();
        let taken = Instant::now();
        bench.lose_reply(cut);
        let releasing = tokio::spawn(guard.unlock());
        bench.link.lost_reply().await;
        bench.proxy.partition();
        tokio::time::sleep(OUTAGE).await;
        bench.proxy.heal();
        bench.proxy.open_links().iter().for_each(ProxyLink::cut);
        let outcome = releasing.await.unwrap();
        assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}");
        // The next request for the lock follows the repeat of the release.
        assert!(lock.try_lock_for(Duration::from_secs(10)).await.unwrap().is_none());
        assert_ends_on_time(&bench.raw, asked, taken);
    }
}

#[tokio::test]
async fn a_release_without_a_connection_keeps_the_record_no_longer() {
    let bench = FaultyClient::start().await;
    let lock = bench.client.mutex(NAME);
    let asked = Instant::now();
    let guard = lock.with_min_hold(MIN).lock().await.unwrap();
    let taken = Instant::now();
    bench.proxy.partition();
    bench.link.cut();
    let outcome = guard.unlock().await;
    assert!(matches!(outcome, Err(Error::Unavailable { .. } | Error::Ambiguous { .. })), "{outcome:?}");
    tokio::time::sleep(OUTAGE).await;
    bench.proxy.heal();
    bench.proxy.open_links().iter().for_each(ProxyLink::cut);
    // The next request for the lock follows the release.
    assert!(lock.try_lock_for(Duration::from_secs(10)).await.unwrap().is_none());
    assert_ends_on_time(&bench.raw, asked, taken);
}

#[tokio::test]
async fn a_refused_release_does_not_free_the_lock_early() {
    let bench = FaultyClient::start().await;
    let lock = bench.client.mutex(NAME);
    let guard = lock.with_min_hold(MIN).lock().await.unwrap();
    let owner = guard.owner().to_owned();
    bench.raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let outcome = guard.unlock().await;
    assert!(matches!(outcome, Err(Error::Refused { .. })), "{outcome:?}");
    bench.raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    // An unanswered request retires the client's owner ids, so the record looks like one that a late request has left.
    bench.lose_reply(true);
    for _ in 0..2 {
        assert!(lock.try_lock_for(Duration::from_secs(10)).await.unwrap().is_none());
    }
    bench.link.lost_reply().await;
    // `close` waits for releases that a dead connection may have made necessary.
    bench.client.close().await;
    assert_eq!(bench.raw.run::<u32>(&["HGET", NAME, &owner]), 1);
}

/// A server that is out of memory refuses the release of an inner level, so the record has a higher count than the hold.
#[tokio::test]
async fn the_minimum_time_follows_a_refused_release_of_an_inner_level() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let lock = Client::connect(server.url()).await.unwrap().lock(NAME);
    let outer = lock.with_min_hold(MIN).lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    inner.unlock().await.unwrap();
    assert_eq!(raw.run::<u32>(&["HGET", NAME, outer.owner()]), 2);
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    outer.unlock().await.unwrap();
    assert_kept(&lock).await;
}

/// The record of a refused release is kept, so an undo of the same owner id would do nothing.
#[tokio::test]
async fn the_owner_id_of_a_refused_release_is_not_used_again() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let lock = Client::connect(server.url()).await.unwrap().lock(NAME).with_min_hold(MIN);
    let guard = lock.lock().await.unwrap();
    let owner = guard.owner().to_owned();
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(guard.unlock().await, Err(Error::Refused { .. })));
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(lock.force_unlock().await.unwrap());
    assert_ne!(lock.lock().await.unwrap().owner(), owner);
}

/// An owner has one id in all its records. A record that is kept under that id keeps no other one.
#[tokio::test]
async fn a_kept_record_keeps_no_other_record_of_its_owner() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let client = Client::connect(server.url()).await.unwrap();
    let kept = client.lock(NAME).with_min_hold(MIN).lock().await.unwrap();
    // The record lasts longer than the level that is left.
    let lock = client.lock("another");
    let outer = lock.with_lease(Duration::from_millis(500)).lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(matches!(kept.unlock().await, Err(Error::Refused { .. })));
    raw.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(outer.lost().await, HoldState::Lost(LossReason::Expired));
    let other = Client::connect(server.url()).await.unwrap();
    let guard = other.lock("another").try_lock_for(Duration::from_secs(10)).await.unwrap();
    guard.expect("the rest of the record is undone").unlock().await.unwrap();
}

#[tokio::test]
async fn an_expired_outer_level_does_not_end_the_minimum_time() {
    let server = Server::start();
    let lock = Client::connect(server.url()).await.unwrap().lock(NAME);
    let outer = lock.with_lease(Duration::from_millis(200)).lock().await.unwrap();
    lock.with_min_hold(MIN).lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(outer.lost().await, HoldState::Lost(LossReason::Expired));
    assert!(matches!(outer.unlock().await, Err(Error::NotHeld { .. })));
    for _ in 0..2 {
        assert!(lock.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    }
    assert!(lock.is_locked().await.unwrap());
}

#[tokio::test]
async fn java_respects_the_minimum_time() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let lock = Client::connect(server.url()).await.unwrap().mutex(NAME);
        lock.with_min_hold(MIN).lock().await.unwrap().unlock().await.unwrap();
        assert!(!java.try_lock("plain", NAME).await.unwrap(), "{version}");
        assert!(lock.force_unlock().await.unwrap(), "{version}");
        assert!(java.try_lock("plain", NAME).await.unwrap(), "{version}");
    }
}

#[tokio::test]
async fn bad_minimum_times_are_refused() {
    let server = Server::start();
    let mutex = Client::connect(server.url()).await.unwrap().mutex(NAME);
    for bad in [Duration::ZERO, Duration::MAX] {
        assert!(matches!(mutex.with_min_hold(bad).lock().await, Err(Error::Misuse { .. })));
    }
    assert!(matches!(MultiLock::new([mutex.with_min_hold(MIN)]), Err(Error::Misuse { .. })));
    assert!(RawRedis::of(&server).keys().is_empty());
}

#[tokio::test]
async fn a_lost_hold_leaves_the_client_idle() {
    let server = Server::start();
    let builder = Client::builder().watchdog_timeout(Duration::from_millis(1500));
    let client = builder.connect(server.url()).await.unwrap();
    let guard = client.mutex(NAME).with_min_hold(MIN).lock().await.unwrap();
    RawRedis::of(&server).run::<()>(&["DEL", NAME]);
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Gone));
    eventually(|| is_idle(&client)).await;
}
