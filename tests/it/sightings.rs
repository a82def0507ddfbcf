//! `Client::watch`: the sightings of one lock, on messages and by the clock.

use crate::support::{Server, eventually, subscribers};
use futures_util::Stream;
use redisson_lock::{Client, Error, RecordKind, Sighting, blocking};
use std::pin::pin;
use std::time::Duration;
use tokio_stream::StreamExt;

/// Longer than any test, so that only messages count.
const NEVER: Duration = Duration::from_secs(600);
const OFTEN: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_seen_by_its_message() {
    let server = Server::start();
    let (holder, watcher) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    for lock in [holder.mutex("n"), holder.read_write_lock("n").write().clone()] {
        let guard = lock.lock().await.unwrap();
        let mut sightings = pin!(watcher.watch("n", NEVER));
        let mut seen = sightings.next().await.unwrap().unwrap();
        assert_eq!(seen.lock.as_ref().unwrap().holders[0].owner(), guard.owner());
        eventually(|| {
            subscribers(&server, "redisson_lock__channel:{n}") + subscribers(&server, "redisson_rwlock:{n}")
                == 2
        })
        .await;
        guard.unlock().await.unwrap();
        let mut releases = 0;
        // The confirmations of the subscriptions are sightings, too.
        while seen.lock.is_some() || releases == 0 {
            seen = sightings.next().await.unwrap().unwrap();
            assert!(seen.lock.iter().all(|lock| lock.waiters == Some(0)), "{seen:?}");
            releases += seen.releases;
        }
        assert_eq!(releases, 1);
    }
    eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_message_is_seen_after_the_interval_and_after_an_outage() {
    let mut server = Server::start();
    let (holder, watcher) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let mut sightings = watcher.watch("n", OFTEN);
    assert_eq!(sightings.next().await.unwrap().unwrap().lock, None);
    assert!(holder.count_down_latch("n").try_set_count(5).await.unwrap());
    until_count(&mut sightings, 5).await;
    server.kill();
    while sightings.next().await.unwrap().is_ok() {}
    server.start_again();
    // The server has lost its data.
    assert!(holder.count_down_latch("n").try_set_count(4).await.unwrap());
    until_count(&mut sightings, 4).await;
    watcher.close().await;
    let last = async {
        while let Some(seen) = sightings.next().await {
            drop(seen);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), last).await.expect("a closed client ends the stream");
}

/// Returns once the lock has this count.
async fn until_count(sightings: &mut (impl Stream<Item = Result<Sighting, Error>> + Unpin), count: i64) {
    loop {
        let seen = sightings.next().await.expect("the stream goes on");
        if seen.is_ok_and(|seen| seen.lock.is_some_and(|lock| lock.count == Some(count))) {
            return;
        }
    }
}

#[test]
fn a_thread_watches_a_lock() {
    let server = Server::start();
    let client = blocking::Client::connect(server.url()).unwrap();
    let guard = client.lock("n").lock().unwrap();
    let mut sightings = client.watch("n", OFTEN);
    let seen = sightings.next().unwrap().unwrap().lock.unwrap();
    assert_eq!((seen.kind, seen.holders[0].owner()), (RecordKind::Lock, guard.owner()));
    guard.unlock().unwrap();
    assert!(sightings.any(|seen| seen.unwrap().lock.is_none()));
    assert!(client.watch("", OFTEN).next().unwrap().is_err());
}
