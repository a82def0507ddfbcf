//! The lock among Rust tasks, without Java: owners, crowds, time limits, cancellation.

use crate::support::proxy::{Direction, Proxy, ProxyLink, Words};
use crate::support::raw::NAME;
use crate::support::{FaultyClient, Java, Server, Stopwatch, eventually, subscribers, versions};
use futures_util::poll;
use redisson_lock::{Client, Error, HandOff, HoldState, Lock, LockGuard, LossReason, Owner};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

const CHANNEL: &str = "redisson_lock__channel:{n}";
/// The lease of holds that the tests see renewed or lost. Two thirds of it are left when a renewal is due.
const WATCHDOG: Duration = Duration::from_millis(900);

async fn outer(lock: &Lock) -> u64 {
    let guard = lock.lock().await.unwrap();
    tokio::task::yield_now().await;
    let deepest = middle(lock).await;
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    guard.unlock().await.unwrap();
    deepest
}

async fn middle(lock: &Lock) -> u64 {
    let guard = lock.try_lock().await.unwrap().expect("the task holds the lock");
    let deepest = inner(lock).await;
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    guard.unlock().await.unwrap();
    deepest
}

async fn inner(lock: &Lock) -> u64 {
    let guard = lock.try_lock_for(Duration::from_secs(1)).await.unwrap().expect("the task holds the lock");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let count = lock.hold_count().await.unwrap();
    guard.unlock().await.unwrap();
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_re_enters_across_functions_and_awaits() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    assert_eq!(outer(&lock).await, 3);
    assert!(!exists(&server, "n"));
}

/// The owner id under which the calling task or thread acquires `lock`.
async fn current_owner(lock: &Lock) -> String {
    let guard = lock.lock().await.unwrap();
    let owner = guard.owner().to_owned();
    guard.unlock().await.unwrap();
    owner
}

#[test]
fn every_task_and_thread_is_a_separate_owner() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(server.url())).unwrap();
    let second = runtime.block_on(Client::connect(server.url())).unwrap();
    let lock = client.lock("n");
    let mut owners = Vec::new();

    owners.push(runtime.block_on(current_owner(&lock)));
    assert_eq!(runtime.block_on(current_owner(&lock)), owners[0], "one thread, one owner");
    for _ in 0..2 {
        let lock = lock.clone();
        owners.push(
            runtime
                .block_on(async { tokio::spawn(async move { current_owner(&lock).await }).await.unwrap() }),
        );
    }
    let blocking = |lock: Lock, handle: tokio::runtime::Handle| move || handle.block_on(current_owner(&lock));
    let in_pool = runtime.spawn_blocking(blocking(lock.clone(), runtime.handle().clone()));
    owners.push(runtime.block_on(in_pool).unwrap());
    owners.push(std::thread::spawn(blocking(lock.clone(), runtime.handle().clone())).join().unwrap());
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    let elsewhere = lock.clone();
    owners.push(local.block_on(&single, async {
        tokio::task::spawn_local(async move { current_owner(&elsewhere).await }).await.unwrap()
    }));
    let elsewhere = lock.clone();
    owners.push(
        single
            .block_on(async { tokio::spawn(async move { current_owner(&elsewhere).await }).await.unwrap() }),
    );
    owners.push(runtime.block_on(current_owner(&second.lock("n"))));
    owners.push(runtime.block_on(current_owner(&lock.with_owner(&Owner::new("1").unwrap()))));
    owners.push(runtime.block_on(current_owner(&lock.with_owner(&Owner::unique()))));
    // The root future of `block_on` belongs to its thread, whichever runtime runs it.
    assert_eq!(single.block_on(current_owner(&lock)), owners[0]);

    let different: BTreeSet<_> = owners.iter().collect();
    assert_eq!(different.len(), owners.len(), "{owners:#?}");
    assert!(owners.iter().all(|owner| owner.split(':').count() == 2 && !owner.contains('~')), "{owners:?}");
}

