//! Threads of a real Redisson and tasks of two Rust processes contend for one lock, in view.
//!
//! The demo gives each contender its turns, one at a time: take the lock, add 1 to a counter by a read and a write
//! that nothing but the lock protects, let go. The contenders tell when they did what; who published which release
//! and renewed which lease is seen in the server's MONITOR. All times are CLOCK_MONOTONIC, read where the thing
//! happened; only MONITOR's are the wall clock of this machine, carried over.

mod process;
mod server;
mod story;

use std::env;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use process::Process;
use rustix::time::{ClockId, clock_gettime};
use story::Story;

use crate::server::Server;
use crate::setup;

const LOCK: &str = "orders";
const CHANNEL: &str = "redisson_lock__channel:{orders}";
const COUNTER: &str = "shipments";
/// Java is told names in base64.
const LOCK64: &str = "b3JkZXJz";
const COUNTER64: &str = "c2hpcG1lbnRz";

/// Threads or tasks of each process.
const THREADS: usize = 3;
/// Shorter than the long holds, which therefore live on renewals.
const LEASE: Duration = Duration::from_millis(1500);
const LONG_HOLD: Duration = Duration::from_millis(1800);
/// Each process has one about this often, and one at least.
const LONG_HOLD_EVERY: Duration = Duration::from_secs(10);
/// How long a contender rests after a turn: the lock is almost always wanted, but not by all at all times.
const REST_MS: std::ops::Range<u64> = 150..350;
/// How long lines are kept back, so that those of different processes come in the order of their times.
const LAG: Duration = Duration::from_millis(150);
/// How often to look for who has rested, and what is to be told.
const TICK: Duration = Duration::from_millis(5);
/// How long the last turns may take, and how long a process its end.
const PATIENCE: Duration = Duration::from_secs(15);

struct Options {
    java: bool,
    time: Duration,
    redisson: String,
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let versions = if options.java { vec![options.redisson.clone()] } else { Vec::new() };
    let environment = setup::run(&versions, setup::Clock::Left)?;
    build_contender()?;

    let server = Server::start(&environment.server, &[])?;
    let mut processes = Vec::new();
    if options.java {
        println!("demo: Redisson {} with {THREADS} threads", options.redisson);
        processes.push(Process::java(&environment.peers.join(&options.redisson), &server)?);
    } else {
        println!("demo: WITHOUT JAVA, because of --no-java: Rust contends with Rust only");
    }
    println!("demo: two Rust processes (debug builds) with {THREADS} tasks each");
    for number in 1..=2 {
        processes.push(Process::rust(number, &server)?);
    }
    println!(
        "demo: all for the lock {LOCK:?} at 127.0.0.1:{}, on leases of {} ms\n",
        server.port,
        LEASE.as_millis()
    );

    let (tell, heard) = channel();
    server::watch(&server, tell.clone())?;
    let mut story = Story::new(&processes);
    let mut problems = Vec::new();
    problems.extend(contend(&mut processes, options.time, &mut story, &tell, &heard).err());
    story.tell(u64::MAX);
    for process in &mut processes {
        problems.extend(process.end().err());
    }
    problems.extend(story.sum_up(server::counter(&server)?));
    for problem in &problems {
        println!("FAILED   {problem}");
    }
    if problems.is_empty() {
        println!("all is well");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

fn read_options(arguments: &[&str]) -> Result<Options, String> {
    let redisson = setup::default_versions().pop().expect("the list of versions is not empty");
    let mut options = Options { java: true, time: Duration::from_secs(10), redisson };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("demo: {word} lacks its value"));
        match *word {
            "--no-java" => options.java = false,
            "--redisson" => options.redisson = (*value()?).to_owned(),
            "--seconds" => match value()?.parse() {
                Ok(seconds @ 1..=3600) => options.time = Duration::from_secs(seconds),
                _ => return Err("demo: --seconds takes a whole number from 1 to 3600".to_owned()),
            },
            _ => return Err(format!("demo: cannot read {word:?}")),
        }
    }
    Ok(options)
}

/// Now, so that the time it takes is not part of the show.
fn build_contender() -> Result<(), String> {
    let status = contender("build").status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("demo: xtask/contender.rs does not build".to_owned()) }
}

