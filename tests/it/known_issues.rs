//! Problems that users of similar libraries had and that no other test covers. `docs/reliability.md` has the whole list.

use std::time::{Duration, Instant};

use redisson_lock::{Client, HoldState, Owner};
use tokio_stream::StreamExt;

use crate::support::kind::{channels, keys};
use crate::support::proxy::{Direction, Proxy, ProxyLink};
use crate::support::{Server, Stopwatch, eventually};

/// The waiter has the reply "busy", and its subscription is still in flight when the holder unlocks. It misses the message.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_between_attempt_and_subscription_is_noticed() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let holder = Client::connect(server.url()).await.unwrap();
    let client = Client::connect(proxy.url()).await.unwrap();
    let wait = |name: &str| {
        let lock = client.lock(name);
        tokio::spawn(async move { (lock.lock().await.unwrap(), Instant::now()) })
    };
    let guard = holder.lock("before").lock().await.unwrap();
    let waiting = wait("before");
    let commands = proxy.link(0).await;
    let subscription_link = || proxy.open_links().into_iter().find(ProxyLink::subscribes);
    eventually(|| subscription_link().is_some()).await;
    let subscriptions = subscription_link().unwrap();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().0.unlock().await.unwrap();

    // No request is in flight on that connection when the proxy holds it up.
    eventually(|| channels(&server).is_empty()).await;
    let guard = holder.lock("n").lock().await.unwrap();
    subscriptions.hold(Direction::ToServer);
    let waiting = wait("n");
    subscriptions.asked(1, |words| words.iter().any(|word| word == b"redisson_lock__channel:{n}")).await;
    // The waiter also probes the holder. Each interval between two probes is twice the one before, from 10 ms to 640 ms. The
    // next probe comes much later.
    commands.answered(7, |words| words.starts_with(&[b"HSCAN".to_vec(), b"n".to_vec()])).await;
    guard.unlock().await.unwrap();
    subscriptions.pass(Direction::ToServer);
    let (watch, passed) = (Stopwatch::start(), Instant::now());
    let (guard, entered) = waiting.await.unwrap();
    let took = watch.between(passed, entered);
    assert!(took < Duration::from_millis(500), "{took:?}: woken by a holder probe, not by the subscription");
    guard.unlock().await.unwrap();
}

/// Redisson keeps the last token of each fenced lock for ever. By default, this library does the same.
#[tokio::test]
async fn fencing_tokens_are_kept_for_the_configured_retention() {
    const TOKEN: &str = "redisson_lock_token:{n}";
    let server = Server::start();
    let left = |server: &Server| -> i64 { redis::cmd("PTTL").arg(TOKEN).query(&mut server.cli()).unwrap() };
    let forever = Client::connect(server.url()).await.unwrap();
    forever.fenced_lock("n").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(left(&server), -1);
    let retention = Duration::from_secs(3600);
    let client = Client::builder().fencing_token_retention(retention).connect(server.url()).await.unwrap();
    let guard = client.fenced_lock("n").lock().await.unwrap();
    assert_eq!(guard.token(), Some(2));
    assert!((3_590_000..=3_600_000).contains(&left(&server)), "{}", left(&server));
    // Each hold restarts the retention, including one that is handed over.
    redis::cmd("PEXPIRE").arg(TOKEN).arg(60_000).exec(&mut server.cli()).unwrap();
    let other = Owner::unique();
    let waiting = tokio::spawn({
        let lock = client.fenced_lock("n").with_owner(&other);
        async move { lock.lock().await.unwrap() }
    });
    tokio::task::yield_now().await;
    guard.unlock().await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.token(), Some(3));
    assert!(left(&server) > 60_000);
    next.unlock().await.unwrap();
    let short = Client::builder().fencing_token_retention(Duration::from_secs(1)).connect(server.url()).await;
    assert!(matches!(short, Err(redisson_lock::Error::Misuse { .. })), "shorter than a lease");
}

