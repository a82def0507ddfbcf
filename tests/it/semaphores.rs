//! Semaphores among Rust clients: how many holders they admit, in which order, and what the methods do to the record.
//! `semaphore_faults` covers faults of the network and of the server.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_lock::{Client, Error, Result, Semaphore, SemaphorePermit};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::raw::NAME;
use crate::support::{RawRedis, Server, Stopwatch, eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";
/// Upper bound for a wake-up by message or by the queue. A wake-up by timer would take longer.
const PROMPT: Duration = Duration::from_millis(500);

struct Bench {
    server: Server,
    raw: RawRedis,
    client: Client,
    semaphore: Semaphore,
}

impl Bench {
    async fn start() -> Self {
        let server = Server::start();
        let client = Client::connect(server.url()).await.unwrap();
        Self { raw: RawRedis::of(&server), semaphore: client.semaphore(NAME), client, server }
    }

    /// With that many permits.
    async fn of(permits: u32) -> Self {
        let bench = Self::start().await;
        assert!(bench.semaphore.try_set_permits(permits).await.unwrap());
        bench
    }

    async fn another(&self) -> Semaphore {
        Client::connect(self.server.url()).await.unwrap().semaphore(NAME)
    }

    /// A waiter for two permits, and one for one permit behind it, which have waited for a while.
    async fn large_and_small(&self) -> (JoinHandle<Result<SemaphorePermit>>, JoinHandle<SemaphorePermit>) {
        let semaphore = self.semaphore.clone();
        let large = tokio::spawn(async move { semaphore.acquire_many(2).await });
        tokio::task::yield_now().await;
        let small = self.waiter(1).await;
        // The time between two looks doubles. After this one it is 1.28 s.
        let before = self.server.calls("get");
        eventually(|| self.server.calls("get") >= before + 6).await;
        (large, small)
    }

    /// A task that waits for that many permits.
    async fn waiter(&self, permits: u32) -> JoinHandle<SemaphorePermit> {
        let semaphore = self.semaphore.clone();
        let waiter = tokio::spawn(async move { semaphore.acquire_many(permits).await.unwrap() });
        // On the one thread of these tests, the task is queued by now.
        tokio::task::yield_now().await;
        eventually(|| subscribers(&self.server, CHANNEL) == 1).await;
        waiter
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_holders_never_exceed_the_permits() {
    const PERMITS: i64 = 5;
    let bench = Bench::of(PERMITS as u32).await;
    let (held, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut tasks = JoinSet::new();
    for (client, semaphore) in [bench.semaphore.clone(), bench.another().await].into_iter().enumerate() {
        for task in 0..6 {
            let (semaphore, held, most) = (semaphore.clone(), held.clone(), most.clone());
            tasks.spawn(async move {
                for round in 0..40u32 {
                    let permits = (task + round + client as u32) % 4 + 1;
                    let permit = semaphore.acquire_many(permits).await.unwrap();
                    assert_eq!(permit.permits(), permits);
                    let now = held.fetch_add(permits.into(), SeqCst) + i64::from(permits);
                    most.fetch_max(now, SeqCst);
                    tokio::task::yield_now().await;
                    held.fetch_sub(permits.into(), SeqCst);
                    match round % 2 {
                        0 => permit.release().await.unwrap(),
                        _ => drop(permit),
                    }
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let most = most.load(SeqCst);
    assert!((2..=PERMITS).contains(&most), "{most} permits at once");
    eventually(|| bench.raw.value() == Some(PERMITS)).await;
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

/// A waiter for fewer permits does not pass an earlier waiter for more.
#[tokio::test]
async fn a_waiter_for_many_permits_is_not_overtaken() {
    let bench = Bench::of(2).await;
    let first = bench.semaphore.acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for permits in [2, 1, 1, 2, 1] {
        let (semaphore, order) = (bench.semaphore.clone(), order.clone());
        tasks.spawn(async move {
            let permit = semaphore.acquire_many(permits).await.unwrap();
            order.lock().unwrap().push(permits);
            permit.release().await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    // One permit is free, and no call of this client may take it.
    assert_eq!(bench.semaphore.available_permits().await.unwrap(), 1);
    assert!(bench.semaphore.try_acquire().await.unwrap().is_none());
    assert!(bench.semaphore.try_acquire_for(Duration::ZERO).await.unwrap().is_none());
    // A slow server may not answer within so short a wait.
    let waited = bench.semaphore.try_acquire_for(Duration::from_millis(30)).await;
    assert!(matches!(waited, Ok(None) | Err(Error::TimedOut { .. })), "{waited:?}");
    assert!(order.lock().unwrap().is_empty());
    // Another client has a queue of its own.
    bench.another().await.try_acquire().await.unwrap().expect("one is free").release().await.unwrap();
    assert!(order.lock().unwrap().is_empty());
    first.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // The two in the middle may hold at the same time.
    assert_eq!(*order.lock().unwrap(), [2, 1, 1, 2, 1]);
    assert_eq!(bench.raw.value(), Some(2));
}

/// The record does not name the holders of permits, so it need not change while they pass from task to task.
#[tokio::test]
async fn permits_pass_to_tasks_of_the_same_client_without_a_request() {
    const TASKS: usize = 12;
    let server = Server::start();
    let semaphore = Client::connect(server.url()).await.unwrap().semaphore(NAME);
    assert!(semaphore.try_set_permits(2).await.unwrap());
    let held = semaphore.acquire_many(2).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (semaphore, order) = (semaphore.clone(), order.clone());
        tasks.spawn(async move {
            let permit = semaphore.acquire_many(2).await.unwrap();
            order.lock().unwrap().push(task);
            match task % 2 {
                0 => permit.release().await.unwrap(),
                _ => drop(permit),
            }
        });
        tokio::task::yield_now().await;
    }
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.commandstats_reset();
    held.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), Vec::from_iter(0..TASKS));
    eventually(|| redis::cmd("GET").arg(NAME).query(&mut server.cli()) == Ok(Some(2))).await;
    // Another subscriber is assumed until the first release has counted them. The last release finds no waiter.
    assert_eq!(server.calls("incrby"), 2, "of {TASKS} holds");
}

/// When a waiter gives up, the waiters behind it are served before their next look at the clock.
#[tokio::test]
async fn waiters_behind_one_that_gives_up_are_served_at_once() {
    let bench = Bench::of(2).await;
    let kept = bench.semaphore.acquire().await.unwrap();
    let (large, small) = bench.large_and_small().await;
    assert!(!small.is_finished());
    large.abort();
    assert!(large.await.unwrap_err().is_cancelled());
    let left = Stopwatch::start();
    small.await.unwrap().release().await.unwrap();
    assert!(left.elapsed() < PROMPT, "{:?}", left.elapsed());
    kept.release().await.unwrap();
}

/// When permits pass to a waiter, the next one, who wants fewer, is served before its next look at the clock.
#[tokio::test]
async fn a_waiter_for_fewer_permits_is_served_after_permits_have_passed() {
    let bench = Bench::of(3).await;
    let held = bench.semaphore.acquire_many(2).await.unwrap();
    let (large, small) = bench.large_and_small().await;
    assert!(!small.is_finished(), "the large one is first");
    held.release().await.unwrap();
    let left = Stopwatch::start();
    let large = large.await.unwrap().unwrap();
    small.await.unwrap().release().await.unwrap();
    assert!(left.elapsed() < PROMPT, "{:?}", left.elapsed());
    large.release().await.unwrap();
}

#[tokio::test]
async fn dropped_permits_are_released_and_forgotten_ones_are_not() {
    let bench = Bench::of(3).await;
    drop(bench.semaphore.acquire_many(3).await.unwrap());
    // A release in the background comes before later requests.
    let permit = bench.semaphore.try_acquire_many(3).await.unwrap().expect("all are free");
    permit.release().await.unwrap();
    bench.semaphore.acquire_many(2).await.unwrap().forget();
    assert_eq!(bench.raw.value(), Some(1));
    assert_eq!(bench.semaphore.available_permits().await.unwrap(), 1);
    assert!(bench.semaphore.try_acquire_many(2).await.unwrap().is_none());
    bench.semaphore.release(2).await.unwrap();
    assert_eq!(bench.raw.value(), Some(3));
    assert_eq!(bench.raw.messages_on(CHANNEL), ["3", "3", "3", "3"]);
    // Each client has one mark, and closing adds none.
    bench.client.close().await;
    bench.raw.assert_nothing_else_left(&[NAME]).await;
    assert_eq!(bench.raw.keys().len(), 2);
}

#[tokio::test]
async fn each_method_changes_the_record_as_documented() {
    let Bench { raw, semaphore, .. } = &Bench::start().await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.drain_permits().await.unwrap(), 0);
    assert_eq!((raw.value(), raw.messages()), (None, vec![]));

    assert!(semaphore.try_set_permits(4).await.unwrap());
    assert!(!semaphore.try_set_permits(5).await.unwrap());
    assert!(!semaphore.try_set_permits_for(5, Duration::from_secs(5)).await.unwrap());
    assert_eq!((raw.value(), raw.ttl(NAME)), (Some(4), -1));
    assert_eq!(semaphore.add_permits(3).await.unwrap(), 7);
    assert_eq!(semaphore.add_permits(-9).await.unwrap(), -2);
    assert_eq!(semaphore.available_permits().await.unwrap(), -2);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.drain_permits().await.unwrap(), -2);
    assert_eq!(raw.value(), Some(0));
    assert_eq!(semaphore.add_permits(6).await.unwrap(), 6);
    assert_eq!(semaphore.drain_permits().await.unwrap(), 6);
    assert_eq!(
        (raw.value(), raw.messages_on(CHANNEL)),
        (Some(0), ["4", "7", "-2", "6"].map(str::to_owned).to_vec())
    );

    // A release creates a semaphore that does not exist.
    raw.run::<()>(&["DEL", NAME]);
    semaphore.release(2).await.unwrap();
    assert_eq!((raw.value(), raw.messages_on(CHANNEL)), (Some(2), vec!["2".to_owned()]));
    raw.assert_nothing_else_left(&[NAME]).await;
}

#[tokio::test]
async fn a_semaphore_with_a_time_to_live_expires() {
    let Bench { raw, semaphore, .. } = &Bench::start().await;
    let time = Duration::from_millis(700);
    assert!(semaphore.try_set_permits_for(2, time).await.unwrap());
    let left = raw.ttl(NAME);
    assert!((1..=700).contains(&left), "{left}");
    // An acquire and a release leave the expiry as it is.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let later = raw.ttl(NAME);
    assert!((1..=left).contains(&later), "{left}, then {later}");
    eventually(|| raw.value().is_none()).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    // A change of the number of permits removes the expiry.
    assert!(semaphore.try_set_permits_for(2, time).await.unwrap());
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 3);
    assert_eq!((raw.value(), raw.ttl(NAME)), (Some(3), -1));
    raw.run::<()>(&["PEXPIRE", NAME, "60000"]);
    assert_eq!(semaphore.drain_permits().await.unwrap(), 3);
    assert_eq!((raw.value(), raw.ttl(NAME)), (Some(0), -1));
}

/// Covers each way to create permits.
#[tokio::test]
async fn every_way_to_create_permits_wakes_waiters() {
    let bench = Bench::start().await;
    let another = bench.another().await;
    for way in ["try_set_permits", "release", "add_permits", "permit"] {
        let permit = match way {
            "permit" => another.try_acquire().await.unwrap(),
            _ => None,
        };
        let waiter = bench.waiter(1).await;
        let made = Stopwatch::start();
        match way {
            "try_set_permits" => assert!(another.try_set_permits(1).await.unwrap()),
            "release" => another.release(1).await.unwrap(),
            "add_permits" => assert_eq!(another.add_permits(1).await.unwrap(), 1),
            _ => permit.expect("it is free").release().await.unwrap(),
        }
        let permit = waiter.await.unwrap();
        assert!(made.elapsed() < PROMPT, "{way}: {:?}", made.elapsed());
        permit.forget();
        if way == "add_permits" {
            another.release(1).await.unwrap();
        }
        eventually(|| subscribers(&bench.server, CHANNEL) == 0).await;
    }
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let Bench { raw, semaphore, client, .. } = &Bench::start().await;
    for misuse in [
        semaphore.acquire_many(0).await.err(),
        semaphore.try_acquire_many(0).await.err(),
        semaphore.try_acquire_many_for(0, Duration::ZERO).await.err(),
        semaphore.try_acquire_for(Duration::MAX).await.err(),
        semaphore.release(0).await.err(),
        semaphore.release_if_exists(0).await.err(),
        semaphore.try_set_permits_for(1, Duration::ZERO).await.err(),
        client.semaphore("").acquire().await.err(),
        client.semaphore("").try_set_permits(1).await.err(),
        client.semaphore("").available_permits().await.err(),
        client.semaphore("").release(1).await.err(),
    ] {
        assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    }
    assert_eq!((raw.keys().len(), raw.messages()), (0, vec![]));

    for make in [["RPUSH", NAME, "1"], ["SET", NAME, "many"], ["SET", NAME, "1.5"]] {
        raw.run::<()>(&make);
        let before: Vec<u8> = raw.run(&["DUMP", NAME]);
        for (call, error) in [
            ("acquire", semaphore.acquire().await.err()),
            ("try_acquire", semaphore.try_acquire().await.err()),
            ("available", semaphore.available_permits().await.err()),
            ("release", semaphore.release(1).await.err()),
            ("release_if_exists", semaphore.release_if_exists(1).await.err()),
            ("add", semaphore.add_permits(1).await.err()),
            ("drain", semaphore.drain_permits().await.err()),
        ] {
            let expected = match (call, make[0]) {
                // This call reads the value itself. No script checks it.
                ("available", "SET") => "PROTOCOL",
                _ => "WRONGTYPE",
            };
            let code = error.as_ref().and_then(Error::code);
            assert_eq!(code, Some(expected), "{call} on {make:?}: {error:?}");
        }
        assert!(!semaphore.try_set_permits(1).await.unwrap());
        assert_eq!(raw.run::<Vec<u8>>(&["DUMP", NAME]), before, "{make:?}");
        assert_eq!((raw.messages(), raw.keys().len()), (vec![], 1), "{make:?}");
        raw.run::<()>(&["DEL", NAME]);
    }
}

/// The braces serve clusters, and are added only to a name that has none.
#[tokio::test]
async fn channel_names_match_redisson() {
    let Bench { raw, client, .. } = &Bench::start().await;
    for (name, channel) in [
        ("orders", "redisson_sc:{orders}"),
        ("a{b}c", "redisson_sc:a{b}c"),
        ("a}", "redisson_sc:{a}}"),
        ("two words \"q\" 鎖", "redisson_sc:{two words \"q\" 鎖}"),
    ] {
        let semaphore = client.semaphore(name);
        semaphore.release(1).await.unwrap();
        semaphore.acquire().await.unwrap().forget();
        assert_eq!(raw.run::<i64>(&["GET", name]), 0);
        assert_eq!(raw.messages(), [(channel.to_owned(), "1".to_owned())]);
    }
}
