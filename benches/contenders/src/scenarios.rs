//! The contender's side of the scenarios.

use crate::allocator;
use crate::library::{Handle, Library, owner};
use crate::measure::{cpu, memory, monotonic_ns};
use redisson_lock::{LockGuard, blocking};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// The time before a measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long a hold lasts in `turns`.
const HOLD_TIME: Duration = Duration::from_micros(200);
/// How long a hold lasts in `crowd`.
const CROWD_HOLD_TIME: Duration = Duration::from_millis(1);

/// Workers of one client acquire and release a lock in a loop, each its own.
pub async fn uncontended(library: &Library, workers: usize, seconds: f64) {
    let handles = (0..workers).map(|worker| library.handle(worker, &format!("bench:{worker}"))).collect();
    rounds(handles, Duration::ZERO, seconds).await;
}

/// Workers of one client acquire and release the same lock in a loop.
pub async fn contended(library: &Library, workers: usize, seconds: f64) {
    let handles = (0..workers).map(|worker| library.handle(worker, "bench")).collect();
    rounds(handles, Duration::ZERO, seconds).await;
}

/// Workers of one client acquire and release locks of one kind in a loop: each its own, or all the same one. A shared semaphore
/// has four permits. redis-rs takes the least scripts, which serve only keys of their own.
pub async fn kind(library: &Library, kind: &str, own: bool, workers: usize, seconds: f64) {
    let mut handles = Vec::new();
    for worker in 0..workers {
        let (key, permits) =
            if own { (format!("bench:{kind}:{worker}"), 1) } else { (format!("bench:{kind}"), 4) };
        handles.push(match library {
            Library::Ours(client) => Handle::of_kind(client, kind, &key, permits).await,
            Library::Raw(raw) => raw.of_kind(kind).await.handle(worker, &key),
            _ => unreachable!("it has no kinds"),
        });
    }
    rounds(handles, Duration::ZERO, seconds).await;
}

/// Clients with one worker each acquire and release the same lock in a loop, and hold it for a while.
pub async fn crowd(name: &str, url: &str, clients: usize, seconds: f64) {
    let (mut handles, mut listening) = (Vec::new(), Vec::new());
    for worker in 0..clients {
        let library = Library::connect_beside_java(name, url).await;
        listening.push(library.listen().await);
        handles.push(library.handle(worker, "bench"));
    }
    rounds(handles, CROWD_HOLD_TIME, seconds).await;
}

