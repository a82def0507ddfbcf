//! Rust tasks and Java threads at one semaphore or latch at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, LossReason};
use tokio::task::JoinSet;

use crate::support::clock::monotonic_ns;
use crate::support::kind::in_time;
use crate::support::raw::NAME;
use crate::support::{
    Java, RawRedis, Server, Stopwatch, WOKEN, WakeUps, eventually, since, subscribers, versions,
};

const SEMAPHORE: &str = "redisson_sc:{n}";
const LATCH: &str = "redisson_countdownlatch__channel__{n}";
const TIMEOUTS: &str = "{n}:timeout";
const ROUNDS: usize = 30;
/// The longest wait for a wake-up, so that one that never comes fails the test.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn each_side_wakes_the_others_permit_waiters() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        let (ours, javas) = (client.semaphore(NAME), java.semaphore(NAME));
        let (leased, javas_leased) = (client.expirable_semaphore("leased"), java.permits("leased"));
        ours.try_set_permits(2).await.unwrap();
        leased.try_set_permits(1).await.unwrap();
        let [mut to_java, mut to_rust, mut ids_to_java, mut ids_to_rust] = [(); 4].map(|()| WakeUps::new());
        for _ in 0..ROUNDS {
            // Java waits for two permits, and Rust releases them.
            let permit = ours.acquire_many(2).await.unwrap();
            let waiting = javas.try_acquire_within(2, PATIENCE);
            eventually(|| subscribers(&server, SEMAPHORE) == 1).await;
            let released = monotonic_ns();
            permit.release().await.unwrap();
            let entered = waiting.await;
            to_java.add(released, entered.done_ns);
            assert!(entered.unwrap(), "{version}: Java was not woken");
            // The reverse.
            eventually(|| subscribers(&server, SEMAPHORE) == 0).await;
            let semaphore = ours.clone();
            let waiting = tokio::spawn(async move {
                let permit = semaphore.try_acquire_many_for(2, PATIENCE).await.unwrap().expect("it is woken");
                (permit, monotonic_ns())
            });
            eventually(|| subscribers(&server, SEMAPHORE) == 1).await;
            let released = javas.release(2).await;
            let (permit, entered) = waiting.await.unwrap();
            to_rust.add(released.started_ns, entered);
            permit.release().await.unwrap();

            let permit = leased.acquire().await.unwrap();
            let waiting = javas_leased.try_acquire_within_for(PATIENCE, PATIENCE * 6);
            eventually(|| subscribers(&server, "redisson_sc:{leased}") == 1).await;
            let released = monotonic_ns();
            permit.release().await.unwrap();
            let entered = waiting.await;
            ids_to_java.add(released, entered.done_ns);
            let id = entered.unwrap().expect("Java is woken");
            eventually(|| subscribers(&server, "redisson_sc:{leased}") == 0).await;
            let semaphore = leased.clone();
            let waiting = tokio::spawn(async move {
                let permit = semaphore.try_acquire_for(PATIENCE).await.unwrap().expect("it is woken");
                (permit, monotonic_ns())
            });
            eventually(|| subscribers(&server, "redisson_sc:{leased}") == 1).await;
            let released = javas_leased.release(&id).await;
            let (permit, entered) = waiting.await.unwrap();
            ids_to_rust.add(released.started_ns, entered);
            permit.release().await.unwrap();
        }
        to_java.assert_below(WOKEN, &format!("{version}: Rust's release to Java's acquire"));
        to_rust.assert_below(WOKEN, &format!("{version}: Java's release to Rust's acquire"));
        ids_to_java.assert_below(WOKEN, &format!("{version}: Rust's release of an id to Java's acquire"));
        ids_to_rust.assert_below(WOKEN, &format!("{version}: Java's release of an id to Rust's acquire"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_opens_the_latch_for_the_other_exactly_at_zero() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await;
        let (java, counting) = (java.thread("t").latch(NAME), java.thread("u").latch(NAME));
        let latch = Client::connect(server.url()).await.unwrap().count_down_latch(NAME);
        let (mut to_java, mut to_rust) = (WakeUps::new(), WakeUps::new());
        for round in 0..ROUNDS {
            // Either side may have set the count.
            match round % 2 {
                0 => assert!(latch.try_set_count(2).await.unwrap()),
                _ => assert!(counting.try_set_count(2).await.unwrap()),
            }
            let waiting = java.await_within(PATIENCE);
            eventually(|| subscribers(&server, LATCH) == 1).await;
            latch.count_down().await.unwrap();
            assert_eq!((latch.count().await.unwrap(), counting.count().await.unwrap()), (1, 1));
            let opened = monotonic_ns();
            latch.count_down().await.unwrap();
            let passed = waiting.await;
            assert!(passed.done_ns >= opened, "{version}: Java passed a closed latch");
            to_java.add(opened, passed.done_ns);
            assert!(passed.unwrap(), "{version}: Java was not woken");
            eventually(|| subscribers(&server, LATCH) == 0).await;

            assert!(latch.try_set_count(2).await.unwrap());
            let there = latch.clone();
            let waiting = tokio::spawn(async move {
                assert!(there.wait_for(PATIENCE).await.unwrap(), "it was not woken");
                monotonic_ns()
            });
            eventually(|| subscribers(&server, LATCH) == 1).await;
            counting.count_down().await.unwrap();
            let opened = counting.count_down().await;
            let passed = waiting.await.unwrap();
            assert!(passed >= opened.started_ns, "{version}: Rust passed a closed latch");
            to_rust.add(opened.started_ns, passed);
            opened.unwrap();
            eventually(|| subscribers(&server, LATCH) == 0).await;
        }
        to_java.assert_below(WOKEN, &format!("{version}: Rust's count to Java's await"));
        to_rust.assert_below(WOKEN, &format!("{version}: Java's count to Rust's wait"));
    }
}

