//! Semaphores among Rust clients: how many are let in, who is first, and what the methods do to the record.
//! See `semaphore_faults` for what the network and the server may do to them.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_lock::{Client, Error, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::wire::NAME;
use crate::support::{Server, Stopwatch, Wire, eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";
/// At once: by a message or a step of the queue, and not by a look at the clock.
const PROMPT: Duration = Duration::from_millis(500);

struct Bench {
    server: Server,
    wire: Wire,
    client: Client,
    semaphore: Semaphore,
}

impl Bench {
    async fn start() -> Self {
        let server = Server::start();
        let client = Client::connect(server.url()).await.unwrap();
        Self { wire: Wire::of(&server), semaphore: client.semaphore(NAME), client, server }
    }

    /// With so many permits.
    async fn of(permits: u32) -> Self {
        let bench = Self::start().await;
        assert!(bench.semaphore.try_set_permits(permits).await.unwrap());
        bench
    }

    async fn another(&self) -> Semaphore {
        Client::connect(self.server.url()).await.unwrap().semaphore(NAME)
    }

    /// A task that has come to wait for so many permits.
    async fn waiter(&self, permits: u32) -> JoinHandle<redisson_lock::SemaphorePermit> {
        let semaphore = self.semaphore.clone();
        let waiter = tokio::spawn(async move { semaphore.acquire_many(permits).await.unwrap() });
        // On the one thread of these tests, its place in the queue is taken by then.
        tokio::task::yield_now().await;
        eventually(|| subscribers(&self.server, CHANNEL) == 1).await;
        waiter
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_never_has_more_permits_than_there_are() {
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
    eventually(|| bench.wire.value() == Some(PERMITS)).await;
    bench.wire.nothing_else_is_left(&[NAME]).await;
}

/// Nobody who wants less passes one who wants more, and was there first.
#[tokio::test]
async fn who_wants_many_is_not_passed_by_those_who_want_few() {
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
    // One permit is free, and nobody of this client may have it.
    assert_eq!(bench.semaphore.available_permits().await.unwrap(), 1);
    assert!(bench.semaphore.try_acquire().await.unwrap().is_none());
    assert!(bench.semaphore.try_acquire_for(1, Duration::ZERO).await.unwrap().is_none());
    assert!(bench.semaphore.try_acquire_for(1, Duration::from_millis(30)).await.unwrap().is_none());
    assert_eq!(*order.lock().unwrap(), []);
    // Another client is another queue.
    bench.another().await.try_acquire().await.unwrap().expect("one is free").release().await.unwrap();
    assert_eq!(*order.lock().unwrap(), []);
    first.release().await.unwrap();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    // The two in the middle may hold at the same time.
    assert_eq!(*order.lock().unwrap(), [2, 1, 1, 2, 1]);
    assert_eq!(bench.wire.value(), Some(2));
}

/// Whoever is behind one who gives up is not left to the next look at the clock.
#[tokio::test]
async fn those_behind_one_who_gives_up_are_served_at_once() {
    let bench = Bench::of(2).await;
    let kept = bench.semaphore.acquire().await.unwrap();
    let semaphore = bench.semaphore.clone();
    let large = tokio::spawn(async move { semaphore.acquire_many(2).await });
    tokio::task::yield_now().await;
    let small = bench.waiter(1).await;
    // Each look comes after twice the time of the one before: after this one, after 1.28 s.
    let before = bench.server.calls("get");
    eventually(|| bench.server.calls("get") >= before + 6).await;
    assert!(!small.is_finished());
    large.abort();
    assert!(large.await.unwrap_err().is_cancelled());
    let left = Stopwatch::start();
    small.await.unwrap().release().await.unwrap();
    assert!(left.elapsed() < PROMPT, "{:?}", left.elapsed());
    kept.release().await.unwrap();
}

#[tokio::test]
async fn what_is_dropped_is_given_back_and_what_is_forgotten_is_not() {
    let bench = Bench::of(3).await;
    drop(bench.semaphore.acquire_many(3).await.unwrap());
    // What is given back in the background comes before what is asked for later.
    let permit = bench.semaphore.try_acquire_many(3).await.unwrap().expect("all are free");
    permit.release().await.unwrap();
    bench.semaphore.acquire_many(2).await.unwrap().forget();
    assert_eq!(bench.wire.value(), Some(1));
    assert_eq!(bench.semaphore.available_permits().await.unwrap(), 1);
    assert!(bench.semaphore.try_acquire_many(2).await.unwrap().is_none());
    bench.semaphore.release(2).await.unwrap();
    assert_eq!(bench.wire.value(), Some(3));
    assert_eq!(bench.wire.told(CHANNEL), ["3", "3", "3", "3"]);
    // Of each client there is one mark, and closing leaves no more.
    bench.client.close().await;
    bench.wire.nothing_else_is_left(&[NAME]).await;
    assert_eq!(bench.wire.keys().len(), 2);
}

#[tokio::test]
async fn the_methods_change_the_record_as_they_say() {
    let Bench { wire, semaphore, .. } = &Bench::start().await;
    assert_eq!(semaphore.available_permits().await.unwrap(), 0);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.drain_permits().await.unwrap(), 0);
    assert_eq!((wire.value(), wire.messages()), (None, vec![]));

    assert!(semaphore.try_set_permits(4).await.unwrap());
    assert!(!semaphore.try_set_permits(5).await.unwrap());
    assert!(!semaphore.try_set_permits_for(5, Duration::from_secs(5)).await.unwrap());
    assert_eq!((wire.value(), wire.ttl(NAME)), (Some(4), -1));
    assert_eq!(semaphore.add_permits(3).await.unwrap(), 7);
    assert_eq!(semaphore.add_permits(-9).await.unwrap(), -2);
    assert_eq!(semaphore.available_permits().await.unwrap(), -2);
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.drain_permits().await.unwrap(), -2);
    assert_eq!(wire.value(), Some(0));
    assert_eq!(semaphore.add_permits(6).await.unwrap(), 6);
    assert_eq!(semaphore.drain_permits().await.unwrap(), 6);
    assert_eq!(
        (wire.value(), wire.told(CHANNEL)),
        (Some(0), ["4", "7", "-2", "6"].map(str::to_owned).to_vec())
    );

    // One that nobody made is made by a release.
    wire.run::<()>(&["DEL", NAME]);
    semaphore.release(2).await.unwrap();
    assert_eq!((wire.value(), wire.told(CHANNEL)), (Some(2), vec!["2".to_owned()]));
    wire.nothing_else_is_left(&[NAME]).await;
}

#[tokio::test]
async fn a_semaphore_for_a_time_is_gone_then() {
    let Bench { wire, semaphore, .. } = &Bench::start().await;
    let time = Duration::from_millis(700);
    assert!(semaphore.try_set_permits_for(2, time).await.unwrap());
    let left = wire.ttl(NAME);
    assert!((1..=700).contains(&left), "{left}");
    // Taking and giving back leave its end as it is.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let later = wire.ttl(NAME);
    assert!((1..=left).contains(&later), "{left}, then {later}");
    eventually(|| wire.value().is_none()).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    // What changes how many there are makes it last.
    assert!(semaphore.try_set_permits_for(2, time).await.unwrap());
    assert_eq!(semaphore.add_permits(1).await.unwrap(), 3);
    assert_eq!((wire.value(), wire.ttl(NAME)), (Some(3), -1));
    wire.run::<()>(&["PEXPIRE", NAME, "60000"]);
    assert_eq!(semaphore.drain_permits().await.unwrap(), 3);
    assert_eq!((wire.value(), wire.ttl(NAME)), (Some(0), -1));
}

/// Each way in which permits come to be.
#[tokio::test]
async fn who_waits_is_woken_by_whatever_makes_permits() {
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
    let Bench { wire, semaphore, client, .. } = &Bench::start().await;
    for misuse in [
        semaphore.acquire_many(0).await.err(),
        semaphore.try_acquire_many(0).await.err(),
        semaphore.try_acquire_for(0, Duration::ZERO).await.err(),
        semaphore.try_acquire_for(1, Duration::MAX).await.err(),
        semaphore.release(0).await.err(),
        semaphore.try_set_permits_for(1, Duration::ZERO).await.err(),
        client.semaphore("").acquire().await.err(),
        client.semaphore("").try_set_permits(1).await.err(),
        client.semaphore("").available_permits().await.err(),
        client.semaphore("").release(1).await.err(),
    ] {
        assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    }
    assert_eq!((wire.keys().len(), wire.messages()), (0, vec![]));

    for make in [["RPUSH", NAME, "1"], ["SET", NAME, "many"], ["SET", NAME, "1.5"]] {
        wire.run::<()>(&make);
        let before: Vec<u8> = wire.run(&["DUMP", NAME]);
        for (call, error) in [
            ("acquire", semaphore.acquire().await.err()),
            ("try_acquire", semaphore.try_acquire().await.err()),
            ("available", semaphore.available_permits().await.err()),
            ("release", semaphore.release(1).await.err()),
            ("add", semaphore.add_permits(1).await.err()),
            ("drain", semaphore.drain_permits().await.err()),
        ] {
            let expected = match (call, make[0]) {
                // It reads what the server tells, and no script of ours judges that.
                ("available", "SET") => "PROTOCOL",
                _ => "WRONGTYPE",
            };
            let code = error.as_ref().and_then(Error::code);
            assert_eq!(code, Some(expected), "{call} on {make:?}: {error:?}");
        }
        assert!(!semaphore.try_set_permits(1).await.unwrap());
        assert_eq!(wire.run::<Vec<u8>>(&["DUMP", NAME]), before, "{make:?}");
        assert_eq!((wire.messages(), wire.keys().len()), (vec![], 1), "{make:?}");
        wire.run::<()>(&["DEL", NAME]);
    }
}

/// Braces are for the cluster's sake, and only where a name has none.
#[tokio::test]
async fn names_are_redissons() {
    let Bench { wire, client, .. } = &Bench::start().await;
    for (name, channel) in [
        ("orders", "redisson_sc:{orders}"),
        ("a{b}c", "redisson_sc:a{b}c"),
        ("a}", "redisson_sc:{a}}"),
        ("two words \"q\" 鎖", "redisson_sc:{two words \"q\" 鎖}"),
    ] {
        let semaphore = client.semaphore(name);
        semaphore.release(1).await.unwrap();
        semaphore.acquire().await.unwrap().forget();
        assert_eq!(wire.run::<i64>(&["GET", name]), 0);
        assert_eq!(wire.messages(), [(channel.to_owned(), "1".to_owned())]);
    }
}
