//! Readers that become writers: `try_upgrade` succeeds for the only reader, and never waits.

use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Owner, ReadWriteLock};

use crate::support::raw::NAME;
use crate::support::{FaultyClient, Java, RawRedis, Server, since, versions};

fn mode(raw: &RawRedis) -> Option<String> {
    raw.run(&["HGET", NAME, "mode"])
}

async fn connect(server: &Server) -> ReadWriteLock {
    Client::connect(server.url()).await.unwrap().read_write_lock(NAME)
}

#[tokio::test]
async fn the_only_reader_becomes_the_writer_and_a_reader_again() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let (one, two) = (connect(&server).await, connect(&server).await);
    let reading = one.read().lock().await.unwrap();
    let writing = one.write().try_upgrade().await.unwrap().expect("nobody else reads");
    assert_eq!((mode(&raw).as_deref(), raw.run::<u32>(&["HLEN", NAME])), (Some("write"), 3));
    assert!(two.read().try_lock().await.unwrap().is_none());
    assert_eq!((reading.state(), writing.state()), (HoldState::Held, HoldState::Held));
    // A writer upgrades by a re-entry.
    one.write().try_upgrade().await.unwrap().expect("it is the writer").unlock().await.unwrap();
    writing.unlock().await.unwrap();
    assert_eq!(mode(&raw).as_deref(), Some("read"));
    two.read().try_lock().await.unwrap().expect("readers may join").unlock().await.unwrap();
    // The read guard may also be released first.
    let writing = one.write().try_upgrade().await.unwrap().expect("nobody else reads");
    reading.unlock().await.unwrap();
    assert!(two.read().try_lock().await.unwrap().is_none());
    writing.unlock().await.unwrap();
    raw.assert_nothing_else_left(&[]).await;
    // Without a read hold it is an ordinary attempt.
    let writing = one.write().try_upgrade().await.unwrap().expect("the lock is free");
    assert!(two.write().try_upgrade().await.unwrap().is_none());
    writing.unlock().await.unwrap();
    assert!(matches!(one.read().try_upgrade().await, Err(Error::Misuse { .. })));
    raw.assert_nothing_else_left(&[]).await;
}

/// The release of a dropped guard is sent in the background, and the two sides have key queues of their own.
#[tokio::test]
async fn an_owner_may_write_after_it_has_dropped_its_read_guard() {
    let server = Server::start();
    let lock = connect(&server).await;
    for _ in 0..20 {
        drop(lock.read().lock().await.unwrap());
        let writing = lock.write().try_lock().await.unwrap().expect("nobody else holds it");
        writing.unlock().await.unwrap();
        drop(lock.read().lock().await.unwrap());
        lock.write().lock().await.unwrap().unlock().await.unwrap();
    }
    let reading = lock.read().lock().await.unwrap();
    assert!(matches!(lock.write().try_lock().await, Err(Error::WouldDeadlock { .. })));
    reading.unlock().await.unwrap();
}

/// If both waited for each other, neither would ever get the lock.
#[tokio::test]
async fn two_readers_that_upgrade_do_not_block_each_other() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let sides = connect(&server).await;
    let [one, two] = [Owner::unique(), Owner::unique()];
    let first = sides.read().with_owner(&one).lock().await.unwrap();
    let second = sides.read().with_owner(&two).lock().await.unwrap();
    for owner in [&one, &two] {
        assert!(sides.write().with_owner(owner).try_upgrade().await.unwrap().is_none());
    }
    assert_eq!(mode(&raw).as_deref(), Some("read"));
    first.unlock().await.unwrap();
    let lease = Duration::from_secs(60);
    let writing = sides.write().with_owner(&two).with_lease(lease).try_upgrade().await.unwrap();
    let writing = writing.expect("nobody else reads");
    assert!(raw.ttl(NAME) > 50_000, "{}", raw.ttl(NAME));
    second.unlock().await.unwrap();
    writing.unlock().await.unwrap();
    raw.assert_nothing_else_left(&[]).await;
}

/// No timeout of the other reader exists. In Redisson, that alone does not make the lock free for a writer: only a read release looks at the
/// timeouts. Redisson 3.44 to 3.52 lose the timeouts of living readers.
#[tokio::test]
async fn a_dead_reader_counts_until_the_last_living_one_releases() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let sides = connect(&server).await;
    let reading = sides.read().lock().await.unwrap();
    raw.run::<()>(&["HSET", NAME, "dead:1", "1"]);
    assert!(sides.write().try_upgrade().await.unwrap().is_none());
    reading.unlock().await.unwrap();
    sides.write().try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
    raw.assert_nothing_else_left(&[]).await;
}

#[tokio::test]
async fn an_upgrade_whose_reply_is_lost_takes_effect_once() {
    for cut in [true, false] {
        let bench = FaultyClient::losing(cut).await;
        let sides = bench.client.read_write_lock(NAME);
        let reading = sides.read().lock().await.unwrap();
        bench.lose_reply(cut);
        let outcome = sides.write().try_upgrade().await;
        bench.link.lost_reply().await;
        match outcome {
            Ok(writing) => writing.expect("nobody else reads").unlock().await.unwrap(),
            Err(error) => {
                assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error}")
            }
        }
        reading.unlock().await.unwrap();
        bench.raw.assert_nothing_else_left(&[]).await;
    }
}

/// The record of an upgraded reader is that of a Java writer that also reads.
#[tokio::test]
async fn java_readers_exclude_an_upgrade_and_are_excluded_by_it() {
    for version in versions().into_iter().filter(|version| since(version, 3, 10)) {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let sides = connect(&server).await;
        let reading = sides.read().lock().await.unwrap();
        assert!(java.try_lock("read", NAME).await.unwrap(), "{version}");
        assert!(sides.write().try_upgrade().await.unwrap().is_none(), "{version}");
        java.unlock("read", NAME).await.unwrap();
        let writing = sides.write().try_upgrade().await.unwrap().expect("nobody else reads");
        assert!(!java.try_lock("read", NAME).await.unwrap(), "{version}");
        writing.unlock().await.unwrap();
        assert!(java.try_lock("read", NAME).await.unwrap(), "{version}");
        assert!(!java.try_lock("write", NAME).await.unwrap(), "{version}");
        reading.unlock().await.unwrap();
        java.unlock("read", NAME).await.unwrap();
    }
}