/// Java's own delete publishes that something changed, and its waiters sleep on.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_latch_wakes_java_waiters() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t").latch(NAME);
        let latch = Client::connect(server.url()).await.unwrap().count_down_latch(NAME);
        for _ in 0..3 {
            latch.try_set_count(5).await.unwrap();
            let waiting = java.await_within(PATIENCE);
            eventually(|| subscribers(&server, LATCH) == 1).await;
            let deleted = Stopwatch::start();
            assert!(latch.delete().await.unwrap());
            assert!(waiting.await.unwrap(), "{version}: Java sleeps on");
            assert!(deleted.elapsed() < Duration::from_secs(1), "{version}: {:?}", deleted.elapsed());
            eventually(|| subscribers(&server, LATCH) == 0).await;
        }
    }
}

/// If 0 were published for a closed latch, a waiting Java client would poll without a pause. Both sides count down at
/// the same time.
#[tokio::test(flavor = "multi_thread")]
async fn zero_is_published_only_for_an_open_latch() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await;
        let raw = RawRedis::of(&server);
        let latch = Client::connect(server.url()).await.unwrap().count_down_latch(NAME);
        for _ in 0..5 {
            latch.try_set_count(24).await.unwrap();
            let waiting = java.thread("waiter").latch(NAME).await_within(PATIENCE);
            eventually(|| subscribers(&server, LATCH) == 1).await;
            raw.messages();
            server.commandstats_reset();
            let mut tasks = JoinSet::new();
            for n in 0..3 {
                let (java, latch) = (java.thread(&format!("t{n}")).latch(NAME), latch.clone());
                tasks.spawn(async move {
                    for _ in 0..4 {
                        java.count_down().await.unwrap();
                        latch.count_down().await.unwrap();
                    }
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
            assert!(waiting.await.unwrap(), "{version}: Java was not woken");
            assert_eq!(raw.messages_on(LATCH), ["0"], "{version}");
            let looks = server.calls("get");
            assert!(looks < 100, "{version}: {looks} looks");
            eventually(|| subscribers(&server, LATCH) == 0).await;
        }
    }
}

/// Java threads and tasks of two Rust clients. Each takes one or two permits by turns.
#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_together_never_exceed_the_permits() {
    const PERMITS: i64 = 4;
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await;
        let clients =
            [Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap()];
        clients[0].semaphore(NAME).try_set_permits(PERMITS as u32).await.unwrap();
        clients[0].expirable_semaphore("leased").try_set_permits(PERMITS as u32).await.unwrap();
        for ids in [false, true] {
            let (held, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
            let hold = {
                let (held, most) = (held.clone(), most.clone());
                move |permits: i64| {
                    most.fetch_max(held.fetch_add(permits, SeqCst) + permits, SeqCst);
                    let held = held.clone();
                    async move {
                        tokio::time::sleep(Duration::from_micros(300)).await;
                        held.fetch_sub(permits, SeqCst);
                    }
                }
            };
            let mut tasks = JoinSet::new();
            for n in 0..6usize {
                // Counted as held from Java's reply on, and until the release is requested.
                let (thread, count) = (java.thread(&format!("t{n}")), hold.clone());
                tasks.spawn(async move {
                    for round in 0..20usize {
                        let permits = if ids { 1 } else { (n + round) % 2 + 1 };
                        if ids {
                            let id =
                                thread.permits("leased").acquire_for(Duration::from_secs(60)).await.unwrap();
                            count(1).await;
                            thread.permits("leased").release(&id).await.unwrap();
                        } else {
                            thread.semaphore(NAME).acquire(permits as i32).await.unwrap();
                            count(permits as i64).await;
                            thread.semaphore(NAME).release(permits as i32).await.unwrap();
                        }
                    }
                });
                let (client, count) = (clients[n % 2].clone(), hold.clone());
                tasks.spawn(async move {
                    let (semaphore, leased) = (client.semaphore(NAME), client.expirable_semaphore("leased"));
                    for round in 0..20usize {
                        let permits = ((n + round) % 2 + 1) as u32;
                        if ids {
                            let permit = leased.acquire_many(permits).await.unwrap();
                            count(permits.into()).await;
                            assert_eq!(permit.state(), HoldState::Held);
                            permit.release().await.unwrap();
                        } else {
                            let permit = semaphore.acquire_many(permits).await.unwrap();
                            count(permits.into()).await;
                            permit.release().await.unwrap();
                        }
                    }
                });
            }
            let all = async {
                while let Some(done) = tasks.join_next().await {
                    done.unwrap();
                }
            };
            let ended = tokio::time::timeout(Duration::from_secs(120), all).await;
            ended.unwrap_or_else(|_| panic!("{version}, with ids {ids}: a waiter was not woken"));
            let most = most.load(SeqCst);
            assert!((2..=PERMITS).contains(&most), "{version}, with ids {ids}: {most} at once");
        }
        for name in [NAME, "leased"] {
            assert_eq!(clients[0].semaphore(name).available_permits().await.unwrap(), PERMITS, "{version}");
        }
        let left: i64 = redis::cmd("ZCARD").arg("{leased}:timeout").query(&mut server.cli()).unwrap();
        assert_eq!(left, 0, "{version}");
    }
}

