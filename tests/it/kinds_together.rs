//! Locks of several kinds under one name, and settings that only some kinds heed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HandOff, HoldState, Owner};
use tokio::task::JoinSet;

use crate::kinds::clients;
use crate::support::kind::{Kind, each, in_versions, nothing_is_left};
use crate::support::{Java, Server, Stopwatch, eventually};

const NAME: &str = "n";
/// Those with the same record.
const PLAIN: [Kind; 4] = [Kind::Reentrant, Kind::Fenced, Kind::Spin, Kind::NonReentrant];

#[tokio::test(flavor = "multi_thread")]
async fn kinds_with_one_record_exclude_each_other_by_one_name() {
    let pairs = PLAIN.into_iter().flat_map(|one| PLAIN.map(|other| (one, other)));
    each(pairs.filter(|(one, other)| one != other), |(holder, waiter)| async move {
        let server = Server::start();
        let (one, two) = clients(waiter, &server).await;
        for client in [&one, &two] {
            let guard = holder.lock(&one, NAME).lock().await.unwrap();
            let lock = waiter.lock(client, NAME).with_owner(&Owner::unique());
            assert!(lock.try_lock().await.unwrap().is_none(), "{holder}, {waiter}");
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            let before = server.scripts();
            if !std::ptr::eq(client, &one) {
                eventually(|| server.scripts() > before).await;
            }
            let freed = Stopwatch::start();
            guard.unlock().await.unwrap();
            let guard = waiting.await.unwrap();
            // Whoever is told of nothing looks, long before a lease is over.
            assert!(freed.elapsed() < Duration::from_secs(3), "{holder}, {waiter}: {:?}", freed.elapsed());
            assert_eq!(guard.token().is_some(), waiter == Kind::Fenced, "{holder}, {waiter}");
            guard.unlock().await.unwrap();
        }
        let kind = if [holder, waiter].contains(&Kind::Fenced) { Kind::Fenced } else { waiter };
        nothing_is_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// As Redisson's does: only the kind that is asked for decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_non_reentrant_hold_may_be_taken_again_by_a_reentrant_lock() {
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
        nothing_is_left(held, NAME, &server, &[&client]).await;
    }
}

/// The hand-off ahead of the record is for reentrant locks alone; the others are none the worse for being asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipelined_hand_off_leaves_each_kind_its_exclusion_and_its_tokens() {
    const ROUNDS: u64 = 40;
    each(Kind::locks().filter(|kind| kind.is_exclusive()), |kind| async move {
        let server = Server::start();
        let mut bounds = HandOff::default();
        bounds.pipelined = true;
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
        nothing_is_left(kind, NAME, &server, &[&client]).await;
    })
    .await;
}

/// A reader's renewal by Redisson sets the life of the record, also down below what others were promised.
#[tokio::test(flavor = "multi_thread")]
async fn a_longer_read_hold_outlives_the_jvm_beside_it() {
    const LEASE: Duration = Duration::from_millis(1500);
    const FIXED: Duration = Duration::from_millis(4500);
    each(in_versions([()], |()| Kind::Read), |(version, ())| async move {
        let server = Server::start();
        let java = Java::spawn(version);
        let thread = java.client(&server, LEASE.as_millis() as u64).await.thread("t");
        thread.lock("read", NAME).await.unwrap();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let lock = client.read_write_lock(NAME);
        let guard = lock.read().with_lease(FIXED).lock().await.unwrap();
        let mut cli = server.cli();
        let mut left = || -> i64 { redis::cmd("PTTL").arg(NAME).query(&mut cli).unwrap() };
        // Java's renewal is seen by what it does.
        eventually(|| left() <= LEASE.as_millis() as i64).await;
        java.kill();
        let writer = lock.write().with_owner(&Owner::unique());
        while Instant::now() + Duration::from_millis(100) < guard.deadline() {
            assert_eq!(guard.state(), HoldState::Held, "{version}");
            assert!(writer.try_lock().await.unwrap().is_none(), "{version}: a writer beside a reader");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        guard.unlock().await.unwrap();
        writer.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

/// A hold's text may be of an earlier era than what its client writes by now, and readers have lanes of their own.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_takes_no_writer_of_its_client_for_a_ghost() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock(NAME);
    let writer = lock.write().with_owner(&Owner::unique()).lock().await.unwrap();

    // A loss begins another era.
    let lost = client.lock("other").lock().await.unwrap();
    let () = redis::cmd("DEL").arg("other").query(&mut server.cli()).unwrap();
    lost.unlock().await.unwrap_err();

    let before = server.calls("hscan");
    let reader = tokio::spawn({
        let lock = lock.read().with_owner(&Owner::unique());
        async move { lock.lock().await.unwrap() }
    });
    // It looks at who is in its way, and again: what it does about the first is done by the second.
    eventually(|| server.calls("hscan") >= before + 3 || reader.is_finished()).await;
    assert!(!reader.is_finished(), "a reader beside a writer");
    writer.unlock().await.unwrap();
    let reader = reader.await.unwrap();
    assert!(reader.owner().contains('~'), "no other era has begun: {}", reader.owner());
    reader.unlock().await.unwrap();
    nothing_is_left(Kind::Write, NAME, &server, &[&client]).await;
}
