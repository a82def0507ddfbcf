//! Java threads and Rust tasks of two processes contend for one lock: no increment is lost, and no client keeps the lock.

use crate::support::any_lock::ClientSet;
use crate::support::kind::Kind;
use crate::support::worker::Worker;
use crate::support::{Java, RawRedis, Server, Stopwatch, eventually, since, subscribers, versions};
use futures_util::future::join_all;
use redisson_lock::{Client, HandOff, Owner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The defaults of [`HandOff`].
const MAX_IN_ROW: u32 = 8;
const MAX_TIME_ALONE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(3);

/// The contenders of one test, and the duration of each hold.
struct Crowd {
    kind: &'static str,
    java: usize,
    rust: usize,
    each: usize,
    hold: Duration,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_crowd_counts_exactly_and_no_client_keeps_the_lock() {
    for version in versions() {
        run_mixed_crowd(
            &version,
            Crowd { kind: "plain", java: 8, rust: 16, each: 500, hold: Duration::ZERO },
        )
        .await;
    }
}

/// A series of hand-offs ends at its limits, although no other client listens: the release frees the lock, which publishes a message.
#[tokio::test]
async fn a_client_that_is_alone_keeps_its_limits() {
    let server = Server::start();
    let off = HandOff::new().max_in_row(0);
    let short = HandOff::new().max_time_alone(Duration::ZERO);
    let long = HandOff::new().max_time_alone(Duration::from_secs(60));
    for (name, bounds, messages) in [("off", off, 9), ("short", short, 9), ("long", long, 1)] {
        let client = Client::builder().hand_off(bounds).connect(server.url()).await.unwrap();
        // Each client has a lock of its own, at which no earlier client is still subscribed.
        let lock = client.mutex(name);
        let guard = lock.lock().await.unwrap();
        let waiters = (0..8).map(|_| async { lock.lock().await.unwrap().unlock().await.unwrap() });
        let before = server.calls("publish");
        // The waiters are polled first, so they are queued when the guard is released.
        tokio::join!(join_all(waiters), async { guard.unlock().await.unwrap() });
        assert_eq!(server.calls("publish") - before, messages, "{name}");
    }
}

/// The default limit, beside one other subscriber. The end of a series publishes a message.
#[tokio::test]
async fn a_series_beside_another_client_has_a_default_limit() {
    let server = Server::start();
    let long = Duration::from_secs(60);
    let hand_off = HandOff::new().max_time(long).max_time_alone(long);
    let client = Client::builder().hand_off(hand_off).connect(server.url()).await.unwrap();
    let mut other = server.cli();
    redis::cmd("SUBSCRIBE").arg("redisson_lock__channel:{n}").exec(&mut other).unwrap();
    let lock = client.mutex("n");
    let guard = lock.lock().await.unwrap();
    let waiters = (0..40).map(|_| async {
        let guard = lock.lock().await.unwrap();
        let published = server.calls("publish");
        guard.unlock().await.unwrap();
        published
    });
    let before = server.calls("publish");
    // The waiters are polled first, so they are queued when the guard is released.
    let (published, ()) = tokio::join!(join_all(waiters), async { guard.unlock().await.unwrap() });
    let first_series = published.iter().filter(|&&published| published == before).count();
    assert_eq!(first_series as u32, MAX_IN_ROW);
}

/// A client that looks at the lock only at intervals, and releases it without a message, gets its turns beside many tasks of another client.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_messages_gets_its_turns() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = client.mutex("n");
        tasks.spawn(async move {
            loop {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    let mut other = server.cli();
    let mut attempt = redis::cmd("EVAL");
    attempt.arg("return redis.call('exists', KEYS[1]) == 0 and redis.call('hset', KEYS[1], 'other', 1)");
    attempt.arg(1).arg("n");
    let mut waits = Vec::new();
    for _ in 0..20 {
        let asked = Stopwatch::start();
        while attempt.query::<Option<u64>>(&mut other).unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        waits.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
        redis::cmd("DEL").arg("n").exec(&mut other).unwrap();
        // Long enough for the tasks to look at the lock.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tasks.shutdown().await;
    // The first wait is the one after which the client knows.
    let later = &mut waits[1..];
    later.sort_unstable();
    assert!(later[later.len() / 2] < MAX_TIME_ALONE / 2, "{later:?}");
}

/// The holds outlast every yield window of the client.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_keeps_the_lock_from_a_mixed_crowd_with_long_holds() {
    for version in versions() {
        let hold = Duration::from_millis(20);
        run_mixed_crowd(&version, Crowd { kind: "plain", java: 3, rust: 6, each: 20, hold }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_spin_lock_crowd_counts_exactly_and_no_client_keeps_the_lock() {
    for version in versions() {
        // The spin lock came with 3.15.
        if since(&version, 3, 15) {
            run_mixed_crowd(
                &version,
                Crowd { kind: "spin", java: 8, rust: 16, each: 1000, hold: Duration::ZERO },
            )
            .await;
        }
    }
}

/// Each release wakes every client, but only some of them attempt. Otherwise each hold would take an attempt of each client.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_hold_do_not_grow_with_the_crowd() {
    const CLIENTS: usize = 64;
    let server = Server::start();
    let holds: Arc<Vec<AtomicU64>> = Arc::new((0..CLIENTS).map(|_| AtomicU64::new(0)).collect());
    let mut tasks = JoinSet::new();
    for client in 0..CLIENTS {
        let lock = Client::connect(server.url()).await.unwrap().lock("n");
        let holds = holds.clone();
        tasks.spawn(async move {
            loop {
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                holds[client].fetch_add(1, Relaxed);
                guard.unlock().await.unwrap();
            }
        });
    }
    let all = || holds.iter().map(|holds| holds.load(Relaxed)).sum::<u64>();
    // The limit is one for each turn of the crowd, because this test is about requests and not about speed.
    let turns = async |number: u64| {
        let before = all();
        for turn in 1..=number {
            eventually(|| all() > before + turn * CLIENTS as u64).await;
        }
    };
    // By then every client has lost often enough to know the size of the crowd.
    turns(4).await;
    let (before, scripts) = (all(), server.scripts());
    turns(10).await;
    let (scripts, made) = (server.scripts() - scripts, all() - before);
    tasks.shutdown().await;
    // About 5 for each hold, and 12 if a hold takes 100 times as long as the shortest delay. Without the draw about 50.
    assert!(scripts <= 16 * made, "{scripts} scripts for {made} holds");
    let least = holds.iter().map(|holds| holds.load(Relaxed)).min().unwrap();
    assert!(least > 0, "a client got no hold of {made}");
}

/// A client of another library attempts at each message. If the crowd went on drawing lots beside one, it would get little.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_draws_no_lots_beside_a_client_of_another_library() {
    const CLIENTS: u64 = 64;
    const MESSAGES: u64 = 20;
    for foreign in [true, false] {
        let server = Server::start();
        let raw = RawRedis::of(&server);
        let holder = Client::connect(server.url()).await.unwrap();
        let guard = holder.mutex("n").lock().await.unwrap();
        if foreign {
            // As Redisson writes it: the client's uuid, and the id of the thread.
            raw.run::<u64>(&["DEL", "n"]);
            raw.run::<u64>(&["HSET", "n", &format!("{}:1", Uuid::new_v4()), "1"]);
            raw.run::<u64>(&["PEXPIRE", "n", "60000"]);
        }
        let mut tasks = JoinSet::new();
        for _ in 0..CLIENTS {
            let lock = Client::connect(server.url()).await.unwrap().lock("n");
            tasks.spawn(async move { drop(lock.lock().await) });
        }
        let channel = "redisson_lock__channel:{n}";
        eventually(|| subscribers(&server, channel) == CLIENTS).await;
        // As many as all clients need to learn the holder and the size of the crowd.
        let messages = async |number: u64| {
            for _ in 0..number {
                raw.run::<u64>(&["PUBLISH", channel, "0"]);
                // The length of a hold.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        messages(5).await;
        let scripts = server.scripts();
        messages(MESSAGES).await;
        let scripts = (server.scripts() - scripts) / MESSAGES;
        tasks.shutdown().await;
        drop(guard);
        // Half of the clients at once and the others later, or about 9, and 15 if the messages come ten times as slowly.
        assert_eq!(scripts > 24, foreign, "{scripts} scripts for each message");
    }
}

/// Java threads, and Rust tasks in two processes, add to one counter.
async fn run_mixed_crowd(version: &str, Crowd { kind, java: threads, rust: tasks, each, hold }: Crowd) {
    let server = Server::start();
    let java = Java::get(version).client(&server, 0).await;
    let mut workers: Vec<_> = (0..2)
        .map(|_| {
            let (tasks, each, hold) = (tasks / 2, each, hold.as_micros());
            let numbers = [tasks.to_string(), each.to_string(), hold.to_string()];
            Worker::start(&["loop", &server.url(), "n", &numbers[0], &numbers[1], "counter", &numbers[2]])
        })
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.line().await, "ready");
    }
    let java: Vec<_> = (0..threads).map(|n| java.thread(&format!("t{n}"))).collect();
    for thread in &java {
        thread.is_locked(kind, "n").await.unwrap();
    }
    let loops: Vec<_> = java.iter().map(|t| t.loop_(kind, "n", each as u32, "counter", hold)).collect();
    for worker in &mut workers {
        worker.go().await;
    }
    let mut rust = Vec::new();
    for worker in &mut workers {
        for _ in 0..tasks / 2 {
            let line = worker.line().await;
            let hold = |text: &str| {
                let (start, end) = text.split_once(':').expect("start:end");
                (start.parse::<u64>().unwrap(), end.parse::<u64>().unwrap())
            };
            rust.push(line.split(',').map(hold).collect::<Vec<_>>());
        }
    }
    let mut javas = Vec::new();
    for running in loops {
        javas.push(running.await.unwrap());
    }
    let counter: usize = redis::cmd("GET").arg("counter").query(&mut server.cli()).unwrap();
    assert_eq!(counter, (threads + tasks) * each, "{version}, {kind}: increments were lost");

    let all_holds = || rust.iter().chain(&javas);
    assert!(all_holds().all(|holds| holds.len() == each));
    let mut all: Vec<_> = all_holds().flatten().copied().collect();
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{version}, {kind}: two holds overlap");
    // Only while all contenders run: until the first of them is done.
    let until = all_holds().map(|holds| holds[each - 1].1).min().unwrap();
    let count = |side: &[Vec<(u64, u64)>]| side.iter().flatten().filter(|hold| hold.1 <= until).count();
    let (j, r) = (count(&javas), count(&rust));
    let longest = longest_series(&rust, &javas, tasks / 2, until);
    let time = Duration::from_nanos(all.last().unwrap().1 - all[0].0);
    println!(
        "{version}, {kind}: while all ran Java had {j} holds and Rust {r}, at most {longest} in a row; all in {time:?}"
    );
    // One hold for each waiter of the client, after the one that it acquired.
    let bound = MAX_IN_ROW.min(tasks as u32 / 2) + 1;
    assert!(longest <= bound, "{version}, {kind}: a client kept the lock for {longest} holds");
}

/// The longest series of holds of one Rust client while Java waits. A client ends a series by leaving the lock free for
/// others for [`HandOff::pause`], whether or not one comes.
fn longest_series(rust: &[Vec<(u64, u64)>], javas: &[Vec<(u64, u64)>], tasks_each: usize, until: u64) -> u32 {
    let pause = PAUSE.as_nanos() as u64;
    let of_rust = rust
        .iter()
        .zip(0..)
        .flat_map(|(holds, n)| holds.iter().map(move |hold| (*hold, Some(n / tasks_each))));
    let of_java = javas.iter().flatten().map(|hold| (*hold, None));
    let mut all: Vec<_> = of_rust.chain(of_java).filter(|(hold, _)| hold.1 <= until).collect();
    all.sort_unstable();
    // Java waits from its first hold on.
    let first = all.iter().position(|(_, client)| client.is_none()).unwrap_or(all.len());
    let (mut longest, mut series, mut last) = (0, 0, (0, None));
    for ((start, end), client) in all.into_iter().skip(first) {
        let goes_on = client.is_some() && client == last.1 && start < last.0 + pause;
        series = if goes_on { series + 1 } else { u32::from(client.is_some()) };
        (longest, last) = (longest.max(series), (end, client));
    }
    longest
}

/// A series of hand-offs, or of permits that pass, ends with a message.
#[tokio::test]
async fn tasks_that_pass_a_lock_on_leave_turns_to_other_clients() {
    const PROMPT: Duration = Duration::from_millis(500);
    for kind in [Kind::Reentrant, Kind::Fenced, Kind::Fair, Kind::Value, Kind::Semaphore, Kind::Permit] {
        let server = kind.server("n");
        let (one, other) = (ClientSet::of(kind, &server).await, ClientSet::of(kind, &server).await);
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let lock = kind.of(&one, "n").with_owner(&Owner::unique());
            tasks.spawn(async move {
                loop {
                    let held = lock.lock().await.unwrap();
                    tokio::task::yield_now().await;
                    held.unlock().await.unwrap();
                }
            });
        }
        eventually(|| one.stats().waiting == 7).await;
        let lock = kind.of(&other, "n");
        for _ in 0..10 {
            let asked = Stopwatch::start();
            let held = lock.try_lock_for(PROMPT * 40).await.unwrap().expect("a turn");
            assert!(asked.elapsed() < PROMPT, "{kind}: {:?}", asked.elapsed());
            held.unlock().await.unwrap();
        }
    }
}
