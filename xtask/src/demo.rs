//! The demo: threads of a real Redisson and tasks of two Rust processes contend for one lock.
//!
//! The demo gives each contender one turn at a time. In a turn, the contender takes the lock, adds 1 to a counter by a
//! separate read and write, and releases the lock. Contenders report their own steps; the server's MONITOR shows releases
//! and renewals. All times are CLOCK_MONOTONIC, read where the event happens, except MONITOR's, which are converted from
//! this machine's wall clock. At the end, the demo writes its holds as a trace and as a page (`target/demo`).

mod process;
mod server;
mod timeline;
mod transcript;

use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use process::Process;
use rustix::time::{ClockId, clock_gettime};
use transcript::Transcript;

use crate::cargo::cargo;
use crate::paths;
use crate::server::Server;
use crate::setup;

const LOCK: &str = "orders";
const CHANNEL: &str = "redisson_lock__channel:{orders}";
const COUNTER: &str = "shipments";
/// The Java peer takes names in base64.
const LOCK64: &str = "b3JkZXJz";
const COUNTER64: &str = "c2hpcG1lbnRz";

/// Threads or tasks of each process.
const THREADS: usize = 3;
/// Shorter than the long holds, so that these need renewals.
const LEASE: Duration = Duration::from_millis(1500);
const LONG_HOLD: Duration = Duration::from_millis(1800);
/// How often each process gets a long hold. Each gets at least one.
const LONG_HOLD_EVERY: Duration = Duration::from_secs(10);
/// The pause of a contender after a turn. The lock is almost always wanted, but rarely by all contenders.
const REST_MS: std::ops::Range<u64> = 150..350;
/// How long events are buffered, so that events of different processes are printed in order.
const LAG: Duration = Duration::from_millis(150);
/// How often pauses and buffered events are checked.
const TICK: Duration = Duration::from_millis(5);
/// How long the last turns may take, and a process to exit.
const TIMEOUT: Duration = Duration::from_secs(15);

struct Options {
    java: bool,
    time: Duration,
    redisson: String,
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let versions = if options.java { vec![options.redisson.clone()] } else { Vec::new() };
    let environment = setup::run(&versions, setup::Clock::Real)?;
    build_contender()?;

    let server = Server::start(&environment.server, &[])?;
    let mut processes = Vec::new();
    if options.java {
        println!("demo: Redisson {} with {THREADS} threads", options.redisson);
        processes.push(Process::java(&environment.peers.join(&options.redisson), &server)?);
    } else {
        println!("demo: without Java, because of --no-java");
    }
    println!("demo: two Rust processes (debug builds) with {THREADS} tasks each");
    for number in 1..=2 {
        processes.push(Process::rust(number, &server)?);
    }
    println!(
        "demo: they contend for the lock {LOCK:?} at 127.0.0.1:{} with leases of {} ms\n",
        server.port,
        LEASE.as_millis()
    );

    let (sender, messages) = channel();
    server::watch(&server, sender.clone())?;
    let mut transcript = Transcript::new(&processes);
    let mut problems = Vec::new();
    problems.extend(contend(&mut processes, options.time, &mut transcript, &sender, &messages).err());
    transcript.print_until(u64::MAX);
    for process in &mut processes {
        problems.extend(process.end().err());
    }
    problems.extend(transcript.write_timeline().err());
    problems.extend(transcript.summarize(server::counter(&server)?));
    for problem in &problems {
        println!("FAILED   {problem}");
    }
    if problems.is_empty() {
        println!("passed: no holds overlapped");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn read_options(arguments: &[&str]) -> Result<Options, String> {
    let redisson = setup::default_versions().pop().expect("the list of versions is not empty");
    let mut options = Options { java: true, time: Duration::from_secs(10), redisson };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("demo: {word} needs a value"));
        match *word {
            "--no-java" => options.java = false,
            "--redisson" => options.redisson = (*value()?).to_owned(),
            "--seconds" => match value()?.parse() {
                Ok(seconds @ 1..=3600) => options.time = Duration::from_secs(seconds),
                _ => return Err("demo: --seconds takes a whole number from 1 to 3600".to_owned()),
            },
            _ => return Err(format!("demo: unknown argument {word:?}")),
        }
    }
    Ok(options)
}

/// Builds it before the demo starts.
fn build_contender() -> Result<(), String> {
    let status = contender("build").status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("demo: the build of xtask/contender.rs failed".to_owned()) }
}

