//! A Rust process of `cargo xtask demo`: tasks that take a lock on command.
//!
//! `contender <url> <lock> <counter> <lease in ms>`. Each line on stdin, `<task> <count> <hold in us>`, is one turn: the
//! task takes the lock `count` times, adds 1 to the counter by a separate read and write, and releases the lock. It reports
//! each step on stdout: `<task> waits|holds|ends|freed <CLOCK_MONOTONIC in ns> <owner>`. The real hold always covers the
//! reported one. The process exits when stdin closes.
//!
//! `contender timeline <lock> <trace> <page>` writes these two files from the events on stdin, which `xtask/src/demo/timeline.rs`
//! describes.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::time::Duration;

use redisson_lock::redis::{self, AsyncCommands, aio::MultiplexedConnection};
use redisson_lock::{Client, Lock, Timeline, TimelineChange, TimelineEvent};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, lock, trace, page] = arguments.as_slice()
        && mode == "timeline"
    {
        return write_timeline(lock, trace, page);
    }
    let [url, name, counter, lease_ms] = arguments.as_slice() else {
        return Err("usage: contender <url> <lock> <counter> <lease in ms>".into());
    };
    let lease = Duration::from_millis(lease_ms.parse()?);
    let client = Client::builder().watchdog_timeout(lease).connect(url).await?;
    let redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    println!("ready");

    let mut tasks: HashMap<String, UnboundedSender<String>> = HashMap::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (task, turn) = line.split_once(' ').ok_or("a line is `<task> <count> <hold in us>`")?;
        let task = tasks.entry(task.to_owned()).or_insert_with_key(|task| {
            let (sender, turns) = unbounded_channel();
            tokio::spawn(contend(task.clone(), client.lock(name), redis.clone(), counter.clone(), turns));
            sender
        });
        task.send(turn.to_owned())?;
    }
    Ok(())
}

fn write_timeline(lock: &str, trace: &str, page: &str) -> Result {
    let timeline = Timeline::new(1_000_000);
    for line in std::io::stdin().lines() {
        let line = line?;
        let [at, process, owner, change, hold, length] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("unexpected event {line:?}").into());
        };
        let (hold, length) = (hold.parse()?, Duration::from_nanos(length.parse()?));
        let change = match change {
            "acquired" => TimelineChange::Acquired { call: hold, hold, waited: length },
            "re-entered" => TimelineChange::ReEntered { call: 0, hold, waited: Duration::ZERO },
            "released" => TimelineChange::Released { hold, held: length },
            _ => return Err(format!("unexpected event {line:?}").into()),
        };
        let event = TimelineEvent::new(Duration::from_nanos(at.parse()?), lock, owner, change);
        timeline.record(event.with_source(process));
    }
    timeline.write_trace(File::create(trace)?)?;
    timeline.write_page(File::create(page)?)?;
    Ok(())
}

async fn contend(
    task: String,
    lock: Lock,
    mut redis: MultiplexedConnection,
    counter: String,
    mut turns: UnboundedReceiver<String>,
) {
    while let Some(turn) = turns.recv().await {
        if let Err(error) = take(&task, &turn, &lock, &mut redis, &counter).await {
            eprintln!("task {task}: {error}");
            std::process::exit(1);
        }
    }
}

async fn take(
    task: &str,
    turn: &str,
    lock: &Lock,
    redis: &mut MultiplexedConnection,
    counter: &str,
) -> Result {
    let (count, hold_us) = turn.split_once(' ').ok_or("a turn is `<count> <hold in us>`")?;
    let (count, hold): (usize, _) = (count.parse()?, Duration::from_micros(hold_us.parse()?));
    let say = |what: &str, owner: &str| println!("{task} {what} {} {owner}", monotonic_ns());

    say("waits", "-");
    let outer = lock.lock().await?;
    say("holds", outer.owner());
    let mut inner = Vec::new();
    for _ in 1..count {
        inner.push(lock.lock().await?);
        say("holds", outer.owner());
    }
    let before: Option<u64> = redis.get(counter).await?;
    tokio::time::sleep(hold).await;
    let () = redis.set(counter, before.unwrap_or(0) + 1).await?;
    for guard in inner {
        guard.unlock().await?;
    }
    say("ends", "-");
    outer.unlock().await?;
    say("freed", "-");
    Ok(())
}

/// A clock that all processes of a machine share. Java's `System.nanoTime` reads it too.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs().try_into().unwrap_or(0)).as_nanos()
        as u64
}
