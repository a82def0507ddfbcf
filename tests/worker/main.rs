//! A process that uses the library, for tests that kill it or need several processes. It prints events on stdout, one per
//! line, and exits when its stdin closes.
//!
//! - `hold URL NAME LEASE_MS`: acquires the lock (with that watchdog timeout) and prints `held OWNER`.
//! - `named URL NAME LEASE_MS APPLICATION`: the same by a client that is registered as that application.
//! - `permit URL NAME LEASE_MS`: acquires a permit of an expirable semaphore (with that watchdog timeout) and prints `held
//!   ID`.
//! - `look URL NAME LEASE_MS`: acquires the lock (with that watchdog timeout), prints `held OWNER`, and reads the state in a
//!   loop. It prints `NS STATE` for each read that differs from the last one or begins 100 ms after it; NS is when the read
//!   began. For each line of stdin it prints `clock S`, the time of day in whole seconds.
//! - `serve URL NAME TASKS`: tasks that acquire and release in a loop. For each line of stdin it prints the number of holds.
//! - `drop URL COUNT`: acquires that many locks and prints `held PEAK`, where PEAK is the peak of its resident memory in KB.
//!   At a line of stdin it drops all guards at once. At the next line it prints `released PEAK`.
//! - `fork URL NAME`: acquires the lock and forks. The child prints the results of a lock, a state query and an unlock.
//! - `trace URL NAME`: writes all traces to stdout while it acquires the lock, renews it once, unlocks it at a line of
//!   stdin, acquires it again and loses it.
//! - `connect URL`: connects with warnings on stdout, and prints `connected` or the error.
//! - `loop URL NAME TASKS ITERATIONS COUNTER HOLD_US`: each task acquires, adds 1 to the counter by GET and SET, and
//!   releases. Starts at the first line of stdin. Prints `START:END,..` of the holds in monotonic ns, one line per task.