/// The key actor has seen all waiters when the re-entry comes.
#[tokio::test]
async fn a_holder_re_enters_while_another_task_waits() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let outer = lock.lock().await.unwrap();
    let other = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().unlock().await }
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    let inner = lock.try_lock_for(Duration::from_secs(5)).await.unwrap().expect("a re-entry does not wait");
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    other.await.unwrap().unwrap();
}

#[tokio::test]
async fn owners_exclude_each_other_whatever_their_kind() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let owner = Owner::new("job").unwrap();
    let guard = lock.with_owner(&owner).lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(!lock.is_held().await.unwrap() && lock.with_owner(&owner).is_held().await.unwrap());
    // Ownership spans tasks: a guard keeps its owner when it moves to another task.
    let elsewhere = lock.with_owner(&owner);
    let inner = tokio::spawn(async move { elsewhere.try_lock().await.unwrap().expect("the same owner") })
        .await
        .unwrap();
    assert_eq!(lock.with_owner(&owner).hold_count().await.unwrap(), 2);
    tokio::spawn(guard.unlock()).await.unwrap().unwrap();
    assert_eq!(lock.with_owner(&owner).hold_count().await.unwrap(), 1);
    inner.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_tasks_are_served_in_order_over_one_subscription() {
    const TASKS: usize = 5000;
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let guard = other.lock("n").lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        let (lock, served) = (client.lock("n"), served.clone());
        let (queued, in_queue) = tokio::sync::oneshot::channel();
        tasks.spawn(async move {
            let mut locking = std::pin::pin!(lock.lock());
            // The first poll joins the queue. Only then does the next task start.
            assert!(poll!(locking.as_mut()).is_pending());
            queued.send(()).unwrap();
            let guard = locking.await.unwrap();
            served.lock().unwrap().push(n);
            guard.unlock().await.unwrap();
        });
        in_queue.await.unwrap();
    }
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.commandstats_reset();
    guard.unlock().await.unwrap();
    tasks.join_all().await;
    let scripts = server.scripts() as f64 / TASKS as f64;
    println!("{scripts:.3} scripts per hold");
    assert_eq!(*served.lock().unwrap(), (0..TASKS).collect::<Vec<_>>());
    assert!(scripts <= 1.2, "{scripts} scripts per hold");
    eventually(|| subscribers(&server, CHANNEL) == 0).await;
}

