//! A master and its replica under sentinels: the client finds the master, and follows when another takes its place.

use crate::support::group::Group;
use crate::support::{Server, Stopwatch, eventually};
use redisson_lock::{Client, Error, HoldState, LossReason, Replication};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(10);

async fn connect(group: &Group) -> Client {
    Client::builder().watchdog_timeout(LEASE).connect(group.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replicated_hold_survives_a_failover() {
    let mut group = Group::start(1);
    let client = connect(&group).await;
    let guard = client.lock("orders").lock().await.unwrap();
    let waiting = {
        let lock = connect(&group).await.lock("orders");
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await })
    };
    group.master.kill();
    let killed = Instant::now();
    group.wait_for_promotion().await;
    // Renewed at the new master: no other server can have confirmed a later renewal.
    eventually(|| guard.deadline() > killed + LEASE).await;
    assert_eq!(guard.state(), HoldState::Held);
    let holder = connect(&group).await.lock("orders").holder().await.unwrap().expect("it is held");
    assert_eq!(holder.client_id(), client.id().to_string());
    let released = Stopwatch::start();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
    // Woken by the message or by the look after the failover, and not by the end of the lease.
    assert!(released.elapsed() < LEASE / 2, "{:?}", released.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_hold_is_reported_lost_after_a_failover() {
    let mut group = Group::start(1);
    let client = Client::builder()
        .watchdog_timeout(LEASE)
        .replication(Replication::at_least(0))
        .connect(group.url())
        .await
        .unwrap();
    // Nothing more reaches the replica, not even from the kernel's buffers.
    group.replica.stop_signal();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "replica"]).exec(&mut group.master.cli()).unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    group.master.kill();
    group.replica.cont();
    group.wait_for_promotion().await;
    let lost = tokio::time::timeout(LEASE, guard.lost()).await.expect("within its lease");
    assert_eq!(lost, HoldState::Lost(LossReason::DataLost));
    // The lock may be another client's by then.
    client.lock("orders").lock().await.unwrap().unlock().await.unwrap();
}

/// By default, a master alone does not count.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_waits_for_the_replica_by_default() {
    let group = Group::start(1);
    let client = connect(&group).await;
    group.replica.stop_signal();
    match client.lock("orders").lock().await {
        Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    group.replica.cont();
}

/// A master that its sentinels have replaced is still up, and answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_client_leaves_a_deposed_master() {
    let group = Group::start(3);
    let client = connect(&group).await;
    let before = client.lock("before").lock().await.unwrap();
    redis::cmd("SENTINEL").arg("FAILOVER").arg("orders").exec(&mut group.sentinels[0].cli()).unwrap();
    group.wait_for_promotion().await;
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        match client.lock("orders").lock().await {
            Ok(guard) => {
                let there: bool = redis::cmd("EXISTS").arg("orders").query(&mut group.replica.cli()).unwrap();
                guard.unlock().await.unwrap();
                if there {
                    break;
                }
            }
            Err(error) => assert!(Instant::now() < limit, "{error}"),
        }
    }
    eventually(|| before.state() == HoldState::Held).await;
    before.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_master_name_is_a_clear_error() {
    let mut group = Group::start(1);
    let url = group.url();
    let silent = Server::start();
    silent.stop_signal();
    // Two sentinels that do not answer do not hold up the one that does.
    let several = url.replace("://", &format!("://127.0.0.1:1,{},", silent.address()));
    let started = Stopwatch::start();
    Client::connect(&several).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());

    let connect_error = async |url: &str| match Client::connect(url).await {
        Err(Error::Unavailable { reason, .. }) => reason,
        other => panic!("{url}: {other:?}"),
    };
    let unknown = connect_error(&url.replace("#orders", "#payments")).await;
    assert!(unknown.contains("no master named `payments`"), "{unknown}");
    for bad in
        ["redis-sentinel://", "redis-sentinel://host:1", "redis-sentinel://host:1#", "redis-sentinel://,#a"]
    {
        assert!(matches!(Client::connect(bad).await, Err(Error::Misuse { .. })), "{bad}");
    }
    group.sentinels.clear();
    connect_error(&url).await;
}