use redisson_lock::{Client, HoldStatus, Lock, redis};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tracing_subscriber::fmt::format::FmtSpan;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut stdin = BufReader::new(tokio::io::stdin()).lines();
    match args.as_slice() {
        ["hold", url, name, lease] => {
            let lease = Duration::from_millis(lease.parse()?);
            let client = Client::builder().watchdog_timeout(lease).connect(url).await?;
            let guard = client.lock(name).lock().await?;
            println!("held {}", guard.owner());
            while stdin.next_line().await?.is_some() {}
        }
        ["named", url, name, lease, application] => {
            let builder = Client::builder().watchdog_timeout(Duration::from_millis(lease.parse()?));
            let client = builder.register_as(application).connect(url).await?;
            let guard = client.lock(name).lock().await?;
            println!("held {}", guard.owner());
            while stdin.next_line().await?.is_some() {}
        }
        ["permit", url, name, lease] => {
            let lease = Duration::from_millis(lease.parse()?);
            let client = Client::builder().watchdog_timeout(lease).connect(url).await?;
            let permit = client.expirable_semaphore(name).acquire().await?;
            println!("held {}", permit.ids().concat());
            while stdin.next_line().await?.is_some() {}
        }
        ["look", url, name, lease] => {
            let lease = Duration::from_millis(lease.parse()?);
            let client = Client::builder().watchdog_timeout(lease).connect(url).await?;
            let guard = client.lock(name).lock().await?;
            println!("held {}", guard.owner());
            // A clone that holds nothing, for another thread to read.
            let status = guard.status();
            std::thread::spawn(move || look(&status));
            while stdin.next_line().await?.is_some() {
                println!(
                    "clock {}",
                    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs()
                );
            }
        }
        ["serve", url, name, tasks] => {
            let client = Client::connect(url).await?;
            let holds = Arc::new(AtomicU64::new(0));
            for _ in 0..tasks.parse()? {
                let (lock, holds) = (client.lock(name), holds.clone());
                tokio::spawn(async move {
                    loop {
                        // A dropped connection may fail a call. The next iteration tries again.
                        if let Ok(guard) = lock.lock().await {
                            holds.fetch_add(1, Ordering::Relaxed);
                            let _ = guard.unlock().await;
                        }
                    }
                });
            }
            while stdin.next_line().await?.is_some() {
                println!("{}", holds.load(Ordering::Relaxed));
            }
        }
        ["drop", url, count] => {
            // The watchdog renews nothing meanwhile.
            let client = Client::builder().watchdog_timeout(Duration::from_secs(600)).connect(url).await?;
            let mut guards = Vec::new();
            for n in 0..count.parse::<u32>()? {
                guards.push(client.lock(format!("lock-{n}")).lock().await?);
            }
            println!("held {}", memory_peak_kb()?);
            stdin.next_line().await?;
            drop(guards);
            stdin.next_line().await?;
            println!("released {}", memory_peak_kb()?);
        }
        ["fork", url, name] => {
            let lock = Client::connect(url).await?.lock(name);
            let guard = lock.lock().await?;
            // SAFETY: this process has one thread, and the child exits without returning into state that it shares with its
            // parent.
            if unsafe { libc::fork() } == 0 {
                println!("{:?}", lock.try_lock().await.err());
                println!("{:?}", lock.is_locked().await.err());
                println!("{:?}", guard.unlock().await.err());
                std::process::exit(0);
            }
            while stdin.next_line().await?.is_some() {}
            guard.unlock().await?;
        }
        ["loop", url, name, tasks, iterations, counter, hold] => {
            let client = Client::connect(url).await?;
            let (iterations, hold) = (iterations.parse()?, Duration::from_micros(hold.parse()?));
            println!("ready");
            stdin.next_line().await?;
            let mut running = Vec::new();
            for _ in 0..tasks.parse()? {
                let counting = redis::Client::open(*url)?.get_multiplexed_async_connection().await?;
                let (lock, counter) = (client.lock(name), (*counter).to_owned());
                running.push(tokio::spawn(add(lock, counting, counter, iterations, hold)));
            }
            let mut lines = Vec::new();
            for task in running {
                let holds = task.await??;
                let holds: Vec<_> = holds.iter().map(|(start, end)| format!("{start}:{end}")).collect();
                lines.push(holds.join(","));
            }
            // Prints only once all tasks are done: a full pipe would block the thread while the lock is held.
            println!("{}", lines.join("\n"));
        }
        ["connect", url] => {
            tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_ansi(false).init();
            match Client::connect(url).await {
                Ok(_) => println!("connected"),
                Err(error) => println!("{error}"),
            }
        }
        ["trace", url, name] => {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_span_events(FmtSpan::CLOSE)
                .with_ansi(false)
                .init();
            let lease = Duration::from_millis(300);
            let client = Client::builder().watchdog_timeout(lease).connect(url).await?;
            let lock = client.lock(name);
            let guard = lock.lock().await?;
            let deadline = guard.deadline();
            while guard.deadline() <= deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            println!("renewed once as {}", guard.owner());
            stdin.next_line().await?;
            guard.unlock().await?;
            let guard = lock.lock().await?;
            println!("locked again");
            guard.lost().await;
            println!("lost and over");
        }
        _ => return Err(format!("unknown arguments: {args:?}").into()),
    }
    Ok(())
}

fn look(status: &HoldStatus) {
    let (mut last, mut at) = (None, 0);
    loop {
        let began = monotonic_ns();
        let state = status.state();
        if last != Some(state) || began - at > 100_000_000 {
            println!("{began} {state:?}");
        }
        (last, at) = (Some(state), began);
    }
}

/// Reads and writes the counter without other protection, so that a second holder would lose an addition.
async fn add(
    lock: Lock,
    mut counting: redis::aio::MultiplexedConnection,
    counter: String,
    iterations: u32,
    hold: Duration,
) -> Result<Vec<(u64, u64)>, Failure> {
    let mut holds = Vec::new();
    for _ in 0..iterations {
        let guard = lock.lock().await?;
        let start = monotonic_ns();
        let before: Option<u64> = redis::cmd("GET").arg(&counter).query_async(&mut counting).await?;
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        let () =
            redis::cmd("SET").arg(&counter).arg(before.unwrap_or(0) + 1).query_async(&mut counting).await?;
        holds.push((start, monotonic_ns()));
        guard.unlock().await?;
    }
    Ok(holds)
}

/// The peak of the resident memory of this process, as Linux reports it.
fn memory_peak_kb() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB"));
    Ok(peak.ok_or("no VmHWM")?.trim().parse()?)
}

fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