/// Each release that the end of the runtime cuts short closes the client. All these closes together may visit each lock a few
/// times; a single close must not visit all of them.
#[test]
fn ending_a_runtime_with_many_holds_is_fast() {
    const KEYS: usize = 20_000;
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let guards = runtime.block_on(async {
        let client = Client::connect(server.url()).await.unwrap();
        let mut tasks = JoinSet::new();
        for first in 0..64 {
            let client = client.clone();
            tasks.spawn(async move {
                let mut guards = Vec::new();
                for key in (first..KEYS).step_by(64) {
                    guards.push(client.lock(format!("n{key}")).lock().await.unwrap());
                }
                guards
            });
        }
        tasks.join_all().await
    });
    // The server no longer answers.
    server.stop_signal();
    drop(guards);
    let ending = Stopwatch::start();
    drop(runtime);
    let took = ending.elapsed();
    server.cont();
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keys_leave_no_subscription_and_no_task_behind() {
    const KEYS: usize = 1000;
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let metrics = tokio::runtime::Handle::current().metrics();
    let channels = || {
        let all: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).unwrap();
        all.len()
    };
    // Once each client has waited for the other, the tasks of all connections are running.
    for (holder, waiter) in [(&client, &other), (&other, &client)] {
        let held = holder.lock("n").lock().await.unwrap();
        let waiting = tokio::spawn({
            let lock = waiter.lock("n");
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        held.unlock().await.unwrap();
        waiting.await.unwrap();
    }
    eventually(|| channels() == 0).await;
    // Each of the two clients has six tasks: two connections, a task that serves each of them, the watchdog, and the task that
    // starts the releases of dropped guards.
    let at_rest = 2 * 6;
    eventually(|| metrics.num_alive_tasks() == at_rest).await;
    let mut guards = Vec::new();
    for key in 0..KEYS {
        guards.push(other.lock(format!("n{key}")).lock().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for key in 0..KEYS {
        for _ in 0..10 {
            let lock = client.lock(format!("n{key}"));
            tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
        }
    }
    eventually(|| channels() == KEYS).await;
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
        assert!(tasks.len() % 1000 != 0 || channels() <= KEYS);
    }
    eventually(|| channels() == 0).await;
    eventually(|| metrics.num_alive_tasks() == at_rest).await;
    let left: usize = redis::cmd("DBSIZE").query(&mut server.cli()).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_on_time_even_if_the_server_is_stopped() {
    let server = Server::start();
    let response = Duration::from_millis(800);
    let client = Client::builder().response_timeout(response).connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let guard = other.lock("n").lock().await.unwrap();
    let lock = client.lock("n");
    let slack = Duration::from_millis(50);

    // The last wait is longer than a stall of this machine, and shorter than the response timeout.
    for wait in [0, 1, 20, 700].map(Duration::from_millis) {
        let started = Stopwatch::start();
        let outcome = lock.try_lock_for(wait).await;
        // Without a wait there is one attempt, which takes as long as the server.
        let in_time = started.is_within(wait..if wait.is_zero() { response + slack } else { wait + slack });
        // On a busy machine the server may not answer within so short a wait. That error differs from a busy lock.
        let unanswered = matches!(outcome, Err(Error::TimedOut { .. })) && !wait.is_zero() && wait < slack;
        assert!(matches!(outcome, Ok(None)) || unanswered, "{wait:?}: {outcome:?}");
        assert!(in_time, "{wait:?}: {started:?}");
    }

    server.stop_signal();
    for wait in [20, 300].map(Duration::from_millis) {
        let started = Stopwatch::start();
        let outcome = lock.try_lock_for(wait).await;
        let in_time = started.is_within(wait..wait + slack);
        // The server's previous answer stays valid for a moment.
        let known_busy = matches!(outcome, Ok(None)) && wait < slack;
        assert!(matches!(outcome, Err(Error::TimedOut { .. })) || known_busy, "{wait:?}: {outcome:?}");
        assert!(in_time, "{wait:?}: {started:?}");
    }
    for probe in [
        tokio::spawn({
            let lock = lock.clone();
            async move { lock.try_lock().await.map(drop) }
        }),
        tokio::spawn({
            let lock = lock.clone();
            async move { lock.is_locked().await.map(drop) }
        }),
        tokio::spawn({
            let lock = lock.clone();
            async move { lock.force_unlock().await.map(drop) }
        }),
    ] {
        let started = Stopwatch::start();
        let outcome = probe.await.unwrap();
        assert!(outcome.is_err() && started.elapsed() < response + slack, "{outcome:?}");
    }
    server.cont();
    // The client undoes the requests that the stopped server ran late, so none of them leaves a hold behind.
    let _ = guard.unlock().await;
    let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap().expect("free again");
    guard.unlock().await.unwrap();
    eventually(|| !exists(&server, "n")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_acquires_the_lock_when_the_holders_lease_expires() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lease = Duration::from_millis(700);
    let guard = client.lock("n").with_lease(lease).lock().await.unwrap();
    let started = Stopwatch::start();
    let other = Client::connect(server.url()).await.unwrap();
    let second = other
        .lock("n")
        .try_lock_for(Duration::from_secs(10))
        .await
        .unwrap()
        .expect("the holder's lease expires");
    let took = started.elapsed();
    assert!(took < lease + Duration::from_millis(500), "{took:?}");
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Expired));
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { holder: Some(_), .. })));
    assert_eq!(second.state(), HoldState::Held);
    second.unlock().await.unwrap();
}

/// A watch that leaves out the stalls of this runtime, too.
fn watch_in(runtime: &tokio::runtime::Runtime) -> Stopwatch {
    let _entered = runtime.enter();
    Stopwatch::start()
}

