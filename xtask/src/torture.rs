//! The fault campaign: several processes contend for locks while one fault after the other is done to the server, the
//! network and the processes, and then the history of it is judged.
//!
//! What the locks guard is kept outside of the faulted path, in a file. Each process logs its holds; the campaign logs the
//! faults. All times are of the boot-time clock, read where the thing happened.

mod check;
mod faults;
mod history;
mod picture;
mod processes;
#[path = "../../tests/torture/random.rs"]
mod random;
mod report;
mod schedule;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use check::Violation;
use faults::Stage;
use history::History;
use processes::Recipe;

use crate::process::Process;
use crate::server::Server;
use crate::setup::{self, Clock};

/// Rust processes. Each has seven tasks.
const CLIENTS: usize = 4;
const LEASE: Duration = Duration::from_secs(2);
/// The last holds, and what is left of them.
const PATIENCE: Duration = Duration::from_secs(30);
const PROGRESS: Duration = Duration::from_secs(10);

struct Options {
    minutes: u64,
    seed: u64,
    faults: Vec<&'static str>,
    java: Option<String>,
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let clock = if options.faults.contains(&"clock") { Clock::Moved } else { Clock::Left };
    let environment = setup::run(options.java.as_slice(), clock)?;
    build()?;
    let target = setup::root().join("target/torture");
    let folder = target.join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).map_err(|error| format!("{name}: {error}"))
    };
    write("cells", &[0; 64 * 8])?;
    write("clock", b"+0")?;

    let clock = environment.faketime.map(|library| (library, folder.join("clock")));
    let plan = schedule::plan(options.seed, options.minutes, &options.faults, CLIENTS);
    let digest = format!("{:016x}", schedule::digest(&plan));
    println!("torture: seed {}, {} faults, plan {digest}", options.seed, plan.len());
    for name in options.faults.iter().filter(|name| plan.iter().all(|fault| fault.kind != **name)) {
        println!("torture: THERE IS NO TIME for {name}");
    }

    let arguments = faults::server_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Server::start(&environment.server, &arguments)?;
    let program = setup::root().join("target/debug/examples/torture");
    let lease_ms = LEASE.as_millis() as u64;
    let recipe = Recipe { program, folder: folder.clone(), seed: options.seed, lease_ms, clock };
    let (proxy, ports) = recipe.proxy(server.port, CLIENTS + 1)?;
    let mut clients = Vec::new();
    for (index, port) in ports.iter().enumerate().take(CLIENTS) {
        clients.push(recipe.client(index, index as u64 + 1, *port)?);
    }
    for client in &mut clients {
        client.hear("ready", PATIENCE)?;
    }
    let mut java = match &options.java {
        Some(version) => {
            let peer = environment.peers.join(version);
            println!("torture: Redisson {version} with {} threads", processes::JAVA_THREADS);
            Some(processes::java(&peer, &folder, ports[CLIENTS], options.seed, lease_ms)?)
        }
        None => None,
    };
    let mut history = History {
        lease_ns: LEASE.as_nanos() as u64,
        clients: clients.iter().map(|client| history::kept(&client.label)).collect(),
        ..History::default()
    };
    let port = server.port;
    let mut stage = Stage {
        server: Some(server),
        port,
        program: environment.server,
        proxy,
        ports,
        clients,
        started: CLIENTS as u64 + 1,
        recipe,
    };
    let mut violations = Vec::new();
    let length = Duration::from_secs(options.minutes * 60);
    if let Err(problem) = torment(&mut stage, &plan, length, &mut history) {
        violations.push(Violation { rule: "the campaign broke off", at: now(), text: problem });
    }
    history.stopped = now();
    violations.extend(wind_up(&mut stage, java.as_mut()));
    drop((stage, java));

    history.read(&folder)?;
    violations.extend(check::judge(&history));
    let command = format!("cargo xtask torture {}", arguments_of(&options));
    report::write(&target, &command, &digest, &history, &violations)?;
    report::print(&history, &violations, &command);
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One fault after the other, and a line every ten seconds.
fn torment(
    stage: &mut Stage,
    plan: &[schedule::Fault],
    length: Duration,
    history: &mut History,
) -> Result<(), String> {
    let began = Instant::now();
    let mut told = Duration::ZERO;
    let mut plan = plan.iter().peekable();
    while began.elapsed() < length {
        let due = plan.peek().map_or(length, |fault| Duration::from_millis(fault.at_ms));
        if began.elapsed() >= due.min(length)
            && let Some(fault) = plan.next()
        {
            history
                .windows
                .push(stage.inflict(fault).map_err(|problem| format!("{}: {problem}", fault.kind))?);
            for client in &mut stage.clients {
                if client.has_ended() {
                    return Err(format!("{} ended by itself, at {}", client.label, fault.kind));
                }
            }
        }
        if began.elapsed() >= told + PROGRESS {
            told += PROGRESS;
            let sum = |at| stage.clients.iter().map(|client| client.beat(at)).sum::<u64>();
            let (holds, lost) = (sum(1), sum(2));
            let last = history.windows.last().map_or("none yet", |window| window.kind);
            println!(
                "torture: {:>4} s, {:>3} faults (last: {last}), {holds} holds of the clients that live, {lost} lost",
                told.as_secs(),
                history.windows.len(),
            );
        }
        thread::sleep(due.saturating_sub(began.elapsed()).min(Duration::from_millis(100)));
    }
    Ok(())
}