fn contender(cargo_command: &str) -> Command {
    let mut cargo = cargo();
    cargo.args([
        cargo_command,
        "--quiet",
        "--package",
        "redisson-lock",
        "--all-features",
        "--example",
        "contender",
    ]);
    cargo.current_dir(paths::root());
    cargo
}

/// Gives turns until the time is up, and waits for the last ones.
fn contend(
    processes: &mut [Process],
    time: Duration,
    transcript: &mut Transcript,
    sender: &Sender<Message>,
    messages: &Receiver<Message>,
) -> Result<(), String> {
    for (number, process) in processes.iter_mut().enumerate() {
        process.listen(number * THREADS, sender.clone());
    }
    let mut scheduler = TurnScheduler::new(processes, time);
    while scheduler.give_turns()? {
        match messages.recv_timeout(TICK) {
            Ok(Message::Problem(problem)) => return Err(problem),
            Ok(Message::Event(ns, event)) => {
                if let Event::Step { id, step: Step::Freed } = event {
                    scheduler.turn_ended(id);
                }
                transcript.record(ns, event);
            }
            Err(_) if scheduler.began.elapsed() > time + TIMEOUT => {
                return Err(format!(
                    "{} contenders did not finish their last turn in time",
                    scheduler.under_way
                ));
            }
            Err(_) => {}
        }
        transcript.print_until(monotonic_ns() - LAG.as_nanos() as u64);
    }
    Ok(())
}

struct TurnScheduler<'a> {
    processes: &'a mut [Process],
    began: Instant,
    time: Duration,
    /// The contenders that pause, and when each pause ends.
    resting: Vec<(Duration, usize)>,
    under_way: usize,
    /// The number of turns of each contender, which varies them.
    turns: Vec<usize>,
    /// For each process, counted from the start.
    next_long_hold: Vec<Duration>,
}

impl<'a> TurnScheduler<'a> {
    fn new(processes: &'a mut [Process], time: Duration) -> Self {
        let count = processes.len();
        let share = time.min(LONG_HOLD_EVERY) / count as u32;
        Self {
            processes,
            began: Instant::now(),
            time,
            resting: (0..count * THREADS).map(|id| (Duration::ZERO, id)).collect(),
            under_way: 0,
            turns: vec![0; count * THREADS],
            next_long_hold: (0..count).map(|number| share * number as u32 + share / 2).collect(),
        }
    }

    /// Gives a turn to every contender whose pause is over, until the time is up. Returns false once no turn is in progress.
    fn give_turns(&mut self) -> Result<bool, String> {
        let now = self.began.elapsed();
        if now >= self.time {
            return Ok(self.under_way > 0);
        }
        for (until, id) in std::mem::take(&mut self.resting) {
            if until > now {
                self.resting.push((until, id));
                continue;
            }
            // Irregular, but the same in each run.
            let turn = self.turns[id];
            let count = if (turn + id) % 5 == 4 { 2 } else { 1 };
            let mut hold = Duration::from_millis(20 + (turn * 17 + id * 11) as u64 % 41);
            let number = id / THREADS;
            if now >= self.next_long_hold[number] {
                self.next_long_hold[number] += LONG_HOLD_EVERY;
                hold = LONG_HOLD;
            }
            self.processes[number].take_turn(id % THREADS, count, hold)?;
            self.turns[id] += 1;
            self.under_way += 1;
        }
        Ok(true)
    }

    fn turn_ended(&mut self, id: usize) {
        let variety = (self.turns[id] * 43 + id * 29) as u64;
        let rest = REST_MS.start + variety % (REST_MS.end - REST_MS.start);
        self.resting.push((self.began.elapsed() + Duration::from_millis(rest), id));
        self.under_way -= 1;
    }
}

enum Message {
    /// An event with its time.
    Event(u64, Event),
    Problem(String),
}

enum Event {
    /// A contender reports a step.
    Step { id: usize, step: Step },
    /// MONITOR shows the effect of a script. The script's arguments contain the owner id.
    Monitored { effect: Effect, words: Vec<String> },
}

enum Step {
    Waits,
    /// With the owner id, where it is not known yet.
    Holds(Option<String>),
    /// Is about to release the lock.
    Ends,
    Freed,
}

#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Published,
    /// Handed over within a process, without a message.
    HandedOn,
    Renewed,
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