#[test]
fn a_dropped_guard_releases_inside_and_outside_a_runtime_and_in_a_panic() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = runtime.block_on(Client::connect(server.url())).unwrap();
    let lock = client.lock("n");
    let drops: [fn(LockGuard, &tokio::runtime::Runtime); 4] = [
        |guard, runtime| runtime.block_on(async move { drop(guard) }),
        |guard, _| drop(guard),
        |guard, _| std::thread::spawn(move || drop(guard)).join().unwrap(),
        |guard, runtime| {
            let panicking = async move {
                let _guard = guard;
                // `resume_unwind` skips the panic report: a backtrace may take longer than the limit below.
                std::panic::resume_unwind(Box::new("on purpose"));
            };
            runtime.block_on(async { tokio::spawn(panicking).await.unwrap_err() });
        },
    ];
    for (n, drop_it) in drops.into_iter().enumerate() {
        let guard = runtime.block_on(lock.lock()).unwrap();
        let dropped = watch_in(&runtime);
        drop_it(guard, &runtime);
        while exists(&server, "n") {
            assert!(dropped.elapsed() < Duration::from_millis(100), "drop {n} did not release the lock");
        }
    }
}

#[test]
fn the_end_of_a_runtime_closes_its_client_and_no_other() {
    let server = Server::start();
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ours = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let lease = Duration::from_millis(600);
    let client = theirs.block_on(Client::builder().watchdog_timeout(lease).connect(server.url())).unwrap();
    let other = ours.block_on(Client::connect(server.url())).unwrap();
    let held = ours.block_on(client.lock("held").lock()).unwrap();
    let dropped_late = ours.block_on(client.lock("dropped").lock()).unwrap();
    let busy = ours.block_on(other.lock("busy").lock()).unwrap();
    let waiting = ours.spawn({
        let lock = client.lock("busy");
        async move { lock.lock().await }
    });
    ours.block_on(eventually(|| subscribers(&server, "redisson_lock__channel:{busy}") == 1));

    drop(theirs);
    let outcome =
        ours.block_on(async { tokio::time::timeout(Duration::from_secs(1), waiting).await }).unwrap();
    assert!(matches!(outcome.unwrap(), Err(Error::Closed { .. })));
    assert!(matches!(ours.block_on(client.lock("x").lock()), Err(Error::Closed { .. })));
    assert_ne!(held.state(), HoldState::Held);
    let started = watch_in(&ours);
    assert_eq!(ours.block_on(held.lost()), HoldState::Lost(LossReason::Expired));
    // The state itself is exact. A timer wakes `lost()`, so it may return slightly later.
    assert!(started.elapsed() <= lease + Duration::from_millis(50), "{:?}", started.elapsed());
    drop(dropped_late);
    assert!(ours.block_on(held.unlock()).is_err());
    ours.block_on(eventually(|| !exists(&server, "held") && !exists(&server, "dropped")));
    ours.block_on(busy.unlock()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn close_finishes_pending_releases_and_refuses_other_calls() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let busy = other.lock("n").lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("n");
        async move { lock.lock().await.map(drop) }
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    let kept = client.lock("kept").with_lease(Duration::from_millis(500)).lock().await.unwrap();
    drop(client.lock("dropped").lock().await.unwrap());
    client.close().await;
    assert!(!exists(&server, "dropped"), "close did not wait for a release");
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
    assert!(matches!(client.lock("n").try_lock().await, Err(Error::Closed { .. })));
    assert!(matches!(kept.unlock().await, Err(Error::Closed { .. })));
    eventually(|| !exists(&server, "kept")).await;
    busy.unlock().await.unwrap();
}

#[tokio::test]
async fn every_handle_reports_its_name_in_redis() {
    let server = Server::start();
    let client = Client::builder()
        .name_mapper(|name| if name.is_empty() { String::new() } else { format!("app:{name}") })
        .connect(server.url())
        .await
        .unwrap();
    let both = client.read_write_lock("n");
    let (permits, leased) = (client.semaphore("n"), client.expirable_semaphore("n"));
    let latch = client.count_down_latch("n");
    let (lock, entry) = (client.lock("n"), client.map_entry("m", "k").lock());
    for name in [lock.name(), both.name(), both.write().name(), permits.name(), leased.name(), latch.name()] {
        assert_eq!(name, "app:n");
    }
    assert!(entry.name().contains("app:m") && entry.name().ends_with(":lock"), "{}", entry.name());
    assert_eq!(client.lock("").name(), "");
    let guard = lock.lock().await.unwrap();
    let exists: bool = redis::cmd("EXISTS").arg(lock.name()).query(&mut server.cli()).unwrap();
    assert!(exists && guard.name() == lock.name());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn the_record_shows_the_name_of_an_explicit_owner() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let (run, other) = (Owner::unique_named("nightly").unwrap(), Owner::unique_named("nightly").unwrap());
    let lock = client.lock("n").with_owner(&run);
    let guard = lock.lock().await.unwrap();
    assert_eq!(lock.holder().await.unwrap().unwrap().owner(), format!("{}:owner-{run}", client.id()));
    assert!(client.lock("n").with_owner(&other).try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_status_reports_the_hold_and_does_not_keep_it() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.mutex("n").lock().await.unwrap();
    let status = guard.status();
    // Neither future borrows the guard.
    let (spawned, lost) = (tokio::spawn(guard.lost()), tokio::spawn(status.clone().lost()));
    assert_eq!((status.state(), status.owner()), (HoldState::Held, guard.owner()));
    assert_eq!(status.members().iter().map(|member| member.owner()).collect::<Vec<_>>(), [guard.owner()]);
    assert!(status.validity() > Duration::ZERO && status.validity() <= Duration::from_secs(30));
    drop(guard);
    assert_eq!((spawned.await.unwrap(), lost.await.unwrap()), (HoldState::Released, HoldState::Released));
    assert_eq!((status.state(), status.validity()), (HoldState::Released, Duration::ZERO));
    client.mutex("n").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_empty_is_reported_and_used() {
    let mut server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let watched = client.lock("watched").lock().await.unwrap();
    let fixed = client.lock("fixed").with_lease(Duration::from_secs(60)).lock().await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let blocker = other.lock("n").lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("n");
        async move { lock.lock().await.unwrap() }
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;

    server.kill();
    let mut states = watched.status().states();
    while states.next().await.unwrap() == HoldState::Held {}
    server.restart();
    let back = Stopwatch::start();
    let guard = client.lock("new").lock().await.unwrap();
    assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
    guard.unlock().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(back.elapsed() < Duration::from_secs(2), "the waiter took {:?}", back.elapsed());
    guard.unlock().await.unwrap();
    assert_eq!(watched.lost().await, HoldState::Lost(LossReason::DataLost));
    assert_eq!(fixed.lost().await, HoldState::Lost(LossReason::DataLost));
    for old in [watched, fixed, blocker] {
        assert!(old.unlock().await.unwrap_err().is_lost());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_scripts_cost_a_round_trip_but_no_failure() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flushing = std::thread::spawn({
        let (mut cli, stop) = (server.cli(), stop.clone());
        move || {
            let mut flushes = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut cli).unwrap();
                flushes += 1;
            }
            flushes
        }
    });
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let lock = client.lock(format!("n{}", task % 2));
        tasks.spawn(async move {
            for _ in 0..200 {
                let guard = lock.lock().await.unwrap();
                let again = lock.lock().await.unwrap();
                again.unlock().await.unwrap();
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(flushing.join().unwrap() > 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_and_relock_ten_thousand_times_keeps_the_count() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let mut cancelled = 0;
    for round in 0..10_000_u64 {
        if round % 2 == 0 {
            // Drop the future right after it joins the queue, or up to 400 us later: its request is then unsent, in flight
            // or answered.
            let mut locking = std::pin::pin!(lock.lock());
            cancelled += u32::from(poll!(locking.as_mut()).is_pending());
            let under_way = Instant::now();
            while under_way.elapsed() < Duration::from_micros(round / 2 % 20 * 20) {
                tokio::task::yield_now().await;
            }
        }
        let guard = lock.lock().await.unwrap();
        if round % 100 == 0 {
            assert_eq!(lock.hold_count().await.unwrap(), 1, "round {round}");
        }
        assert_eq!(guard.state(), HoldState::Held);
        drop(guard);
    }
    // If the thread was delayed, the first poll may already have acquired the lock. That hold is dropped, too.
    assert!(cancelled > 2500, "{cancelled}");
    eventually(|| !exists(&server, "n")).await;
    let guard = lock.lock().await.unwrap();
    assert!(!guard.owner().contains('~'), "the owner id was rotated: {}", guard.owner());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_short_lease_inside_a_watchdog_hold_does_not_shorten_it() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    let inner = lock.with_lease(Duration::from_millis(100)).lock().await.unwrap();
    assert!(lock.remaining_lease().await.unwrap().unwrap() > Duration::from_secs(29));
    inner.unlock().await.unwrap();
    assert!(lock.remaining_lease().await.unwrap().unwrap() > Duration::from_secs(29));
    assert_eq!((guard.state(), lock.hold_count().await.unwrap()), (HoldState::Held, 1));
    guard.unlock().await.unwrap();

    // With the levels reversed, the watchdog renews only while its own level is held.
    let client = Client::builder().watchdog_timeout(WATCHDOG).connect(server.url()).await.unwrap();
    let lock = client.lock("m");
    let fixed = lock.with_lease(WATCHDOG * 4 / 3).lock().await.unwrap();
    let ends = fixed.deadline();
    let watched = lock.lock().await.unwrap();
    tokio::time::sleep_until(ends.into()).await;
    assert_eq!(fixed.state(), HoldState::Held, "the watchdog did not renew the hold for its level");
    watched.unlock().await.unwrap();
    let left = fixed.deadline().saturating_duration_since(Instant::now());
    let ended = tokio::time::timeout(left + Duration::from_millis(100), fixed.lost()).await;
    assert_eq!(ended, Ok(HoldState::Lost(LossReason::Expired)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_branches_of_one_task_is_refused_behind_java() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        java.lock("plain", "n").await.unwrap();
        let lock = client.lock("n");
        let both = tokio::spawn(async move {
            let branch = || async {
                let guard = lock.lock().await?;
                let count = lock.hold_count().await?;
                guard.unlock().await.map(|()| count)
            };
            tokio::join!(branch(), branch())
        });
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        java.unlock("plain", "n").await.unwrap();
        let both = tokio::time::timeout(Duration::from_secs(5), both).await.expect("deadlock").unwrap();
        assert!(matches!(both, (Ok(1), Err(Error::Misuse { .. }))), "{version}: {both:?}");
        assert!(java.try_lock("plain", "n").await.unwrap());
        java.unlock("plain", "n").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_returns_its_bodys_result_and_cancels_the_body_on_loss() {
    let server = Server::start();
    let client = Client::builder().watchdog_timeout(WATCHDOG).connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let inside = lock.run(|status| async move { (status.state(), 42) }).await.unwrap();
    assert_eq!(inside, (HoldState::Held, 42));
    assert!(!lock.is_locked().await.unwrap());

    struct SetOnDrop(Arc<std::sync::atomic::AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let witness = SetOnDrop(dropped.clone());
    let forcing = client.lock("n");
    let outcome = lock
        .run(|_| async move {
            let _witness = witness;
            forcing.force_unlock().await.unwrap();
            std::future::pending::<()>().await
        })
        .await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert!(dropped.load(std::sync::atomic::Ordering::SeqCst), "the body was not cancelled");
    assert!(lock.try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn try_run_for_runs_only_with_the_lock_and_limits_only_the_wait() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let (mutex, wait) = (client.mutex("n"), Duration::from_millis(500));
    let guard = mutex.lock().await.unwrap();
    assert_eq!(mutex.try_run_for(wait, |_| async { panic!("it is busy") }).await.unwrap(), None::<()>);
    guard.unlock().await.unwrap();
    // The body takes longer than the wait.
    let slow = mutex.try_run_for(wait, |holding| async move {
        tokio::time::sleep(wait * 2).await;
        holding.state()
    });
    assert_eq!(slow.await.unwrap(), Some(HoldState::Held));
    assert!(!mutex.is_locked().await.unwrap());
    assert!(matches!(mutex.try_run_for(Duration::MAX, |_| async {}).await, Err(Error::Misuse { .. })));
    // The loss cancels the body.
    let client = Client::builder().watchdog_timeout(WATCHDOG).connect(server.url()).await.unwrap();
    let (mutex, forcing) = (client.mutex("n"), client.mutex("n"));
    let outcome = mutex.try_run_for(wait, |_| async move {
        forcing.force_unlock().await.unwrap();
        std::future::pending::<()>().await
    });
    assert!(matches!(outcome.await, Err(Error::Lost { reason: LossReason::Gone, .. })));
    // Multi locks run in the same way.
    let multi = redisson_lock::MultiLock::new([client.mutex("n"), client.mutex("m")]).unwrap();
    let guard = mutex.lock().await.unwrap();
    assert_eq!(multi.try_run_for(wait, |_| async { panic!("it is busy") }).await.unwrap(), None::<()>);
    guard.unlock().await.unwrap();
    let members = multi.try_run_for(wait * 20, |holding| async move { holding.members().len() });
    assert_eq!(members.await.unwrap(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_states_reports_each_state_and_ends() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let mut states = guard.status().states();
    assert_eq!(states.next().await, Some(HoldState::Held));
    // No new connection is established before the stream has reported the loss of the old one.
    proxy.shut_gate_after(0, |_| true);
    proxy.open_links().iter().for_each(ProxyLink::cut);
    assert_eq!(states.next().await, Some(HoldState::Suspect));
    proxy.open_gate();
    assert_eq!(states.next().await, Some(HoldState::Held));
    guard.unlock().await.unwrap();
    assert_eq!(states.next().await, Some(HoldState::Released));
    assert_eq!(states.next().await, None);
    assert_eq!(states.next().await, None);
}

#[tokio::test]
async fn database_password_name_mapper_and_client_id_are_applied() {
    let server = Server::with_args(&["--requirepass", "canary-in-a-coal-mine"]);
    let url = format!("redis://default:canary-in-a-coal-mine@{}/3", server.address());
    let id = uuid::Uuid::new_v4();
    let client = Client::builder()
        .client_id(id)
        .name_mapper(|name| format!("app:{name}"))
        .connect(&url)
        .await
        .unwrap();
    assert!(!format!("{client:?} {:?}", client.lock("n")).contains("canary-in-a-coal-mine"));
    let guard = client.lock("n").lock().await.unwrap();
    assert_eq!(guard.name(), "app:n");
    assert!(guard.owner().starts_with(&format!("{id}:")));
    let mut cli = redis::Client::open(url).unwrap().get_connection().unwrap();
    assert!(redis::cmd("HEXISTS").arg("app:n").arg(guard.owner()).query::<bool>(&mut cli).unwrap());
    guard.unlock().await.unwrap();
}

/// Two clients of one builder have different ids and exclude each other.
#[tokio::test]
async fn a_builder_that_is_used_twice_makes_two_clients() {
    let server = Server::start();
    let builder = Client::builder();
    let one = builder.clone().connect(server.url()).await.unwrap();
    let two = builder.connect(server.url()).await.unwrap();
    assert_ne!(one.id(), two.id());
    let guard = one.lock("n").lock().await.unwrap();
    assert!(two.lock("n").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_client_connects_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("redisson-lock-{}.sock", uuid::Uuid::new_v4()));
    let path = path.to_str().unwrap();
    let _server = Server::with_args(&["--unixsocket", path]);
    let client = Client::connect(format!("redis+unix://{path}")).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    assert!(client.lock("n").is_held().await.unwrap());
    guard.unlock().await.unwrap();
}

fn exists(server: &Server, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(&mut server.cli()).unwrap()
}

/// Closing a client waits for the reply to an unlock. It does not wait for an acquire.
#[tokio::test]
async fn closing_waits_for_a_release_in_flight_and_not_for_an_acquire() {
    let bench = FaultyClient::of(Client::builder()).await;
    let guard = bench.client.mutex(NAME).lock().await.unwrap();
    bench.link.hold(Direction::ToServer);
    let mut releasing = pin!(guard.unlock());
    assert!(poll!(releasing.as_mut()).is_pending());
    let mut closing = pin!(bench.client.close());
    assert!(poll!(closing.as_mut()).is_pending(), "closed before the reply");
    bench.link.pass(Direction::ToServer);
    releasing.await.unwrap();
    closing.await;
    bench.raw.assert_nothing_else_left(&[]).await;

    let bench = FaultyClient::of(Client::builder()).await;
    let mutex = bench.client.mutex(NAME);
    bench.link.hold(Direction::ToServer);
    let mut acquiring = pin!(mutex.lock());
    assert!(poll!(acquiring.as_mut()).is_pending());
    assert!(poll!(pin!(bench.client.close())).is_ready(), "closing waits for an acquire");
    let error = acquiring.await.unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
}

fn names_the_lock(words: &Words) -> bool {
    words.iter().any(|word| word == NAME.as_bytes())
}

/// The client asks about a busy lock less and less often, but it asks soon for a caller that has just come.
#[tokio::test]
async fn a_short_wait_behind_an_old_waiter_ends_as_busy() {
    let bench = FaultyClient::of(Client::builder()).await;
    let other = Client::connect(bench.server.url()).await.unwrap();
    let guard = other.mutex(NAME).lock().await.unwrap();
    let mutex = bench.client.mutex(NAME);
    let started = Instant::now();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    // After that many requests, the client waits for more than 200 ms before the next one.
    bench.link.answered(10, names_the_lock).await;
    assert!(started.elapsed() > Duration::from_millis(500), "asked ten times in {:?}", started.elapsed());
    // A reply of the last 15 ms would count for the next caller.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let asked = bench.link.count(names_the_lock);
    let started = Stopwatch::start();
    // Long enough for the reply to arrive, even if this machine stalls for a moment.
    let next = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(1)).await });
    bench.link.asked(asked + 1, names_the_lock).await;
    assert!(started.elapsed() < Duration::from_millis(200), "asked for the next caller after {started:?}");
    assert!(next.await.unwrap().unwrap().is_none());
    waiting.abort();
    guard.unlock().await.unwrap();
}

/// A hand-off gives the record the lease of the next owner, which must not end before the lease that it has.
#[tokio::test]
async fn a_lock_with_a_longer_lease_is_freed_and_not_handed_on() {
    // The time that the client has had the lock does not count.
    let bounds = HandOff::new().max_time_alone(Duration::from_secs(60));
    let bench = FaultyClient::of(Client::builder().hand_off(bounds)).await;
    let mutex = bench.client.mutex(NAME);
    for (lease, freed) in [(5, 0), (60, 1)] {
        let guard = mutex.with_lease(Duration::from_secs(lease)).lock().await.unwrap();
        let next = mutex.with_lease(Duration::from_secs(5));
        let mut waiting = pin!(next.lock());
        assert!(poll!(waiting.as_mut()).is_pending());
        guard.unlock().await.unwrap();
        let next = waiting.await.unwrap();
        assert_eq!(bench.raw.messages_on(CHANNEL).len(), freed, "{lease} s");
        next.unlock().await.unwrap();
        bench.raw.messages();
    }
}

/// A program may have many waiters, each of which stores the future of its call.
#[tokio::test]
async fn the_futures_of_lock_and_unlock_are_small() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let locking = lock.lock();
    assert!(size_of_val(&locking) <= 768, "{} bytes", size_of_val(&locking));
    let unlocking = locking.await.unwrap().unlock();
    assert!(size_of_val(&unlocking) <= 640, "{} bytes", size_of_val(&unlocking));
    unlocking.await.unwrap();
}