/// Ids pass from one side to the other as hexadecimal text.
#[tokio::test(flavor = "multi_thread")]
async fn each_side_releases_the_others_permits_by_id() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t").permits(NAME);
        let raw = RawRedis::of(&server);
        let lease = Duration::from_millis(900);
        let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
        let ours = client.expirable_semaphore(NAME);
        ours.try_set_permits(3).await.unwrap();
        // Since 3.17 an id is 16 bytes. Earlier versions look for the text itself.
        if since(&version, 3, 17) {
            let permit = ours.acquire_many(2).await.unwrap();
            let ids = permit.ids();
            java.release(&ids[0]).await.unwrap();
            // The next renewal finds the loss, and the client releases the other permit.
            let (free, state) = (raw.value(), permit.state());
            assert!(free == Some(2) || !state.is_live(), "{version}: {free:?}, {state:?}");
            let reported = in_time("the loss is reported", permit.lost()).await;
            assert_eq!(reported, HoldState::Lost(LossReason::Gone), "{version}");
            assert!(matches!(permit.release().await, Err(Error::NotHeld { .. })), "{version}");
            eventually(|| raw.value() == Some(3)).await;
            assert!(
                !java.try_release(&ids[1]).await.unwrap(),
                "{version}: it was not released with the lost one"
            );

            let permit = ours.with_lease(Duration::from_secs(60)).acquire().await.unwrap();
            let left = java.lease_time(&permit.ids()[0]).await;
            if since(&version, 3, 52) {
                let left = left.unwrap();
                // A permit ends at the next whole millisecond.
                assert!((50_000..=60_001).contains(&left), "{version}: {left}");
            }
            assert!(java.try_release(&permit.ids()[0]).await.unwrap(), "{version}");
            assert!(matches!(permit.release().await, Err(Error::Lost { .. })), "{version}");
        } else {
            let permit = ours.acquire().await.unwrap();
            assert!(!java.try_release(&permit.ids()[0]).await.unwrap(), "{version}");
            permit.release().await.unwrap();
        }
        // Java's permit is in the format of its version. Ours exist along with it.
        let id = java.acquire().await.unwrap();
        let permit = ours.acquire_many(2).await.unwrap();
        assert!(ours.try_acquire().await.unwrap().is_none() && java.try_acquire().await.unwrap().is_none());
        assert_eq!(
            (ours.available_permits().await.unwrap(), java.available_permits().await.unwrap()),
            (0, 0)
        );
        permit.release().await.unwrap();
        java.release(&id).await.unwrap();
        assert_eq!(raw.value(), Some(3), "{version}");
        assert_eq!(raw.run::<i64>(&["ZCARD", TIMEOUTS]), 0, "{version}");
    }
}

/// Each side collects permits of the other that have expired. Its waiters need no message for that.
#[tokio::test(flavor = "multi_thread")]
async fn each_side_collects_the_others_expired_permits() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t").permits(NAME);
        let raw = RawRedis::of(&server);
        let ours = Client::connect(server.url()).await.unwrap().expirable_semaphore(NAME);
        ours.try_set_permits(1).await.unwrap();
        let lease = Duration::from_millis(600);
        let id = java.acquire_for(lease).await.unwrap();
        let taken = Stopwatch::start();
        assert!(ours.try_acquire().await.unwrap().is_none(), "{version}");
        let permit = ours.with_lease(lease).try_acquire_for(PATIENCE).await.unwrap();
        let permit = permit.expect("Java's has ended");
        let waited = taken.elapsed();
        assert!(waited < lease + Duration::from_millis(500), "{version}: {waited:?}");
        java.try_release(&id).await.unwrap();
        assert_eq!(raw.value(), Some(0), "{version}: an expired permit was released once more");
        // Only the server may end this permit: our own client would release it.
        permit.forget();
        let id = java.try_acquire_within_for(PATIENCE, PATIENCE * 6).await.unwrap().expect("ours has ended");
        let waited = taken.elapsed();
        assert!(waited < 2 * lease + Duration::from_secs(1), "{version}: {waited:?}");
        java.release(&id).await.unwrap();
        assert_eq!((raw.value(), raw.run::<i64>(&["ZCARD", TIMEOUTS])), (Some(1), 0), "{version}");
    }
}