/// One reader has a long lease, and another reader releases its own hold.
#[tokio::test]
async fn a_readers_unlock_does_not_cut_anothers_lease() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let reads = client.read_write_lock("n").read().clone();
    let ttl = |key: &str| -> i64 { redis::cmd("PTTL").arg(key).query(&mut server.cli()).unwrap() };
    let long = reads.with_lease(Duration::from_secs(300)).lock().await.unwrap();
    let short = reads.with_owner(&Owner::unique()).with_lease(Duration::from_secs(20)).lock().await.unwrap();
    assert!(ttl("n") > 290_000, "the lock of another reader cut the lease");
    short.unlock().await.unwrap();
    assert!(ttl("n") > 290_000, "{}", ttl("n"));
    let string = format!("{{n}}:{}:rwlock_timeout:1", long.owner());
    assert!(ttl(&string) > 290_000, "{}", ttl(&string));
    assert_eq!(long.state(), HoldState::Held);
    long.unlock().await.unwrap();
    assert!(keys(&server).is_empty());
}

/// Redisson's release reads the timeout of every other reader.
#[tokio::test]
async fn a_readers_unlock_costs_the_same_beside_many_readers() {
    const READERS: usize = 50;
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let reads = client.read_write_lock("n").read().clone();
    let reader =
        |n: usize| reads.with_owner(&Owner::unique()).with_lease(Duration::from_secs(100 + n as u64));
    let mut guards = Vec::new();
    for n in 0..READERS {
        guards.push(reader(n).lock().await.unwrap());
    }
    server.commandstats_reset();
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    // Each release reads two expiries: that of its timeout key and that of the record. The last ones read those of the few others.
    let reads = server.calls("pttl");
    assert!(reads <= 2 * READERS as u64 + 12 * 12, "{reads}");
    assert!(keys(&server).is_empty());
}

/// After a downgrade the record lasts as long as the writer's lease. That must not keep writers out once the readers have left or died.
#[tokio::test]
async fn a_writers_lease_ends_with_the_last_reader_after_a_downgrade() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock("n");
    let write = lock.write().with_lease(Duration::from_secs(600)).lock().await.unwrap();
    let read = lock.read().lock().await.unwrap();
    write.unlock().await.unwrap();
    // A reader that died. Its timeout has expired.
    redis::cmd("HSET").arg("n").arg("dead:1").arg(1).exec(&mut server.cli()).unwrap();
    read.unlock().await.unwrap();
    assert!(keys(&server).is_empty());
}

/// However a hold ends, nothing renews it afterwards: a later record of the same name expires with its own lease.
#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_stops_however_a_hold_ends() {
    let server = Server::start();
    // The first renewal is due while the later record lives, and would extend it to a whole lease.
    let lease = Duration::from_millis(1200);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    for end in ["unlocked", "dropped", "forgotten by its task", "lost"] {
        let lock = client.lock("n").with_owner(&Owner::new("same").unwrap());
        let guard = lock.lock().await.unwrap();
        let owner = guard.owner().to_owned();
        let deadline = guard.deadline();
        eventually(|| guard.deadline() > deadline).await;
        match end {
            "unlocked" => guard.unlock().await.unwrap(),
            "dropped" => drop(guard),
            "lost" => {
                let mut states = guard.status().states();
                assert!(lock.force_unlock().await.unwrap());
                while states.next().await.is_some_and(HoldState::is_live) {}
            }
            _ => {
                let task = tokio::spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
                task.abort();
                assert!(task.await.unwrap_err().is_cancelled());
            }
        }
        eventually(|| keys(&server).is_empty()).await;
        // As written by another client with the same UUID and owner: the field is the same, so a renewal would find it.
        let mut cli = server.cli();
        redis::cmd("HSET").arg("n").arg(&owner).arg(1).exec(&mut cli).unwrap();
        redis::cmd("PEXPIRE").arg("n").arg(700).exec(&mut cli).unwrap();
        let since = Stopwatch::start();
        eventually(|| keys(&server).is_empty()).await;
        assert!(since.elapsed() < lease, "{end}: {:?}", since.elapsed());
    }
}

/// Redisson stores the lease of one call in the lock object, and applies it to the next call.
#[tokio::test]
async fn the_lease_of_one_call_does_not_affect_the_next() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let left = || -> i64 { redis::cmd("PTTL").arg("n").query(&mut server.cli()).unwrap() };
    let lock = client.lock("n");
    let short = lock.with_lease(Duration::from_secs(5)).lock().await.unwrap();
    assert!((4_000..=5_000).contains(&left()), "{}", left());
    short.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert!((29_000..=30_000).contains(&left()), "{}", left());
    // A short inner level does not cut the lease, and neither does its release.
    let inner = lock.with_lease(Duration::from_secs(5)).lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!((29_000..=30_000).contains(&left()), "{}", left());
    guard.unlock().await.unwrap();
}
