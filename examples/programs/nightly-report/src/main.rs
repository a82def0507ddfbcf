//! A job that several hosts start at the same time and that must run once. See README.md.

use redisson_lock::HoldState;
use redisson_lock::blocking::{Client, LockGuard};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, thread};

const THREADS: usize = 2;

/// Longer than the clocks of the hosts differ, and shorter than the time until the next run.
const MIN_HOLD: Duration = Duration::from_secs(3600);

/// How often the watching thread looks whether the work has ended. It notices a loss at once.
const WATCH: Duration = Duration::from_millis(50);

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let var = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let (input, report) = (PathBuf::from(var("INPUT", "logs")), PathBuf::from(var("REPORT", "report.txt")));
    // If this host dies, the others wait for the rest of the minimum time. The watchdog notices a loss within a third of this.
    let lease = Duration::from_secs(var("LEASE_SECONDS", "30").parse()?);
    let builder = redisson_lock::Client::builder().watchdog_timeout(lease);
    let client = Client::connect_with(builder, var("REDIS_URL", "redis://127.0.0.1/"))?;

    let lock = client.mutex("nightly-report").with_min_hold(MIN_HOLD);
    let Some(guard) = lock.try_lock()? else {
        println!("skipped: another host has run the job, or runs it");
        return Ok(ExitCode::SUCCESS);
    };
    println!("running as {}", guard.owner());
    let done = work(&input, &report, &guard)?;
    // An error if the hold was lost after the last check. The record stays for the rest of the minimum time.
    let released = guard.unlock();
    client.close();
    match (done, released) {
        (Some(lines), Ok(())) => println!("done: {lines} lines"),
        (Some(_), Err(error)) => {
            println!("the report may be that of two hosts: {error}");
            return Ok(ExitCode::FAILURE);
        }
        (None, _) => {
            println!("stopped: the lock was lost, so nothing is published");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the lines of all files in `input`, and writes `report`. Returns `None`, without a report, if the hold was lost.
fn work(input: &Path, report: &Path, guard: &LockGuard) -> io::Result<Option<u64>> {
    let mut files = fs::read_dir(input)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    let (files, counts, finished) = (Mutex::new(files), Mutex::new(Vec::new()), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        // Nothing cancels a thread, so this one only reports. It would end child processes or connections of the job.
        scope.spawn(|| watch(guard, &finished));
        let counters: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| -> io::Result<()> {
                    // Between two steps, each thread asks whether the hold is lost. The answer needs no request.
                    while guard.lost_for(Duration::ZERO).is_none() {
                        let next = files.lock().expect("no thread panics").pop();
                        let Some(file) = next else { break };
                        let lines = count_lines(&file)?;
                        counts.lock().expect("no thread panics").push((file, lines));
                    }
                    Ok(())
                })
            })
            .collect();
        let outcome = counters.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"));
        finished.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?;
    let mut counts = counts.into_inner().expect("no thread panics");
    counts.sort();
    let partial = report.with_extension("partial");
    let mut text = File::create(&partial)?;
    for (file, lines) in &counts {
        writeln!(text, "{lines}\t{}", file.display())?;
    }
    text.sync_all()?;
    // `Suspect` is not enough to publish: the server has not confirmed the hold since its connection dropped.
    if guard.state() != HoldState::Held {
        fs::remove_file(partial)?;
        return Ok(None);
    }
    fs::rename(partial, report)?;
    Ok(Some(counts.iter().map(|(_, lines)| lines).sum()))
}

fn count_lines(file: &Path) -> io::Result<u64> {
    let mut lines = 0;
    for line in BufReader::new(File::open(file)?).split(b'\n') {
        line?;
        lines += 1;
    }
    Ok(lines)
}

/// Reports a loss as soon as the client knows of it.
fn watch(guard: &LockGuard, finished: &AtomicBool) {
    while !finished.load(Ordering::Relaxed) {
        if let Some(reason) = guard.lost_for(WATCH) {
            println!("stopping: {reason}");
            return;
        }
    }
}
