//! Futures and tasks that are dropped at any time, many at once: branches of `select!`, aborted tasks, and runtimes
//! that end. What `cancellation` does at each point apart, this does in
//! a crowd.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Lock};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::Proxy;
use crate::support::crossing::{
    Aside, Bench, Crossing, Cut, NAME, PATIENCE, PROMPT, Tally, at_frame, of_the_lock, shut, soon,
};

/// Ticks every few hundred microseconds, which timers of a runtime don't.
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
            self.0.changed().await.expect("it ticks for as long as it is heard");
        }
    }
}

fn crossing(function: &'static str, position: &'static str, n: usize) -> Crossing {
    Crossing { function, position, cut: Cut::Polls(n) }
}

#[tokio::test(flavor = "multi_thread")]
async fn select_loops_of_two_clients() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 150;
    let bench = Bench::start().await;
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
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
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
    let end = crossing("lock", "select!", waits);
    bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
    bench.at_rest(&end).await;
    bench.no_renewal_follows().await;
    assert_eq!(waits + served, TASKS * ROUNDS);
    assert!(waits > 100 && served > 50 && releases > 0, "{waits} {served} {releases}");
}

/// Takes the lock twice and lets go of it, again and again.
async fn take_for_ever(lock: Lock, taken: watch::Sender<usize>) {
    loop {
        let guard = lock.lock().await.unwrap();
        let again = lock.try_lock().await.unwrap().expect("ours already");
        taken.send_modify(|taken| *taken += 1);
        again.unlock().await.unwrap();
        drop(guard);
    }
}

/// In every second round, waits until the lock was taken in it. In the others it need not have come that far.
async fn taken_since(taken: &watch::Sender<usize>, before: usize, round: usize) {
    if round.is_multiple_of(2) {
        let mut taken = taken.subscribe();
        let taken = tokio::time::timeout(PATIENCE, taken.wait_for(|&taken| taken > before)).await;
        drop(taken.expect("nobody takes the lock"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_tasks() {
    const ROUNDS: usize = 60;
    let bench = Bench::start().await;
    let mut ticks = Ticks::start();
    let (taken, mut aborted) = (watch::Sender::new(0), 0);
    for round in 0..ROUNDS {
        let before = *taken.borrow();
        let clients = [&bench.near, &bench.near, &bench.near, &bench.far, &bench.far];
        let takers: Vec<JoinHandle<()>> =
            clients.map(|client| tokio::spawn(take_for_ever(client.lock(NAME), taken.clone()))).into();
        taken_since(&taken, before, round).await;
        for taker in &takers {
            ticks.wait(round % 7).await;
            taker.abort();
        }
        for taker in takers {
            assert!(taker.await.unwrap_err().is_cancelled());
            aborted += 1;
        }
        let end = crossing("lock", "aborted", round);
        bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
        bench.at_rest(&end).await;
    }
    bench.no_renewal_follows().await;
    let taken = *taken.borrow();
    println!("abort: {aborted} tasks, which had taken the lock {taken} times");
    assert!(aborted == ROUNDS * 5 && taken >= ROUNDS / 2, "{aborted} {taken}");
}

/// The runtime of the callers ends, and not that of their client.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_of_callers_that_ends() {
    const ROUNDS: usize = 30;
    let bench = Bench::start().await;
    let mut ticks = Ticks::start();
    let taken = watch::Sender::new(0);
    for round in 0..ROUNDS {
        let (callers, before) = (Aside::new(), *taken.borrow());
        for _ in 0..4 {
            callers.handle().spawn(take_for_ever(bench.near.lock(NAME), taken.clone()));
        }
        taken_since(&taken, before, round).await;
        ticks.wait(round % 7).await;
        callers.end().await;
        let end = crossing("lock", "its runtime ends", round);
        bench.served(&end, [bench.next_here(), bench.next_there(1).await]).await;
        bench.at_rest(&end).await;
    }
    bench.no_renewal_follows().await;
    let taken = *taken.borrow();
    println!("runtimes of callers: {ROUNDS} ended, whose tasks had taken the lock {taken} times");
    assert!(taken >= ROUNDS / 2, "{taken}");
}

/// The client's own runtime ends around each frame. The caller is told, and what it had won is freed by its lease.
#[tokio::test]
async fn a_clients_runtime_that_ends() {
    const LEASE: Duration = Duration::from_millis(150);
    let tally = Tally::default();
    let bench = Bench::start().await;
    let connections = bench.connections();
    for (position, busy) in [("free", false), ("freed once subscribed", true)] {
        for series in Cut::FRAMES {
            for n in 0.. {
                let crossing = Crossing { function: "lock", position, cut: series(n) };
                let held = if busy { Some(bench.other.lock(NAME).lock().await.unwrap()) } else { None };
                let (aside, proxy) = (Aside::new(), Proxy::start(bench.server.port()).await);
                let client = aside.connect(Client::builder(), &proxy).await;
                let lock = client.lock(NAME).with_lease(LEASE);
                shut(&proxy, crossing.cut, of_the_lock);
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
                let mut cut = std::pin::pin!(at_frame(&proxy, crossing.cut));
                let ended = tokio::select! {
                    biased;
                    () = &mut cut => None,
                    outcome = &mut call => Some(outcome),
                    () = tokio::time::sleep(PATIENCE) => panic!("{crossing}: neither comes"),
                };
                let crossed = ended.is_none();
                match ended {
                    Some(outcome) => {
                        proxy.open_gate();
                        outcome.unwrap().unlock().await.unwrap();
                    }
                    None => {
                        aside.end().await;
                        let outcome = tokio::time::timeout(PROMPT, call).await;
                        let outcome =
                            outcome.unwrap_or_else(|_| panic!("{crossing}: the caller is not told"));
                        // What arrived just before may have been told, but not as certain any more.
                        let told = outcome.as_ref().is_ok_and(|guard| guard.state() != HoldState::Held);
                        assert!(
                            told || matches!(outcome, Err(Error::Unavailable { .. })),
                            "{crossing}: {outcome:?}"
                        );
                    }
                }
                proxy.open_gate();
                go.notify_one();
                releasing.await.unwrap();
                bench.served(&crossing, [bench.next_there(1).await, bench.next_here()]).await;
                drop((lock, client));
                soon(&format!("{crossing}: an end of the connections"), || {
                    bench.connections() == connections
                })
                .await;
                bench.at_rest(&crossing).await;
                if !crossed {
                    break;
                }
                tally.add(&crossing);
            }
        }
    }
    tally.at_least([("lock", "free", 4), ("lock", "freed once subscribed", 16)]);
}
