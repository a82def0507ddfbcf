//! Trouble that users of such libraries had, where no other test is about just that. `docs/reliability.md` has the whole list.

use std::time::{Duration, Instant};

use redisson_lock::{Client, HoldState, Owner};
use tokio_stream::StreamExt;

use crate::support::kind::{channels, keys};
use crate::support::proxy::{Link, Proxy, Way};
use crate::support::{Server, Stopwatch, eventually};

/// The waiter was told "busy", and its subscription is still on its way when the holder unlocks: nobody tells it.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_unlocks_between_try_and_subscribe_is_noticed() {
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
    let listens = || proxy.open_links().into_iter().find(Link::subscribes);
    eventually(|| listens().is_some()).await;
    let subscriptions = listens().unwrap();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().0.unlock().await.unwrap();

    // No request is under way on that connection when it is held up.
    eventually(|| channels(&server).is_empty()).await;
    let guard = holder.lock("n").lock().await.unwrap();
    subscriptions.hold(Way::ToServer);
    let waiting = wait("n");
    subscriptions.asked(1, |words| words.iter().any(|word| word == b"redisson_lock__channel:{n}")).await;
    // It looks at who holds the lock, too, and each pause between two looks is twice the one before: 10 ms, .. 640 ms. So
    // the next one is far away.
    commands.answered(7, |words| words.starts_with(&[b"HSCAN".to_vec(), b"n".to_vec()])).await;
    guard.unlock().await.unwrap();
    subscriptions.pass(Way::ToServer);
    let passed = Instant::now();
    let (guard, entered) = waiting.await.unwrap();
    let took = entered.saturating_duration_since(passed);
    assert!(took < Duration::from_millis(500), "{took:?}: by a look, and not by the subscription");
    guard.unlock().await.unwrap();
}

/// Redisson keeps the last token of each fenced lock for ever, and so does this, unless told otherwise.
#[tokio::test]
async fn fencing_tokens_are_kept_for_as_long_as_asked() {
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
    // Each hold counts anew, also one that is handed on.
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

/// A reader whose lease is long, beside one that leaves.
#[tokio::test]
async fn a_readers_unlock_does_not_cut_anothers_lease() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let reads = client.read_write_lock("n").read().clone();
    let ttl = |key: &str| -> i64 { redis::cmd("PTTL").arg(key).query(&mut server.cli()).unwrap() };
    let long = reads.with_lease(Duration::from_secs(300)).lock().await.unwrap();
    let short = reads.with_owner(&Owner::unique()).with_lease(Duration::from_secs(20)).lock().await.unwrap();
    assert!(ttl("n") > 290_000, "nor does its lock");
    short.unlock().await.unwrap();
    assert!(ttl("n") > 290_000, "{}", ttl("n"));
    let string = format!("{{n}}:{}:rwlock_timeout:1", long.owner());
    assert!(ttl(&string) > 290_000, "{}", ttl(&string));
    assert_eq!(long.state(), HoldState::Held);
    long.unlock().await.unwrap();
    assert!(keys(&server).is_empty());
}

/// Whatever way a hold ends, nothing renews it from then on: another's record of the same name ends with its lease.
#[tokio::test(flavor = "multi_thread")]
async fn no_watchdog_renews_for_ever() {
    let server = Server::start();
    let lease = Duration::from_millis(300);
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
                let mut states = guard.states();
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
        // As if the same owner had it by another client of that uuid: its field, so that a renewal would find it.
        let mut cli = server.cli();
        redis::cmd("HSET").arg("n").arg(&owner).arg(1).exec(&mut cli).unwrap();
        redis::cmd("PEXPIRE").arg("n").arg(700).exec(&mut cli).unwrap();
        let since = Stopwatch::start();
        eventually(|| keys(&server).is_empty()).await;
        assert!(since.elapsed() < Duration::from_millis(900), "{end}: {:?}", since.elapsed());
    }
}

/// Redisson keeps the lease of one call on the lock object, and gives it to the next.
#[tokio::test]
async fn the_lease_of_one_call_is_not_that_of_another() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let left = || -> i64 { redis::cmd("PTTL").arg("n").query(&mut server.cli()).unwrap() };
    let lock = client.lock("n");
    let short = lock.with_lease(Duration::from_secs(5)).lock().await.unwrap();
    assert!((4_000..=5_000).contains(&left()), "{}", left());
    short.unlock().await.unwrap();
    let guard = lock.lock().await.unwrap();
    assert!((29_000..=30_000).contains(&left()), "{}", left());
    // A short level inside does not cut it, and neither does its end.
    let inner = lock.with_lease(Duration::from_secs(5)).lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!((29_000..=30_000).contains(&left()), "{}", left());
    guard.unlock().await.unwrap();
}
