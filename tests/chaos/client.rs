//! A Rust client of the campaign: tasks that contend for locks until stdin says `stop`, and then `close`.
//!
//! `client <url> <folder> <index> <number> <seed> <lease in ms> <kinds> <replication>`. Replication is `any` for the
//! library's default, or `none`. The client prints `ready`, then `beat ..` every second. After `stop` it prints `settled
//! <tasks> <baseline> <sockets> <baseline>`, and after `close` the same with `closed`. Commands on stdin: `force <key>`
//! force-unlocks a lock and prints `forced <result>`; `starve <ms>` blocks the runtime, then prints `starved`; `drop-runtime
//! <ms>` drops a second runtime, then prints `dropped`.

use crate::Failure;
use crate::keys::{FAIR_WAIT_MS, KINDS};
use crate::ledger::{Ledger, error_word, measured, now, waits};
use crate::random::Random;
use crate::workload::{self, Work};
use redisson_lock::{Client, HandOff, Replication};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::runtime::Handle;

/// Tasks that contend for the hot keys.
const HOT_TASKS: u64 = 4;
/// Tasks for the key of each other kind.
const TASKS_OF_A_KIND: u64 = 2;
/// The numbers of the tasks after these.
const FRESH: u64 = 3 + HOT_TASKS + TASKS_OF_A_KIND * KINDS.len() as u64;
const PASSING: u64 = FRESH + 1;
/// The tasks of an idle client: two that maintain its connections, two connection tasks, the watchdog, and the one that
/// serves queues without an actor.
const TASKS: usize = 6;
const SOCKETS: usize = 2;
/// The response timeout and the connect timeout.
pub const RESPONSE: Duration = Duration::from_secs(1);
/// How long the probe sleeps. A much longer sleep is a stall.
const PROBE: Duration = Duration::from_millis(5);

pub async fn run(arguments: &[&str]) -> Result<(), Failure> {
    let [url, folder, index, number, seed, lease, kinds, replication] = arguments else {
        return Err(
            "usage: client <url> <folder> <index> <number> <seed> <lease> <kinds> <replication>".into()
        );
    };
    let chosen: Vec<_> = kinds.split(',').collect();
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| chosen.contains(kind)).collect();
    let (index, number, seed): (u64, u64, u64) = (index.parse()?, number.parse()?, seed.parse()?);
    let ledger = Arc::new(Ledger::open(Path::new(folder), &format!("rust{index}"), number)?);
    let lease = Duration::from_millis(lease.parse()?);
    let single = url.starts_with("redis://");
    let before = (tasks(), sockets());
    // Every second process hands off pipelined, unless it waits for replicas. `xtask/src/chaos/check.rs` relies on this.
    let hand_off = HandOff::new().pipelined(index % 2 == 1 && (single || *replication == "none"));
    let connect = || {
        let builder = Client::builder()
            .hand_off(hand_off)
            .watchdog_timeout(lease)
            .fair_lock_wait_timeout(Duration::from_millis(FAIR_WAIT_MS))
            .response_timeout(RESPONSE)
            .connect_timeout(RESPONSE);
        match *replication {
            "none" => builder.replication(Replication::at_least(0)),
            _ => builder,
        }
        .connect(url)
    };
    // The process may have been restarted in the middle of a fault.
    let client = loop {
        match connect().await {
            Ok(client) => break client,
            Err(error) => ledger.log(&format!("note {} connect {}", now(), error_word(&error))),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // With several servers the number of open connections varies.
    let base = (before.0 + TASKS, before.1 + SOCKETS);
    while single && (tasks(), sockets()) != base {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Records the threads of the runtime, before any others exist.
    waits();
    let stopping = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let (ledger, handle) = (ledger.clone(), Handle::current());
        move || beat(&ledger, &handle)
    });
    println!("ready");

    let work = |task: u64| Work {
        client: client.clone(),
        ledger: ledger.clone(),
        index,
        task,
        lease,
        stopping: stopping.clone(),
        random: Random::new(seed ^ (number << 32) ^ (task << 16)),
    };
    let mut running = tokio::task::JoinSet::new();
    running.spawn(work(1).long(kinds.clone()));
    if !single {
        running.spawn(work(FRESH).fresh());
    }
    if kinds.contains(&"reentrant") {
        running.spawn(work(0).own());
        running.spawn(work(PASSING).passing());
        running.spawn(work(2).duel());
        for task in 3..3 + HOT_TASKS {
            running.spawn(work(task).hot());
        }
    }
    let others = kinds.iter().filter(|kind| **kind != "reentrant");
    let others = others.flat_map(|kind| (0..TASKS_OF_A_KIND).map(move |_| *kind));
    for (task, kind) in (3 + HOT_TASKS..).zip(others) {
        running.spawn(work(task).kind(kind));
    }

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match line.split_once(' ') {
            Some(("force", key)) => {
                let asked = now();
                let (forced, delayed) = measured(workload::force_unlock(&client, key)).await;
                let outcome = forced.as_ref().map_or_else(error_word, bool::to_string);
                let limit = RESPONSE.as_millis();
                let name = &ledger.name;
                let times = format!("{asked} {} {limit}", now());
                ledger.log(&format!("call {name} - force_unlock {times} {outcome} {delayed}"));
                println!("forced {outcome}");
            }
            Some(("starve", ms)) => {
                starve(&ledger, Duration::from_millis(ms.parse()?)).await;
                println!("starved");
            }
            Some(("drop-runtime", ms)) => {
                let (url, stay) = ((*url).to_owned(), Duration::from_millis(ms.parse()?));
                let kinds = kinds.clone();
                tokio::task::spawn_blocking(move || drop_runtime(&url, &kinds, lease, stay)).await?;
                println!("dropped");
            }
            _ if line == "stop" => {
                stopping.store(true, Ordering::Relaxed);
                while let Some(ended) = running.join_next().await {
                    ended?;
                }
                let base = if single { Some(base) } else { None };
                settle("settled", base, lease).await;
            }
            _ if line == "close" => {
                client.close().await;
                settle("closed", Some(before), lease).await;
                let stats = client.stats();
                let left = stats.held + stats.waiting + stats.requests.in_flight;
                let ends = format!("{} {} {}", stats.released, stats.lost.total(), stats.unended);
                ledger.log(&format!("counted {} {} {} {ends} {left}", ledger.name, now(), stats.begun()));
            }
            _ => return Err(format!("unknown command {line:?}").into()),
        }
    }
    Ok(())
}

