//! The fault campaign: several processes contend for locks while one fault after the other is done to the server, the
//! network and the processes, and then the history of it is judged.
//!
//! What the locks guard is kept outside of the faulted path, in a file. Each process logs its holds; the campaign logs the
//! faults. All times are of the boot-time clock, read where the thing happened.

mod check;
mod effects;
mod eras;
mod evictions;
mod failovers;
mod faults;
mod figures;
mod history;
#[allow(dead_code)]
#[path = "../../tests/torture/keys.rs"]
mod keys;
mod leftovers;
#[cfg(test)]
#[path = "../../tests/torture/path.rs"]
mod path;
mod picture;
mod processes;
#[path = "../../tests/torture/random.rs"]
mod random;
mod report;
mod schedule;
mod servers;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use check::Violation;
use eras::Eras;
use faults::Stage;
use history::History;
use processes::{Java, Recipe};

use servers::{Servers, Topology};

use crate::process::Process;
use crate::setup::{self, Clock};

const CLIENTS: usize = keys::CLIENTS as usize;
const LEASE: Duration = Duration::from_secs(2);
/// Where servers take each other's place: holds are to outlive that.
const LONG_LEASE: Duration = Duration::from_secs(6);
/// The last holds, and what is left of them.
const PATIENCE: Duration = Duration::from_secs(30);
/// Until the processes have what they need from the machine, a JVM above all. The first fault comes after that.
const WARM_UP: Duration = Duration::from_millis(schedule::QUIET_MS - 500);
const PROGRESS: Duration = Duration::from_secs(10);
/// What the last releases may take: a round trip on a busy machine.
const LAST_RELEASES: Duration = Duration::from_millis(250);

struct Options {
    minutes: u64,
    topology: Topology,
    /// In the place of all other faults.
    failovers: usize,
    replicated: bool,
    seed: u64,
    faults: Vec<&'static str>,
    kinds: Vec<&'static str>,
    java: Option<String>,
    /// Writes the figures into the page.
    write_docs: bool,
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let commit = match options.write_docs {
        true => {
            is_whole(&options)?;
            Some(figures::commit(&setup::root())?)
        }
        false => None,
    };
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
    write("cells", &[0; keys::CELLS * 8])?;
    write("clock", b"+0")?;

    let clock = environment.faketime.map(|library| (library, folder.join("clock")));
    let alone = options.topology == Topology::Alone;
    let lease = if alone { LEASE } else { LONG_LEASE };
    let lease_ms = lease.as_millis() as u64;
    let plan = match options.topology {
        Topology::Alone => schedule::plan(options.seed, options.minutes, &options.faults, CLIENTS),
        Topology::Sentinel | Topology::Cluster => {
            schedule::failovers(options.seed, options.failovers, lease_ms)
        }
    };
    let digest = format!("{:016x}", schedule::digest(&plan));
    println!("torture: seed {}, {} faults, plan {digest}", options.seed, plan.len());
    for name in options.faults.iter().filter(|name| plan.iter().all(|fault| fault.kind != **name)) {
        if alone {
            println!("torture: THERE IS NO TIME for {name}");
        }
    }