/// One worker for each handle.
async fn rounds(handles: Vec<Handle>, hold_time: Duration, seconds: f64) {
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<Vec<AtomicU64>> = Arc::new(handles.iter().map(|_| AtomicU64::new(0)).collect());
    let mut tasks = Vec::new();
    let alone = handles.len() == 1;
    for (worker, handle) in handles.into_iter().enumerate() {
        let (stop, counts) = (stop.clone(), counts.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(Relaxed) {
                let guard = handle.lock().await;
                counts[worker].fetch_add(1, Relaxed);
                if !hold_time.is_zero() {
                    tokio::time::sleep(hold_time).await;
                }
                guard.unlock().await;
                if !alone && matches!(handle, Handle::Tokio(_)) {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
    measure(&counts, seconds).await;
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// Threads acquire and release a lock in a loop, each its own: ours by the API for threads, another library by `block_on`.
pub async fn threads(library: &Library, url: &str, workers: usize, seconds: f64) {
    let url = url.to_owned();
    let connected = tokio::task::spawn_blocking(move || blocking::Client::connect(&url));
    let client = connected.await.expect("no panic").expect("a server");
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..workers).map(|_| AtomicU64::new(0)).collect());
    let mut threads = Vec::new();
    for worker in 0..workers {
        let key = format!("bench:{worker}");
        let hold_once: Box<dyn Fn() + Send> = match library {
            Library::Ours(_) => {
                let lock = client.lock(key);
                Box::new(move || lock.lock().expect("the lock").unlock().expect("a release"))
            }
            other => {
                let (handle, runtime) = (other.handle(worker, &key), runtime::Handle::current());
                Box::new(move || runtime.block_on(async { handle.lock().await.unlock().await }))
            }
        };
        let (stop, counts) = (stop.clone(), counts.clone());
        threads.push(thread::spawn(move || {
            while !stop.load(Relaxed) {
                hold_once();
                counts[worker].fetch_add(1, Relaxed);
            }
        }));
    }
    measure(&counts, seconds).await;
    stop.store(true, Relaxed);
    let joined = tokio::task::spawn_blocking(move || {
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        drop(client);
    });
    joined.await.expect("no panic");
}

/// Measures workers that run, by the number of holds of each.
async fn measure(counts: &[AtomicU64], seconds: f64) {
    let read = || counts.iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>();
    // Counting allocations takes time, so it ends before the measurement.
    let before: u64 = read().iter().sum();
    allocator::COUNTING.store(true, Relaxed);
    tokio::time::sleep(WARM_UP).await;
    allocator::COUNTING.store(false, Relaxed);
    let warm: u64 = read().iter().sum::<u64>() - before;
    let a_hold = |count: &AtomicU64| count.swap(0, Relaxed) as f64 / warm as f64;
    let (allocations, allocated) = (a_hold(&allocator::COUNT), a_hold(&allocator::BYTES));
    println!("begin");
    let (before, spent, began) = (read(), cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (after, spent, took) = (read(), cpu() - spent, began.elapsed());
    let each: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let holds: u64 = each.iter().sum();
    println!(
        "end holds={holds} seconds={} cpu={} least={} most={} allocations={allocations} allocated={allocated}",
        took.as_secs_f64(),
        spent.as_secs_f64(),
        each.iter().min().expect("a worker"),
        each.iter().max().expect("a worker"),
    );
}

/// One worker that always wants the lock, next to a worker of another process. Writes a line for each hold: when the lock
/// returned, when the unlock began and when it returned.
pub async fn turns(library: &Library, seconds: f64, file: &str) {
    let handle = library.handle(std::process::id() as usize, "bench");
    let _listening = library.listen().await;
    let mut log = String::new();
    let began = Instant::now();
    println!("begin");
    while began.elapsed().as_secs_f64() < seconds {
        let guard = handle.lock().await;
        let held = Instant::now();
        let locked = monotonic_ns();
        while held.elapsed() < HOLD_TIME {
            tokio::task::yield_now().await;
        }
        let unlocking = monotonic_ns();
        guard.unlock().await;
        let _ = writeln!(log, "{locked} {unlocking} {}", monotonic_ns());
    }
    std::fs::write(file, log).expect("a file");
    println!("end");
}

/// Measures the cost of doing nothing.
pub async fn idle(seconds: f64) {
    println!("begin");
    let (spent, began) = (cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (spent, took) = (cpu() - spent, began.elapsed());
    println!("end seconds={} cpu={} memory={}", took.as_secs_f64(), spent.as_secs_f64(), memory());
}

/// Takes `count` locks, `workers` at a time. `keep` gets each of them.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send>(
    count: usize,
    workers: usize,
    take: impl Fn(usize) -> F + Clone + Send + 'static,
    mut keep: impl FnMut(T),
) {
    let (sender, mut taken) = mpsc::channel(workers);
    for worker in 0..workers {
        let (take, sender) = (take.clone(), sender.clone());
        tokio::spawn(async move {
            for n in (worker..count).step_by(workers) {
                sender.send(take(n).await).await.expect("a receiver");
            }
        });
    }
    drop(sender);
    while let Some(lock) = taken.recv().await {
        keep(lock);
    }
}

/// The number of tasks that start waiting every 10 ms.
const PACE: usize = 100;

/// Locks that are held and tasks that wait, until `drop`.
#[derive(Default)]
pub struct Held {
    guards: Vec<LockGuard>,
    /// They wait, or renew locks of redis-rs.
    tasks: Vec<JoinHandle<()>>,
    /// For those that wait.
    listening: JoinSet<()>,
}

impl Held {
    /// Acquires `count` more locks, `workers` at a time, and has them renewed. A worker frees what it needed besides its guards, so the
    /// figure is that of the locks.
    pub async fn hold(&mut self, library: &Library, count: usize, workers: usize) {
        println!("begin");
        let before = memory();
        let first = self.guards.len();
        let name = move |n: usize| format!("held:{}", first + n);
        match library {
            Library::Ours(client) => {
                self.guards.reserve_exact(count);
                let client = client.clone();
                let take = move |n| {
                    let lock = client.lock(name(n));
                    async move { lock.lock().await.expect("the lock") }
                };
                at_once(count, workers, take, |guard| self.guards.push(guard)).await;
            }
            Library::Raw(raw) => {
                let mut held = Vec::with_capacity(count);
                let taker = raw.clone();
                let take = move |n| {
                    let (raw, key, owner) = (taker.clone(), name(n), owner(n));
                    async move {
                        assert_eq!(raw.take(&key, &owner).await, None, "held");
                        (key, owner)
                    }
                };
                at_once(count, workers, take, |lock| held.push(lock)).await;
                let raw = raw.clone();
                self.tasks.push(tokio::spawn(async move { raw.renew(&held).await }));
            }
            _ => unreachable!("it renews nothing"),
        }
        println!("end memory={} before={before}", memory().saturating_sub(before));
    }

    /// Starts tasks that each wait for a lock that another process holds. They start gradually, so that the measurement
    /// shows the cost of waiting, not of many first requests at once.
    pub async fn wait(&mut self, library: &Library, count: usize) {
        println!("begin");
        let before = memory();
        self.listening = library.listen().await;
        for n in 0..count {
            if n % PACE == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let key = format!("held:{n}");
            self.tasks.push(match library {
                // A handle has room for every library.
                Library::Ours(client) => {
                    let lock = client.lock(key);
                    tokio::spawn(async move {
                        let guard = lock.lock().await.expect("the lock");
                        guard.unlock().await.expect("a confirmed release");
                    })
                }
                Library::Raw(raw) => {
                    let (raw, owner) = (raw.clone(), owner(n));
                    tokio::spawn(async move {
                        raw.lock(&key, &owner).await;
                        raw.leave(&key, &owner).await;
                    })
                }
                _ => unreachable!("it does not wait for so many locks"),
            });
        }
        println!("end memory={} before={before}", memory().saturating_sub(before));
    }

    /// Drops all guards at once, and waits until the server has no key left.
    pub async fn drop_at_once(&mut self, url: &str) {
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a server");
        println!("begin");
        let (before, began) = (memory(), Instant::now());
        let count = self.guards.len();
        self.guards = Vec::new();
        let mut most = before;
        loop {
            most = most.max(memory());
            let left: usize = redis::cmd("DBSIZE").query_async(&mut connection).await.expect("an answer");
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        println!(
            "end holds={count} seconds={} memory={}",
            began.elapsed().as_secs_f64(),
            most.saturating_sub(before)
        );
    }

    pub async fn drop(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
        }
        self.listening.abort_all();
        for guard in self.guards.drain(..) {
            guard.unlock().await.expect("a release");
        }
    }
}
