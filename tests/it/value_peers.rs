//! The value lock together with locks of the same kind in other languages: redis-py's own, and node-redlock's.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, Lock, LossReason};
use tokio::task::JoinSet;

use crate::support::kind::in_time;
use crate::support::peer::Peer;
use crate::support::raw::NAME;
use crate::support::{RawRedis, Server, Stopwatch};

/// The lease of our watchdog.
const LEASE: Duration = Duration::from_millis(900);
/// We look after 80 ms at the latest, and the peers after 20 ms.
const SOON: Duration = Duration::from_millis(400);

struct Bench {
    raw: RawRedis,
    lock: Lock,
    peer: Peer,
    server: Server,
}

impl Bench {
    async fn with_peer(language: &'static str) -> Self {
        let server = Server::start();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let peer = Peer::start(language, &server);
        Self { raw: RawRedis::of(&server), lock: client.value_lock(NAME), peer, server }
    }

    fn token(&self) -> Option<String> {
        self.raw.run(&["GET", NAME])
    }

    fn waiting(&self) -> tokio::task::JoinHandle<redisson_lock::LockGuard> {
        let lock = self.lock.clone();
        tokio::spawn(async move { lock.lock().await.unwrap() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_in_three_languages_exclude_each_other() {
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
    tokio::time::timeout(Duration::from_secs(120), all).await.expect("all clients make progress");
    let count: u64 = redis::cmd("GET").arg("counter").query(&mut server.cli()).unwrap();
    assert_eq!(count, 10 * EACH);
}

#[tokio::test]
async fn each_side_waits_for_the_other() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::with_peer(language).await;
        // Without polling, a waiter would probe the holder at doubling intervals: at 630 ms, and at 1270 ms.
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
async fn a_peers_lease_ends_for_us_on_time() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::with_peer(language).await;
        let lease = Duration::from_millis(500);
        assert!(bench.peer.does(&format!("lock n {} 0", lease.as_millis())).await, "{language}");
        let taken = Stopwatch::start();
        let guard = bench.lock.lock().await.unwrap();
        assert!(taken.elapsed() < lease + SOON, "{language}: {:?}", taken.elapsed());
        // A late peer does not free our hold.
        assert!(!bench.peer.does("unlock n").await && !bench.peer.does("extend n 500").await, "{language}");
        assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{language}");
        assert_eq!(guard.state(), HoldState::Held, "{language}");
        guard.unlock().await.unwrap();

        // A lease that is extended lasts longer.
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        let asked = Instant::now();
        assert!(bench.peer.does(&format!("extend n {}", lease.as_millis())).await, "{language}");
        let extended = Stopwatch::start();
        let guard = bench.lock.lock().await.unwrap();
        // Two processes measure the time, in whole milliseconds.
        let lasted = asked.elapsed() + Duration::from_millis(2);
        assert!(lasted >= lease && extended.elapsed() < lease + SOON, "{language}: {lasted:?}, {extended:?}");
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn our_watchdog_keeps_peers_out() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::with_peer(language).await;
        let guard = bench.lock.lock().await.unwrap();
        let wait = LEASE * 2;
        assert!(!bench.peer.does(&format!("lock n 30000 {}", wait.as_millis())).await, "{language}");
        assert_eq!(guard.state(), HoldState::Held, "{language}");
        assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{language}");
        guard.unlock().await.unwrap();
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
    }
}

/// A lock that we gave up or lost is the peer's, and none of our late requests touches it.
#[tokio::test]
async fn a_peers_token_is_never_deleted() {
    for language in Peer::LANGUAGES {
        let mut bench = Bench::with_peer(language).await;
        let short = bench.lock.with_lease(Duration::from_millis(200));
        let guard = short.lock().await.unwrap();
        assert!(bench.peer.does("lock n 30000 5000").await, "{language}");
        let theirs = bench.token();
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })), "{language}");
        assert_eq!(bench.token(), theirs, "{language}");
        assert!(bench.peer.does("unlock n").await, "{language}");

        // The record is deleted and the peer takes the lock. We find out when we unlock ..
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.raw.run::<()>(&["DEL", NAME]);
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        match guard.unlock().await {
            Err(Error::Lost { reason: LossReason::Taken, holder: Some(holder), .. }) => {
                assert_eq!(Some(holder.owner()), bench.token().as_deref(), "{language}");
            }
            other => panic!("{language}: {other:?}"),
        }
        assert_eq!(bench.token(), Some(bench.peer.call("token n").await), "{language}");
        assert!(bench.peer.does("unlock n").await, "{language}");

        // .. or through the watchdog, after another client of ours forced the lock.
        let guard = bench.lock.lock().await.unwrap();
        let due = guard.deadline() - LEASE + LEASE / 3;
        let other = Client::connect(bench.server.url()).await.unwrap().value_lock(NAME);
        assert!(other.force_unlock().await.unwrap());
        assert!(bench.peer.does("lock n 30000 0").await, "{language}");
        let taken = Instant::now();
        let reported = in_time("the loss is reported", guard.lost()).await;
        // A renewal before the peer took the lock finds no record. The first one may come half of its time early.
        let gone = due - LEASE / 4 < taken && reported == HoldState::Lost(LossReason::Gone);
        assert!(gone || reported == HoldState::Lost(LossReason::Taken), "{language}: {reported:?}");
        drop(guard);
        // This attempt is queued behind the cleanup that is still to come.
        assert!(bench.lock.try_lock().await.unwrap().is_none());
        assert_eq!(bench.token(), Some(bench.peer.call("token n").await), "{language}");

        // The peer finds out when it unlocks.
        assert!(bench.lock.force_unlock().await.unwrap());
        assert!(!bench.peer.does("unlock n").await, "{language}");
        assert_eq!(bench.token(), None, "{language}");
    }
}
