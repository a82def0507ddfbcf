//! The contender's side of the scenarios.

use crate::allocator;
use crate::library::{Guard, Handle, Library};
use crate::measure::{cpu, memory, monotonic_ns};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The time before a measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long a hold lasts in `turns`.
const HOLD_TIME: Duration = Duration::from_micros(200);

/// Workers acquire and release a lock in a loop, either all the same lock or each its own.
pub async fn rounds(library: &Library, workers: usize, seconds: f64, contended: bool) {
    let stop = Arc::new(AtomicBool::new(false));
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..workers).map(|_| AtomicU64::new(0)).collect());
    let mut tasks = Vec::new();
    for worker in 0..workers {
        let handle =
            library.handle(worker, &if contended { "bench".into() } else { format!("bench:{worker}") });
        let (stop, counts) = (stop.clone(), counts.clone());
        let alone = !contended || workers == 1;
        tasks.push(tokio::spawn(async move {
            while !stop.load(Relaxed) {
                let guard = handle.lock().await;
                counts[worker].fetch_add(1, Relaxed);
                guard.unlock().await;
                if !alone && matches!(handle, Handle::Tokio(_)) {
                    tokio::task::yield_now().await;
                }
            }
        }));
    }
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
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// One worker that always wants the lock, next to a worker of another process. Writes a line for each hold: when the lock
/// returned, when the unlock began and when it returned.
pub async fn turns(library: &Library, seconds: f64, file: &str) {
    let handle = library.handle(std::process::id() as usize, "bench");
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

/// The number of tasks that start waiting every 10 ms.
const PACE: usize = 100;

/// Locks that are held and tasks that wait, until `drop`.
#[derive(Default)]
pub struct Held {
    guards: Vec<Guard<'static>>,
    waiters: Vec<JoinHandle<()>>,
}

impl Held {
    /// Acquires `count` more locks.
    pub async fn hold(&mut self, library: &Library, count: usize) {
        println!("begin");
        let before = memory();
        let mut taking = Vec::new();
        let first = self.guards.len();
        self.guards.reserve_exact(count);
        for worker in 0..64 {
            let handles =
                (first + worker..first + count).step_by(64).map(|n| library.handle(0, &format!("held:{n}")));
            let handles: Vec<_> = handles.collect();
            taking.push(tokio::spawn(async move {
                let mut guards = Vec::with_capacity(handles.len());
                for handle in handles {
                    match handle.lock().await {
                        Guard::Ours(guard) => guards.push(Guard::Ours(guard)),
                        _ => unreachable!("only ours and Redisson hold many"),
                    }
                }
                guards
            }));
        }
        for taking in taking {
            self.guards.extend(taking.await.expect("no panic"));
        }
        println!("end memory={} before={before}", memory().saturating_sub(before));
    }

    /// Starts tasks that each wait for a lock that another process holds. They start gradually, so that the measurement
    /// shows the cost of waiting, not of many first requests at once.
    pub async fn wait(&mut self, library: &Library, count: usize) {
        println!("begin");
        let before = memory();
        for n in 0..count {
            if n % PACE == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let handle = library.handle(1, &format!("held:{n}"));
            self.waiters.push(tokio::spawn(async move {
                handle.lock().await.unlock().await;
            }));
        }
        println!("end memory={} before={before}", memory().saturating_sub(before));
    }

    pub async fn drop(&mut self) {
        for waiter in self.waiters.drain(..) {
            waiter.abort();
        }
        for guard in self.guards.drain(..) {
            guard.unlock().await;
        }
    }
}