/// Blocks every thread that runs tasks.
async fn starve(ledger: &Ledger, lasts: Duration) {
    let workers = Handle::current().metrics().num_workers();
    let together = Arc::new(Barrier::new(workers));
    let blocking = (0..workers).map(|_| {
        let together = together.clone();
        tokio::spawn(async move {
            together.wait();
            let from = now();
            thread::sleep(lasts);
            (from, now())
        })
    });
    let (mut from, mut to) = (u64::MAX, 0);
    for blocked in blocking.collect::<Vec<_>>() {
        if let Ok((began, ended)) = blocked.await {
            (from, to) = (from.min(began), to.max(ended));
        }
    }
    ledger.log(&format!("stall {} {from} {to}", ledger.name));
}

/// Acquires both hot locks and others with a client on its own runtime, and drops the runtime while it holds or waits for
/// them. The guards and the client are dropped outside of any runtime.
fn drop_runtime(url: &str, kinds: &[&'static str], lease: Duration, stay: Duration) {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
    else {
        return;
    };
    let left = runtime.block_on(async {
        let client = Client::builder()
            .watchdog_timeout(lease)
            .fair_lock_wait_timeout(Duration::from_millis(FAIR_WAIT_MS))
            .connect(url)
            .await
            .ok()?;
        let wanted = workload::wanted(&client, kinds).into_iter();
        let guards: Vec<_> = wanted.map(|lock| tokio::spawn(async move { lock.lock().await })).collect();
        tokio::time::sleep(stay).await;
        Some((client, guards))
    });
    drop(runtime);
    drop(left);
}

/// Waits until the numbers of tasks and sockets are back at the baseline, where that is known, and at most until the last
/// lease has ended.
async fn settle(word: &str, base: Option<(usize, usize)>, lease: Duration) {
    let began = Instant::now();
    let mut now = (tasks(), sockets());
    while base.is_some_and(|base| now != base) && began.elapsed() < lease + RESPONSE * 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        now = (tasks(), sockets());
    }
    let base = base.unwrap_or(now);
    println!("{word} {} {} {} {}", now.0, base.0, now.1, base.1);
}

/// Runs on its own thread, so that it measures the machine and not the runtime. If its sleep is too long, a signal stopped
/// the process or the scheduler delayed the thread.
fn beat(ledger: &Ledger, handle: &Handle) {
    let mut due = Instant::now();
    loop {
        let slept = now();
        thread::sleep(PROBE);
        let woken = now();
        if woken - slept > 3 * PROBE.as_nanos() as u64 {
            ledger.log(&format!("stall {} {slept} {woken}", ledger.name));
        }
        if Instant::now() < due {
            continue;
        }
        due += Duration::from_secs(1);
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let count = |what: &std::sync::atomic::AtomicU64| what.load(Ordering::Relaxed);
        let line = format!(
            "beat {} {} {} {} {} {} {}",
            now(),
            count(&ledger.holds),
            count(&ledger.lost),
            resident_kb(),
            sockets(),
            handle.metrics().num_alive_tasks(),
            wall.as_secs(),
        );
        ledger.log(&line);
        println!("{line}");
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Counts sockets. The runtime's own file descriptors are not sockets.
fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    open.filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
    })
    .count()
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