    let servers = Servers::start(options.topology, &environment.server, &folder)?;
    let program = setup::root().join("target/debug/examples/torture");
    let (kinds, replicated) = (options.kinds.clone(), options.replicated);
    let recipe =
        Recipe { program, folder: folder.clone(), seed: options.seed, lease_ms, kinds, replicated, clock };
    let java_kinds =
        options.java.as_ref().map(|version| kinds_of(version, &options.kinds)).unwrap_or_default();
    let mut eras = Eras::open(&folder, &options.kinds, java_kinds.contains(&"semaphore"))?;
    eras.begin(&servers)?;
    let (mut proxy, mut urls, mut for_java) = (None, vec![servers.url(); CLIENTS], servers.for_java());
    if alone {
        let (before, ports) = recipe.proxy(servers.shards[0].master().port, CLIENTS + 1)?;
        let own = |port: &u16| format!("redis://torture:{}@127.0.0.1:{port}", processes::PASSWORD);
        urls = ports[..CLIENTS].iter().map(own).collect();
        (proxy, for_java) = (Some(before), format!("127.0.0.1:{}", ports[CLIENTS]));
    }
    let mut clients = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        clients.push(recipe.client(index, index as u64 + 1, url)?);
    }
    for client in &mut clients {
        client.hear("ready", PATIENCE)?;
    }
    let mut java = match &options.java {
        Some(version) => {
            let peer = environment.peers.join(version);
            println!("torture: Redisson {version} for {}", java_kinds.join(", "));
            Some(processes::java(&peer, &recipe, &for_java, &java_kinds)?)
        }
        None => None,
    };
    let mut history = History {
        lease_ns: lease.as_nanos() as u64,
        replicated: options.replicated && !alone,
        clients: clients.iter().map(|client| history::kept(&client.label)).collect(),
        kinds: options.kinds.clone(),
        java_frees_readers: options.java.as_deref().is_some_and(frees_readers),
        ..History::default()
    };
    let mut stage = Stage { servers, proxy, urls, clients, started: CLIENTS as u64 + 1, recipe, eras };
    let mut violations = Vec::new();
    let began = Instant::now();
    history.warm = now() + WARM_UP.as_nanos() as u64;
    if let Err(problem) = torment(&mut stage, &plan, &mut history) {
        violations.push(Violation { rule: "the campaign broke off", at: now(), text: problem });
    }
    let lasted_s = began.elapsed().as_secs();
    history.stopped = now();
    if stage.servers.are_whole() {
        violations.extend(wind_up(&mut stage, java.as_mut()));
    }
    for master in stage.servers.masters() {
        history.permits.extend(leftovers::permits(master)?);
    }
    history.eras = std::mem::take(&mut stage.eras.begun);
    drop((stage, java));

    write(
        "faults.txt",
        history.windows.iter().map(|window| format!("{window:?}\n")).collect::<String>().as_bytes(),
    )?;
    history.read(&folder)?;
    let mut judgement = check::judge(&history);
    judgement.add(&failovers::RULES, &history);
    judgement.violations.splice(0..0, violations);
    if alone {
        judgement.unjudged.extend(unjudged_faults(&history, &options.faults));
    }
    let command = format!("cargo xtask torture {}", arguments_of(&options));
    report::write(&target, &command, &digest, &history, &judgement)?;
    report::print(&history, &judgement, &command);
    if let Some(commit) = commit {
        let block = match options.topology {
            Topology::Alone => "faults",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
        };
        let (server, redisson) =
            (figures::server(&environment.server)?, options.java.as_deref().unwrap_or_default());
        let run = figures::Run { block, command: &command, lasted_s, server, redisson, seed: options.seed };
        figures::write(&setup::root(), &commit, &run, &history, &judgement)?;
        println!("torture: wrote the figures into {}", figures::PAGE);
    }
    Ok(if judgement.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The page has the figures of whole campaigns only.
fn is_whole(options: &Options) -> Result<(), String> {
    let (all, every) = (schedule::KINDS.len(), keys::KINDS.len());
    let whole = options.faults.len() == all && options.kinds.len() == every && options.replicated;
    match whole && options.java.is_some() {
        true => Ok(()),
        false => {
            Err("torture: --write-docs is for campaigns of all faults and kinds, beside Java (--java)"
                .to_owned())
        }
    }
}

/// The kinds of fault after which it was never seen that things go on: each fault came too soon before the next one.
fn unjudged_faults(history: &History, kinds: &[&'static str]) -> Vec<&'static str> {
    let judged = |kind: &str| {
        (0..history.windows.len())
            .any(|number| history.windows[number].kind == kind && check::is_judged(history, number))
    };
    kinds.iter().copied().filter(|kind| !judged(kind)).collect()
}

/// One fault after the other, and a line every ten seconds. A fault that takes longer than planned leaves those after it their
/// time.
fn torment(stage: &mut Stage, plan: &[schedule::Fault], history: &mut History) -> Result<(), String> {
    let began = Instant::now();
    let mut told = Duration::ZERO;
    let mut wait = |until: Instant, stage: &Stage, windows: &[history::Window]| {
        while Instant::now() < until {
            if began.elapsed() >= told + PROGRESS {
                told += PROGRESS;
                let sum = |at| stage.clients.iter().map(|client| client.beat(at)).sum::<u64>();
                let (holds, lost) = (sum(1), sum(2));
                let last = windows.last().map_or("none yet", |window| window.kind);
                println!(
                    "torture: {:>4} s, {:>3} faults (last: {last}), {holds} holds of the clients that live, {lost} lost",
                    told.as_secs(),
                    windows.len(),
                );
            }
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    };
    for fault in plan {
        wait(Instant::now() + Duration::from_millis(fault.after_ms), stage, &history.windows);
        let window = stage.inflict(fault).map_err(|problem| format!("{}: {problem}", fault.kind))?;
        history.windows.push(window);
        for client in &mut stage.clients {
            if client.has_ended() {
                return Err(format!("{} ended by itself, at {}", client.label, fault.kind));
            }
        }
    }
    wait(Instant::now() + Duration::from_millis(schedule::QUIET_MS), stage, &history.windows);
    Ok(())
}

/// Ends the work, and looks for what is left of it.
fn wind_up(stage: &mut Stage, mut java: Option<&mut Java>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wrong =
        |text: String| found.push(Violation { rule: "something is left at the end", at: now(), text });
    for client in &mut stage.clients {
        client.say("stop").unwrap_or_else(&mut wrong);
    }
    if let Some(java) = &mut java {
        java.stop().unwrap_or_else(&mut wrong);
    }
    for client in &mut stage.clients {
        hear_levels(client, "settled").unwrap_or_else(&mut wrong);
    }
    // The clients are still there, and want nothing any more. Their last releases are on their way, and no lease has to end: the
    // last fault was long enough ago. After a failover that is not so.
    let lease = Duration::from_millis(stage.recipe.lease_ms);
    let until =
        Instant::now() + if stage.servers.are_alone() { Duration::ZERO } else { lease } + LAST_RELEASES;
    let java = java.as_ref().map(|java| java.id.as_str());
    let servers = &stage.servers;
    let left = || {
        let records = servers.masters().flat_map(|master| leftovers::find(master, java));
        records.chain(servers.nodes().flat_map(leftovers::subscribers)).collect::<Vec<_>>()
    };
    let mut found_left = left();
    while !found_left.is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(20));
        found_left = left();
    }
    found_left.into_iter().for_each(&mut wrong);
    for server in servers.nodes() {
        for channel in server.ask(&["PUBSUB", "CHANNELS", "redisson_lock__*"], PATIENCE).unwrap_or_default() {
            println!(
                "torture: somebody still subscribes to {channel}: Redisson, unless we are told of below"
            );
        }
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

/// Those that a Redisson takes part in: before 3.52 only in the one that all have alike.
fn kinds_of(version: &str, kinds: &[&'static str]) -> Vec<&'static str> {
    let has = |kind: &&&str| match **kind {
        "reentrant" => true,
        "value" => false,
        "nonreentrant" => at_least(version, [4, 4]),
        _ => at_least(version, [3, 52]),
    };
    kinds.iter().filter(has).copied().collect()
}

fn frees_readers(version: &str) -> bool {
    at_least(version, [3, 44]) && !at_least(version, [4, 0])
}

fn at_least(version: &str, least: [u32; 2]) -> bool {
    let numbers = version.split('.').map_while(|part| part.parse().ok());
    numbers.collect::<Vec<u32>>().as_slice() >= least.as_slice()
}

fn read_options(arguments: &[&str]) -> Result<Options, String> {
    let all: Vec<&'static str> = schedule::KINDS.iter().map(|kind| kind.name).collect();
    let every = keys::KINDS.to_vec();
    let mut options = Options {
        minutes: 2,
        topology: Topology::Alone,
        failovers: 30,
        replicated: true,
        seed: 1,
        faults: all.clone(),
        kinds: every.clone(),
        java: None,
        write_docs: false,
    };
    let latest = || setup::default_versions().pop().expect("the list of versions is not empty");
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("torture: {word} lacks its value"));
        match *word {
            "--write-docs" => options.write_docs = true,
            "--java" => options.java = options.java.or_else(|| Some(latest())),
            "--redisson" => options.java = Some((*value()?).to_owned()),
            "--seed" => {
                options.seed = value()?.parse().map_err(|_| "torture: --seed takes a whole number")?;
            }
            "--minutes" => match value()?.parse() {
                Ok(minutes @ 1..=10_000) => options.minutes = minutes,
                _ => return Err("torture: --minutes takes a whole number from 1 on".to_owned()),
            },
            "--topology" => {
                options.topology = match *value()? {
                    "sentinel" => Topology::Sentinel,
                    "cluster" => Topology::Cluster,
                    _ => return Err("torture: --topology is sentinel or cluster".to_owned()),
                };
            }
            "--failovers" => {
                options.failovers =
                    value()?.parse().map_err(|_| "torture: --failovers takes a whole number")?;
            }
            "--replication" => {
                options.replicated = match *value()? {
                    "any" => true,
                    "none" => false,
                    _ => return Err("torture: --replication is any or none".to_owned()),
                };
            }
            "--faults" => options.faults = some_of(&all, value()?, "fault")?,
            "--kinds" => options.kinds = some_of(&every, value()?, "kind")?,
            _ => return Err(format!("torture: cannot read {word:?}")),
        }
    }
    Ok(options)
}

/// Those of a list with commas between.
fn some_of(all: &[&'static str], names: &str, what: &str) -> Result<Vec<&'static str>, String> {
    let names = names.split(',').map(|name| {
        let known = all.iter().find(|known| **known == name).copied();
        known.ok_or_else(|| format!("torture: no {what} is called {name:?}; there are {}", all.join(", ")))
    });
    names.collect()
}

/// With which the same campaign is run again.
fn arguments_of(options: &Options) -> String {
    let replication = if options.replicated { "any" } else { "none" };
    let mut text = match options.topology {
        Topology::Alone => format!("--minutes {}", options.minutes),
        Topology::Sentinel => {
            format!("--topology sentinel --failovers {} --replication {replication}", options.failovers)
        }
        Topology::Cluster => {
            format!("--topology cluster --failovers {} --replication {replication}", options.failovers)
        }
    };
    text += &format!(" --seed {}", options.seed);
    if options.faults.len() < schedule::KINDS.len() {
        text += &format!(" --faults {}", options.faults.join(","));
    }
    if options.kinds.len() < keys::KINDS.len() {
        text += &format!(" --kinds {}", options.kinds.join(","));
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
        // As the tests are built, so that the library is not built twice.
        "--all-features",
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
