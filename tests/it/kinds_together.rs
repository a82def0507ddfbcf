//! Locks of several kinds under one name, and settings that affect only some kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HandOff, HoldState, LossReason, Owner};
use tokio::task::JoinSet;

use crate::kinds::clients;
use crate::support::kind::{Kind, assert_nothing_left, each, with_versions};
use crate::support::{Java, Server, Stopwatch, eventually};

const NAME: &str = "n";
/// The kinds with the same record.
const PLAIN: [Kind; 4] = [Kind::Reentrant, Kind::Fenced, Kind::Spin, Kind::NonReentrant];

#[tokio::test(flavor = "multi_thread")]
async fn kinds_with_the_same_record_exclude_each_other() {
    let pairs = PLAIN.into_iter().flat_map(|one| PLAIN.map(|other| (one, other)));
    each(pairs.filter(|(one, other)| one != other), |(holder, waiter)| async move {
        let server = Server::start();
        let (one, two) = clients(waiter, &server).await;
        for client in [&one, &two] {
            let guard = holder.lock(&one, NAME).lock().await.unwrap();
            let lock = waiter.lock(client, NAME).with_owner(&Owner::unique());
            assert!(lock.try_lock().await.unwrap().is_none(), "{holder}, {waiter}");
            let before = server.scripts();
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            if !std::ptr::eq(client, &one) {
                eventually(|| server.scripts() > before).await;
            }
            let freed = Stopwatch::start();
            guard.unlock().await.unwrap();
            let guard = waiting.await.unwrap();
            // A waiter that gets no message retries, long before a lease expires.
            assert!(freed.elapsed() < Duration::from_secs(3), "{holder}, {waiter}: {:?}", freed.elapsed());
            assert_eq!(guard.token().is_some(), waiter == Kind::Fenced, "{holder}, {waiter}");
            guard.unlock().await.unwrap();
        }
        let kind = if [holder, waiter].contains(&Kind::Fenced) { Kind::Fenced } else { waiter };
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// The waiters of a latch and those of a lock are in one queue of the client. An open latch lets only its own waiters through.
#[tokio::test]
async fn an_open_latch_grants_no_lock_of_its_name() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let held = client.mutex(NAME).lock().await.unwrap();
    let latch = client.count_down_latch(NAME);
    let gate = tokio::spawn(async move { latch.wait().await });
    eventually(|| client.stats().waiting == 1).await;
    let mut waiting = JoinSet::new();
    for waiters in 2..=3 {
        let mutex = client.mutex(NAME);
        waiting.spawn(async move { mutex.lock().await.unwrap() });
        eventually(|| client.stats().waiting == waiters).await;
    }
    held.unlock().await.unwrap();
    gate.await.unwrap().unwrap();
    while let Some(guard) = waiting.join_next().await {
        assert!(client.mutex(NAME).is_locked().await.unwrap(), "a guard without a record");
        guard.unwrap().unlock().await.unwrap();
    }
}

/// Calls for permits and latches have no owner, although the calls of a lock at the root of a runtime and of its tasks may have one.
#[tokio::test]
async fn a_call_for_permits_or_a_latch_does_not_re_enter_a_lock_of_its_name() {
    const SHORT: Duration = Duration::from_millis(50);
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock(NAME).lock().await.unwrap();
    assert!(!client.count_down_latch(NAME).wait_for(SHORT).await.unwrap());
    assert!(client.semaphore(NAME).try_acquire_for(SHORT).await.unwrap().is_none());
    assert!(client.expirable_semaphore(NAME).try_acquire_for(SHORT).await.unwrap().is_none());
    assert_eq!(client.lock(NAME).hold_count().await.unwrap(), 1);
    guard.unlock().await.unwrap();
    assert!(!client.lock(NAME).is_locked().await.unwrap());
}

/// A latch that is open because the record is gone adds no level to the hold of a lock.
#[tokio::test]
async fn an_open_latch_adds_no_level_to_a_lock_of_its_name() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock(NAME).lock().await.unwrap();
    redis::cmd("DEL").arg(NAME).exec(&mut server.cli()).unwrap();
    assert!(client.count_down_latch(NAME).wait_for(Duration::ZERO).await.unwrap());
    let released = guard.unlock().await;
    assert!(matches!(released, Err(Error::Lost { reason: LossReason::Gone, .. })), "{released:?}");
}

/// As in Redisson, only the kind of the second acquire decides whether it may re-enter.
#[tokio::test(flavor = "multi_thread")]
async fn a_reentrant_lock_may_re_enter_a_non_reentrant_hold() {
    for (held, again) in [(Kind::NonReentrant, Kind::Reentrant), (Kind::NonReentrantFair, Kind::Fair)] {
        let server = Server::start();
        let client = Client::connect(server.url()).await.unwrap();
        let outer = held.lock(&client, NAME).lock().await.unwrap();
        let inner = again.lock(&client, NAME).lock().await.unwrap();
        assert_eq!(again.lock(&client, NAME).hold_count().await.unwrap(), 2, "{held}");
        let refused = held.lock(&client, NAME).lock().await;
        assert!(matches!(refused, Err(Error::WouldDeadlock { .. })), "{held}: {refused:?}");
        outer.unlock().await.unwrap();
        assert_eq!(inner.state(), HoldState::Held, "{held}");
        inner.unlock().await.unwrap();
        assert_nothing_left(held, NAME, &server, &[&client]).await;
    }
}

/// Only reentrant locks are handed over ahead of the record. The setting does not harm the other kinds.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipelined_hand_off_keeps_exclusion_and_tokens_of_each_kind() {
    const ROUNDS: u64 = 40;
    each(Kind::locks().filter(|kind| kind.is_exclusive()), |kind| async move {
        let server = Server::start();
        let bounds = HandOff::new().pipelined(true);
        let client = Client::builder().hand_off(bounds).connect(server.url()).await.unwrap();
        let (value, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..6 {
            let (lock, value, last) = (kind.lock(&client, NAME), value.clone(), last.clone());
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    let before = value.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    value.store(before + 1, Ordering::Relaxed);
                    if let Some(token) = guard.token() {
                        let before = last.swap(token, Ordering::Relaxed);
                        assert!(before < token, "{kind}: {token} after {before}");
                    }
                    assert_eq!(guard.token().is_some(), kind == Kind::Fenced, "{kind}");
                    guard.unlock().await.unwrap();
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(value.load(Ordering::Relaxed), 6 * ROUNDS, "{kind}");
        assert_nothing_left(kind, NAME, &server, &[&client]).await;
    })
    .await;
}

/// Redisson's renewal of a reader sets the TTL of the record, even below the lease of another reader.
#[tokio::test(flavor = "multi_thread")]
async fn a_longer_read_hold_outlives_a_dead_java_reader() {
    const LEASE: Duration = Duration::from_millis(1500);
    const FIXED: Duration = Duration::from_millis(4500);
    each(with_versions([()], |()| Kind::Read), |(version, ())| async move {
        let server = Server::start();
        let java = Java::spawn(version);
        let thread = java.client(&server, LEASE.as_millis() as u64).await.thread("t");
        thread.lock("read", NAME).await.unwrap();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let lock = client.read_write_lock(NAME);
        let guard = lock.read().with_lease(FIXED).lock().await.unwrap();
        let mut cli = server.cli();
        let mut left = || -> i64 { redis::cmd("PTTL").arg(NAME).query(&mut cli).unwrap() };
        // The shorter TTL shows that Java has renewed its hold.
        eventually(|| left() <= LEASE.as_millis() as i64).await;
        java.kill();
        let writer = lock.write().with_owner(&Owner::unique());
        loop {
            let (state, writes) = (guard.state(), writer.try_lock().await.unwrap());
            // An observation from before the deadline counts.
            if Instant::now() >= guard.deadline() {
                break;
            }
            assert_eq!(state, HoldState::Held, "{version}");
            assert!(writes.is_none(), "{version}: a writer overlaps a reader");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(guard.state(), HoldState::Lost(LossReason::Expired), "{version}");
        writer.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// The owner id of a hold may be of an earlier generation than its client's new ids, and readers have key queues of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_does_not_take_its_clients_writer_for_an_orphaned_record() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock(NAME);
    let writer = lock.write().with_owner(&Owner::unique()).lock().await.unwrap();

    // A loss begins another generation of owner ids.
    let lost = client.lock("other").lock().await.unwrap();
    let () = redis::cmd("DEL").arg("other").query(&mut server.cli()).unwrap();
    lost.unlock().await.unwrap_err();

    let before = server.calls("hscan");
    let reader = tokio::spawn({
        let lock = lock.read().with_owner(&Owner::unique());
        async move { lock.lock().await.unwrap() }
    });
    // The reader probes the holder repeatedly. By the second probe, any reaction to the first one has taken effect.
    eventually(|| server.calls("hscan") >= before + 3 || reader.is_finished()).await;
    assert!(!reader.is_finished(), "a reader overlaps a writer");
    writer.unlock().await.unwrap();
    let reader = reader.await.unwrap();
    assert!(reader.owner().contains('~'), "no other generation has begun: {}", reader.owner());
    reader.unlock().await.unwrap();
    assert_nothing_left(Kind::Write, NAME, &server, &[&client]).await;
}
