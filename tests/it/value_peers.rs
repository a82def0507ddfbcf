//! The value lock beside locks of the same kind in other languages: redis-py's own, and node-redlock's.

use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Lock, LossReason};
use tokio::task::JoinSet;

use crate::support::peer::Peer;
use crate::support::wire::NAME;
use crate::support::{Server, Stopwatch, Wire};

/// Of our watchdog.
const LEASE: Duration = Duration::from_millis(900);
/// A look of ours comes after 80 ms at the latest, one of theirs after 20 ms.
const SOON: Duration = Duration::from_millis(400);

struct Bench {
    wire: Wire,
    lock: Lock,
    peer: Peer,
    server: Server,
}

impl Bench {
    async fn beside(language: &'static str) -> Self {
        let server = Server::start();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let peer = Peer::start(language, &server);
        Self { wire: Wire::of(&server), lock: client.value_lock(NAME), peer, server }
    }

    fn token(&self) -> Option<String> {
        self.wire.run(&["GET", NAME])
    }

    fn waiting(&self) -> tokio::task::JoinHandle<redisson_lock::LockGuard> {
        let lock = self.lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_three_languages_excludes_each_other() {
    const EACH: u64 = 25;
    let server = Server::start();
    let mut tasks = JoinSet::new();
    for language in Peer::LANGUAGES {
        for _ in 0..2 {
            let mut peer = Peer::start(language, &server);
            tasks.spawn(async move {
                assert_eq!(peer.call(&format!("loop {NAME} {EACH} 30000")).await, EACH.to_string());
            });
        }
    }
    for _ in 0..2 {
        let client = Client::connect(server.url()).await.unwrap();
        for _ in 0..3 {
            let (lock, mut cli) = (client.value_lock(NAME), server.cli());
            tasks.spawn(async move {
                for _ in 0..EACH {
                    let guard = lock.lock().await.unwrap();
                    let count: Option<u64> = redis::cmd("GET").arg("counter").query(&mut cli).unwrap();
                    tokio::time::sleep(Duration::from_micros(500)).await;
                    redis::cmd("SET").arg("counter").arg(count.unwrap_or(0) + 1).exec(&mut cli).unwrap();
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("somebody is shut out");
    let count: u64 = redis::cmd("GET").arg("counter").query(&mut server.cli()).unwrap();
    assert_eq!(count, 10 * EACH);
}

#[tokio::test]
async fn each_side_waits_for_the_other() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::beside(language).await;
        // Without looks of its own, each look of a waiter comes after twice the time: at 630 ms, and at 1270 ms.
        for wait in [150, 700] {
            let guard = bench.lock.lock().await.unwrap();
            assert!(!bench.peer.does("lock n 30000 0").await, "{language}");
            bench.peer.ask("lock n 30000 30000").await;
            let early = tokio::time::timeout(Duration::from_millis(100), bench.peer.answer()).await;
            assert!(early.is_err(), "{language} took a held lock: {early:?}");
            let freed = Stopwatch::start();
            guard.unlock().await.unwrap();
            assert_eq!(bench.peer.answer().await, "true", "{language}");
            assert!(freed.elapsed() < SOON, "{language}: {:?}", freed.elapsed());
            assert_eq!(bench.token(), Some(bench.peer.call("token n").await), "{language}");

            assert!(bench.lock.try_lock().await.unwrap().is_none(), "{language}");
            let waiting = bench.waiting();
            tokio::time::sleep(Duration::from_millis(wait)).await;
            assert!(!waiting.is_finished(), "{language}");
            let freed = Stopwatch::start();
            assert!(bench.peer.does("unlock n").await, "{language}");
            let guard = waiting.await.unwrap();
            assert!(freed.elapsed() < SOON, "{language}: {:?}", freed.elapsed());
            guard.unlock().await.unwrap();
        }
        assert_eq!(bench.token(), None, "{language}");
    }
}

#[tokio::test]
async fn their_leases_end_for_us_when_they_say() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::beside(language).await;
        let lease = Duration::from_millis(500);
        assert!(bench.peer.does(&format!("lock n {} 0", lease.as_millis())).await, "{language}");
        let taken = Stopwatch::start();
        let guard = bench.lock.lock().await.unwrap();
        assert!(taken.elapsed() < lease + SOON, "{language}: {:?}", taken.elapsed());
        // Who is late does not free what is ours.
        assert!(!bench.peer.does("unlock n").await && !bench.peer.does("extend n 500").await, "{language}");
        assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{language}");
        assert_eq!(guard.state(), HoldState::Held, "{language}");
        guard.unlock().await.unwrap();

        // One that is extended lasts longer.
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        assert!(bench.peer.does(&format!("extend n {}", lease.as_millis())).await, "{language}");
        let extended = Stopwatch::start();
        let guard = bench.lock.lock().await.unwrap();
        assert!(extended.is_within(lease - SOON / 5..lease + SOON), "{language}: {extended:?}");
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn our_watchdog_keeps_them_out() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::beside(language).await;
        let guard = bench.lock.lock().await.unwrap();
        let wait = LEASE * 2;
        assert!(!bench.peer.does(&format!("lock n 30000 {}", wait.as_millis())).await, "{language}");
        assert_eq!(guard.state(), HoldState::Held, "{language}");
        assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{language}");
        guard.unlock().await.unwrap();
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
    }
}

/// What we gave up or lost is theirs, and nothing that we do late touches it.
#[tokio::test]
async fn a_token_of_theirs_is_never_deleted() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::beside(language).await;
        let short = bench.lock.with_lease(Duration::from_millis(200));
        let guard = short.lock().await.unwrap();
        assert!(bench.peer.does("lock n 30000 5000").await, "{language}");
        let theirs = bench.token();
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })), "{language}");
        assert_eq!(bench.token(), theirs, "{language}");
        assert!(bench.peer.does("unlock n").await, "{language}");

        // What was deleted under us, and taken, and is found when we unlock ..
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.wire.run::<()>(&["DEL", NAME]);
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        match guard.unlock().await {
            Err(Error::Lost { reason: LossReason::Taken, holder: Some(holder), .. }) => {
                assert_eq!(Some(holder.owner()), bench.token().as_deref(), "{language}");
            }
            other => panic!("{language}: {other:?}"),
        }
        assert_eq!(bench.token(), Some(bench.peer.call("token n").await), "{language}");
        assert!(bench.peer.does("unlock n").await, "{language}");

        // .. or by the watchdog, after another client of ours forced it.
        let guard = bench.lock.lock().await.unwrap();
        let other = Client::connect(bench.server.url()).await.unwrap().value_lock(NAME);
        assert!(other.force_unlock().await.unwrap());
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        let told = tokio::time::timeout(LEASE, guard.lost()).await.expect("it is told");
        assert_eq!(told, HoldState::Lost(LossReason::Taken), "{language}");
        drop(guard);
        // Behind what is still to be cleared.
        assert!(bench.lock.try_lock().await.unwrap().is_none());
        assert_eq!(bench.token(), Some(bench.peer.call("token n").await), "{language}");

        // Their holder is told when it unlocks.
        assert!(bench.lock.force_unlock().await.unwrap());
        assert!(!bench.peer.does("unlock n").await, "{language}");
        assert_eq!(bench.token(), None, "{language}");
    }
}