/// Ends the work, and looks for what is left of it.
fn wind_up(stage: &mut Stage, mut java: Option<&mut Process>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wrong =
        |text: String| found.push(Violation { rule: "something is left at the end", at: now(), text });
    for client in &mut stage.clients {
        client.say("stop").unwrap_or_else(&mut wrong);
    }
    if let Some(java) = &mut java {
        processes::stop_java(java).unwrap_or_else(&mut wrong);
    }
    for client in &mut stage.clients {
        hear_levels(client, "settled").unwrap_or_else(&mut wrong);
    }
    // The clients are still there, and want nothing any more. The last release of a hold may be its lease.
    let until = Instant::now() + LEASE + Duration::from_secs(1);
    let server = stage.server();
    let mut left = leftovers(server);
    while !left.is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
        left = leftovers(server);
    }
    left.into_iter().for_each(&mut wrong);
    for channel in server.ask(&["PUBSUB", "CHANNELS", "redisson_lock__*"], PATIENCE).unwrap_or_default() {
        println!("torture: somebody still subscribes to {channel}: Redisson, unless we are told of below");
    }
    for client in &mut stage.clients {
        client.say("close").and_then(|()| hear_levels(client, "closed")).unwrap_or_else(&mut wrong);
    }
    found
}

/// What a client has of tasks and sockets, each beside what it should be.
fn hear_levels(client: &mut Process, word: &str) -> Result<(), String> {
    let numbers = client.hear(word, PATIENCE)?;
    match numbers.split(' ').collect::<Vec<_>>()[..] {
        [tasks, of_tasks, sockets, of_sockets] if tasks == of_tasks && sockets == of_sockets => Ok(()),
        _ => Err(format!("{} {word}: tasks and sockets, each of: {numbers}", client.label)),
    }
}

/// Keys, and subscriptions of our clients, which are known by their user: what Redisson leaves is its own affair.
fn leftovers(server: &Server) -> Vec<String> {
    let ask = |words: &[&str]| server.ask(words, PATIENCE).unwrap_or_else(|problem| vec![problem]);
    let mut left = ask(&["KEYS", "*"]);
    for subscribers in ask(&["CLIENT", "LIST", "TYPE", "pubsub"]) {
        let ours = subscribers.lines().filter(|line| line.contains(" user=torture "));
        left.extend(ours.map(str::to_owned));
    }
    left
}

fn read_options(arguments: &[&str]) -> Result<Options, String> {
    let all: Vec<&'static str> = schedule::KINDS.iter().map(|kind| kind.name).collect();
    let mut options = Options { minutes: 2, seed: 1, faults: all.clone(), java: None };
    let latest = || setup::default_versions().pop().expect("the list of versions is not empty");
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("torture: {word} lacks its value"));
        match *word {
            "--java" => options.java = options.java.or_else(|| Some(latest())),
            "--redisson" => options.java = Some((*value()?).to_owned()),
            "--seed" => {
                options.seed = value()?.parse().map_err(|_| "torture: --seed takes a whole number")?;
            }
            "--minutes" => match value()?.parse() {
                Ok(minutes @ 1..=10_000) => options.minutes = minutes,
                _ => return Err("torture: --minutes takes a whole number from 1 on".to_owned()),
            },
            "--faults" => {
                options.faults.clear();
                for name in value()?.split(',') {
                    let known = all.iter().find(|known| **known == name);
                    let known = known.ok_or_else(|| {
                        format!("torture: no fault is called {name:?}; there are {}", all.join(", "))
                    })?;
                    options.faults.push(known);
                }
            }
            _ => return Err(format!("torture: cannot read {word:?}")),
        }
    }
    Ok(options)
}

/// With which the same campaign is run again.
fn arguments_of(options: &Options) -> String {
    let mut text = format!("--minutes {} --seed {}", options.minutes, options.seed);
    if options.faults.len() < schedule::KINDS.len() {
        text += &format!(" --faults {}", options.faults.join(","));
    }
    if let Some(version) = &options.java {
        text += &format!(" --java --redisson {version}");
    }
    text
}

fn build() -> Result<(), String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "redisson-lock",
        "--example",
        "torture",
        "--target-dir",
        "target",
    ]);
    let status = cargo.current_dir(setup::root()).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("torture: tests/torture does not build".to_owned()) }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