fn contender(cargo_command: &str) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([cargo_command, "--quiet", "--package", "redisson-lock", "--example", "contender"]);
    cargo.current_dir(setup::root());
    cargo
}

/// Gives turns until the time is up, and hears all of them to their ends.
fn contend(
    processes: &mut [Process],
    time: Duration,
    story: &mut Story,
    tell: &Sender<Heard>,
    heard: &Receiver<Heard>,
) -> Result<(), String> {
    for (number, process) in processes.iter_mut().enumerate() {
        process.listen(number * THREADS, tell.clone());
    }
    let mut director = Director::new(processes, time);
    while director.give_turns()? {
        match heard.recv_timeout(TICK) {
            Ok(Heard::Problem(problem)) => return Err(problem),
            Ok(Heard::Event(ns, event)) => {
                if let Event::Did { who, deed: Deed::Freed } = event {
                    director.turn_ended(who);
                }
                story.hear(ns, event);
            }
            Err(_) if director.began.elapsed() > time + PATIENCE => {
                return Err(format!("{} contenders are still at their last turn", director.under_way));
            }
            Err(_) => {}
        }
        story.tell(monotonic_ns() - LAG.as_nanos() as u64);
    }
    Ok(())
}

struct Director<'a> {
    processes: &'a mut [Process],
    began: Instant,
    time: Duration,
    /// Who rests, and until when from the beginning.
    resting: Vec<(Duration, usize)>,
    under_way: usize,
    /// By contender, for variety.
    turns: Vec<usize>,
    /// By process, from the beginning.
    next_long_hold: Vec<Duration>,
}

impl<'a> Director<'a> {
    fn new(processes: &'a mut [Process], time: Duration) -> Self {
        let count = processes.len();
        let share = time.min(LONG_HOLD_EVERY) / count as u32;
        Self {
            processes,
            began: Instant::now(),
            time,
            resting: (0..count * THREADS).map(|who| (Duration::ZERO, who)).collect(),
            under_way: 0,
            turns: vec![0; count * THREADS],
            next_long_hold: (0..count).map(|number| share * number as u32 + share / 2).collect(),
        }
    }

    /// To all who have rested, until the time is up. False once nothing is left to wait for.
    fn give_turns(&mut self) -> Result<bool, String> {
        let now = self.began.elapsed();
        if now >= self.time {
            return Ok(self.under_way > 0);
        }
        for (until, who) in std::mem::take(&mut self.resting) {
            if until > now {
                self.resting.push((until, who));
                continue;
            }
            // Irregular, and the same in each run.
            let turn = self.turns[who];
            let count = if (turn + who) % 5 == 4 { 2 } else { 1 };
            let mut hold = Duration::from_millis(20 + (turn * 17 + who * 11) as u64 % 41);
            let number = who / THREADS;
            if now >= self.next_long_hold[number] {
                self.next_long_hold[number] += LONG_HOLD_EVERY;
                hold = LONG_HOLD;
            }
            self.processes[number].take_turn(who % THREADS, count, hold)?;
            self.turns[who] += 1;
            self.under_way += 1;
        }
        Ok(true)
    }

    fn turn_ended(&mut self, who: usize) {
        let variety = (self.turns[who] * 43 + who * 29) as u64;
        let rest = REST_MS.start + variety % (REST_MS.end - REST_MS.start);
        self.resting.push((self.began.elapsed() + Duration::from_millis(rest), who));
        self.under_way -= 1;
    }
}

enum Heard {
    /// With its time.
    Event(u64, Event),
    Problem(String),
}

enum Event {
    /// A contender tells what it did.
    Did { who: usize, deed: Deed },
    /// MONITOR shows what a script did; its owner is among the words with which it was called.
    Seen { act: Act, words: Vec<String> },
}

enum Deed {
    Waits,
    /// Says the owner's text, where that is not yet known.
    Holds(Option<String>),
    /// Is about to let go.
    Ends,
    Freed,
}

#[derive(Clone, Copy, PartialEq)]
enum Act {
    Published,
    /// From one owner of a process to another, without a message.
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
