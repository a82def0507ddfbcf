//! Many futures and tasks dropped at arbitrary times: branches of `select!`, aborted tasks, and runtimes that end.
//! `cancellation` drops one future at a time, at each of its points.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, Lock};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::drop_point::{
    ClientRuntime, CutAt, DropBench, DropPoint, NAME, PATIENCE, Tally, at_frame, has_fixed_order, prompt,
    shut_gate, soon,
};
use crate::support::{Proxy, Stopwatch};

/// Ticks every few hundred microseconds; the timers of a runtime are coarser.
#[derive(Clone)]
struct Ticks(watch::Receiver<u64>);

impl Ticks {
    fn start() -> Self {
        let (sender, receiver) = watch::channel(0);
        std::thread::spawn(move || {
            for tick in 1.. {
                std::thread::sleep(Duration::from_micros(150));
                if sender.send(tick).is_err() {
                    break;
                }
            }
        });
        Self(receiver)
    }

    async fn wait(&mut self, count: usize) {
        for _ in 0..count {
            self.0.changed().await.expect("the ticking thread runs while a receiver exists");
        }
    }
}

fn drop_point(function: &'static str, position: &'static str, n: usize) -> DropPoint {
    DropPoint { function, position, cut: CutAt::Polls(n) }
}

#[tokio::test(flavor = "multi_thread")]
async fn select_loops_of_two_clients_leave_nothing_behind() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 150;
    let bench = DropBench::start().await;
    let ticks = Ticks::start();
    let inside = Arc::new(AtomicBool::new(false));
    let (waits, releases) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = if task % 2 == 0 { &bench.near } else { &bench.far };
        let (lock, inside, mut ticks) = (client.lock(NAME), inside.clone(), ticks.clone());
        let (waits, releases) = (waits.clone(), releases.clone());
        tasks.spawn(async move {
            let mut served = 0;
            for round in 0..ROUNDS {
                let guard = tokio::select! {
                    guard = lock.lock() => guard.unwrap(),
                    () = ticks.wait(1 + (round * 7 + task * 3) % 16) => {
                        waits.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                };
                assert!(!inside.swap(true, Ordering::SeqCst), "two tasks hold the lock");
                tokio::task::yield_now().await;
                assert_eq!(guard.state(), HoldState::Held);
                assert!(inside.swap(false, Ordering::SeqCst));
                served += 1;
                tokio::select! {
                    outcome = guard.unlock() => outcome.unwrap(),
                    () = ticks.wait(1 + round % 12) => {
                        releases.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            served
        });
    }
    let served: usize = tasks.join_all().await.iter().sum();
    let (waits, releases) = (waits.load(Ordering::Relaxed), releases.load(Ordering::Relaxed));
    println!("select!: {waits} waits and {releases} releases dropped, {served} served");
    let end = drop_point("lock", "select!", waits);
    bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
    bench.at_rest(&end).await;
    bench.assert_no_renewal().await;
    assert_eq!(waits + served, TASKS * ROUNDS);
    assert!(waits > 100 && served > 50 && releases > 0, "{waits} {served} {releases}");
}

/// Acquires the lock twice and releases it, in an endless loop.
async fn lock_for_ever(lock: Lock, taken: watch::Sender<usize>) {
    loop {
        let guard = lock.lock().await.unwrap();
        let again = lock.try_lock().await.unwrap().expect("the task holds the lock");
        taken.send_modify(|taken| *taken += 1);
        again.unlock().await.unwrap();
        drop(guard);
    }
}

/// In every second round, waits until a task has acquired the lock in that round. The other rounds do not wait.
async fn wait_until_taken(taken: &watch::Sender<usize>, before: usize, round: usize) {
    if round.is_multiple_of(2) {
        let mut taken = taken.subscribe();
        let taken = tokio::time::timeout(PATIENCE, taken.wait_for(|&taken| taken > before)).await;
        drop(taken.expect("no task acquires the lock"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_tasks_leave_nothing_behind() {
    const ROUNDS: usize = 60;
    let bench = DropBench::start().await;
    let mut ticks = Ticks::start();
    let (taken, mut aborted) = (watch::Sender::new(0), 0);
    for round in 0..ROUNDS {
        let before = *taken.borrow();
        let clients = [&bench.near, &bench.near, &bench.near, &bench.far, &bench.far];
        let takers: Vec<JoinHandle<()>> =
            clients.map(|client| tokio::spawn(lock_for_ever(client.lock(NAME), taken.clone()))).into();
        wait_until_taken(&taken, before, round).await;
        for taker in &takers {
            ticks.wait(round % 7).await;
            taker.abort();
        }
        for taker in takers {
            assert!(taker.await.unwrap_err().is_cancelled());
            aborted += 1;
        }
        let end = drop_point("lock", "aborted", round);
        bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
        bench.at_rest(&end).await;
    }
    bench.assert_no_renewal().await;
    let taken = *taken.borrow();
    println!("abort: {aborted} tasks, which had acquired the lock {taken} times");
    assert!(aborted == ROUNDS * 5 && taken >= ROUNDS / 2, "{aborted} {taken}");
}

/// The runtime of the callers ends, but not the runtime of their client.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_callers_runtime_leaves_nothing_behind() {
    const ROUNDS: usize = 30;
    let bench = DropBench::start().await;
    let mut ticks = Ticks::start();
    let taken = watch::Sender::new(0);
    for round in 0..ROUNDS {
        let (callers, before) = (ClientRuntime::new(), *taken.borrow());
        for _ in 0..4 {
            callers.handle().spawn(lock_for_ever(bench.near.lock(NAME), taken.clone()));
        }
        wait_until_taken(&taken, before, round).await;
        ticks.wait(round % 7).await;
        callers.end().await;
        let end = drop_point("lock", "its runtime ends", round);
        bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
        bench.at_rest(&end).await;
    }
    bench.assert_no_renewal().await;
    let taken = *taken.borrow();
    println!("runtimes of callers: {ROUNDS} ended, whose tasks had acquired the lock {taken} times");
    assert!(taken >= ROUNDS / 2, "{taken}");
}

/// The client's own runtime ends before or after each frame. The caller gets an error, and the lease frees a lock that it had acquired.
#[tokio::test]
async fn the_end_of_the_clients_runtime_leaves_nothing_behind() {
    const LEASE: Duration = Duration::from_millis(150);
    let tally = Tally::default();
    let bench = DropBench::start().await;
    let connections = bench.connections();
    for (position, busy) in [("free", false), ("freed once subscribed", true)] {
        for series in CutAt::FRAMES {
            for n in 0.. {
                let drop_point = DropPoint { function: "lock", position, cut: series(n) };
                let held = if busy { Some(bench.other.lock(NAME).lock().await.unwrap()) } else { None };
                let (client_runtime, proxy) = (ClientRuntime::new(), Proxy::start(bench.server.port()).await);
                let client = client_runtime.connect(Client::builder(), &proxy).await;
                let lock = client.lock(NAME).with_lease(LEASE);
                shut_gate(&proxy, drop_point.cut, has_fixed_order);
                let go = Arc::new(Notify::new());
                let releasing = tokio::spawn({
                    let (passed, go) = (proxy.passed(6), go.clone());
                    async move {
                        tokio::select! {
                            () = passed => {}
                            () = go.notified() => {}
                        }
                        drop(held);
                    }
                });
                let mut call = Box::pin({
                    let lock = lock.clone();
                    async move { lock.lock().await }
                });
                let mut cut = std::pin::pin!(at_frame(&proxy, drop_point.cut));
                let ended = tokio::select! {
                    biased;
                    () = &mut cut => None,
                    outcome = &mut call => Some(outcome),
                    () = tokio::time::sleep(PATIENCE) => panic!("{drop_point}: neither the cut nor the end of the call"),
                };
                let crossed = ended.is_none();
                match ended {
                    Some(outcome) => {
                        proxy.open_gate();
                        let guard = outcome.unwrap();
                        let deadline = guard.deadline();
                        // On a slow machine the lease may end before the release.
                        let released = guard.unlock().await;
                        let expired = deadline <= Instant::now();
                        assert!(released.is_ok() || expired && released.is_err_and(|error| error.is_lost()));
                    }
                    None => {
                        client_runtime.end().await;
                        let outcome = prompt(&Stopwatch::start(), call).await;
                        let outcome =
                            outcome.unwrap_or_else(|| panic!("{drop_point}: the call does not return"));
                        // A lock acquired just before may still be returned, but its state is no longer `Held`.
                        let doubted = outcome.as_ref().is_ok_and(|guard| guard.state() != HoldState::Held);
                        assert!(
                            doubted || matches!(outcome, Err(Error::Closed { .. })),
                            "{drop_point}: {outcome:?}"
                        );
                    }
                }
                proxy.open_gate();
                go.notify_one();
                releasing.await.unwrap();
                bench.served(&drop_point, [bench.next_there(1).await, bench.next_here()]).await;
                drop((lock, client));
                soon(&format!("{drop_point}: the connections to end"), || bench.connections() == connections)
                    .await;
                bench.at_rest(&drop_point).await;
                if !crossed {
                    break;
                }
                tally.add(&drop_point);
            }
        }
    }
    tally.at_least([("lock", "free", 4), ("lock", "freed once subscribed", 16)]);
}
