//! The fault campaign. Several processes contend for locks while faults hit the server, the network and the processes. Then
//! the rules in `check` and `failovers` judge what happened.
//!
//! The locks guard cells in a file, which no fault touches. Each process logs its holds, and the campaign logs the faults.
//! All times are read from the boot-time clock, where the event happens.

#[cfg(test)]
#[path = "../../tests/chaos/call_delay.rs"]
mod call_delay;
mod check;
mod effects;
mod evictions;
mod failovers;
mod faults;
mod figures;
mod generations;
mod history;
#[allow(dead_code)]
#[path = "../../tests/chaos/keys.rs"]
mod keys;
mod leftovers;
mod processes;
#[path = "../../tests/chaos/random.rs"]
mod random;
mod report;
mod schedule;
mod servers;
mod timeline;
mod witness;
mod word;

use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use check::Violation;
use faults::Testbed;
use generations::Generations;
use history::History;
use processes::{Java, Recipe};

use servers::{Servers, Topology};
use witness::Witness;

use crate::cargo::cargo;
use crate::paths;
use crate::process::Process;
use crate::setup::{self, Clock};

const CLIENTS: usize = keys::CLIENTS as usize;
const LEASE: Duration = Duration::from_secs(2);
/// With failovers: a hold must outlive the change of masters.
const LONG_LEASE: Duration = Duration::from_secs(6);
/// How long a process may take to answer, and to finish its last holds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long the processes need to start, a JVM above all. The first fault comes after that.
const WARM_UP: Duration = Duration::from_millis(schedule::QUIET_MS - 500);
const PROGRESS: Duration = Duration::from_secs(10);
/// How long the last releases may take: a round trip on a busy machine.
const LAST_RELEASES: Duration = Duration::from_millis(250);

struct Options {
    minutes: u64,
    topology: Topology,
    /// How many masters to kill. With `--topology` this replaces all other faults.
    failovers: usize,
    replicated: bool,
    seed: u64,
    faults: Vec<&'static str>,
    kinds: Vec<&'static str>,
    java: Option<String>,
    /// Write the figures into `docs/reliability.md`.
    write_docs: bool,
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let commit = match options.write_docs {
        true => {
            is_complete(&options)?;
            Some(figures::commit(&paths::root())?)
        }
        false => None,
    };
    let clock = if options.faults.contains(&"clock") { Clock::Shifted } else { Clock::Real };
    let environment = setup::run(options.java.as_slice(), clock)?;
    build()?;
    let target = paths::root().join("target/chaos");
    let folder = target.join("run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).map_err(|error| format!("{name}: {error}"))
    };
    write("cells", &[0; keys::CELLS * 8])?;
    write("clock", b"+0")?;

    let clock = environment.faketime.map(|library| (library, folder.join("clock")));
    let single = options.topology == Topology::Single;
    let lease = if single { LEASE } else { LONG_LEASE };
    let lease_ms = lease.as_millis() as u64;
    let plan = match options.topology {
        Topology::Single => schedule::plan(options.seed, options.minutes, &options.faults, CLIENTS),
        Topology::Sentinel | Topology::Cluster => {
            schedule::failovers(options.seed, options.failovers, lease_ms)
        }
    };
    let digest = format!("{:016x}", schedule::digest(&plan));
    println!("chaos: seed {}, {} faults, plan {digest}", options.seed, plan.len());
    for name in options.faults.iter().filter(|name| plan.iter().all(|fault| fault.kind != **name)) {
        if single {
            println!("chaos: NO TIME for {name}: use more --minutes");
        }
    }

    let servers = Servers::start(options.topology, &environment.server, &folder)?;
    let program = paths::root().join("target/debug/examples/chaos");
    let (kinds, replicated) = (options.kinds.clone(), options.replicated);
    let recipe =
        Recipe { program, folder: folder.clone(), seed: options.seed, lease_ms, kinds, replicated, clock };
    let java_kinds =
        options.java.as_ref().map(|version| kinds_of(version, &options.kinds)).unwrap_or_default();
    let mut generations = Generations::open(&folder, &options.kinds, java_kinds.contains(&"semaphore"))?;
    generations.start(&servers)?;
    let (mut proxy, mut urls, mut for_java) = (None, vec![servers.url(); CLIENTS], servers.for_java());
    if single {
        let (before, ports) = recipe.proxy(servers.shards[0].master().port, CLIENTS + 1)?;
        let own = |port: &u16| format!("redis://chaos:{}@127.0.0.1:{port}", processes::PASSWORD);
        urls = ports[..CLIENTS].iter().map(own).collect();
        (proxy, for_java) = (Some(before), format!("127.0.0.1:{}", ports[CLIENTS]));
    }
    let mut clients = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        clients.push(recipe.client(index, index as u64 + 1, url)?);
    }
    for client in &mut clients {
        client.wait_for("ready", TIMEOUT)?;
    }
    let mut java = match &options.java {
        Some(version) => {
            let peer = environment.peers.join(version);
            println!("chaos: Redisson {version} contends for {}", java_kinds.join(", "));
            Some(processes::java(&peer, &recipe, &for_java, &java_kinds)?)
        }
        None => None,
    };
    // A failover may itself leave a lock held for a lease.
    let witness = java.as_ref().filter(|_| single).map(|java| {
        let port = servers.shards[0].master().port;
        Witness::start(port, &java.id, &java_kinds)
    });
    let mut history = History {
        lease_ns: lease.as_nanos() as u64,
        replicated: options.replicated && !single,
        clients: clients.iter().map(|client| word::intern(&client.label)).collect(),
        kinds: options.kinds.clone(),
        java_frees_readers: options.java.as_deref().is_some_and(frees_readers),
        ..History::default()
    };
    let mut testbed =
        Testbed { servers, proxy, urls, clients, started: CLIENTS as u64 + 1, recipe, generations };
    let mut violations = Vec::new();
    let began = Instant::now();
    history.warm = now() + WARM_UP.as_nanos() as u64;
    if let Err(problem) = run_faults(&mut testbed, &plan, &mut history) {
        violations.push(Violation { rule: "the campaign broke off", at: now(), text: problem });
    }
    let lasted_s = began.elapsed().as_secs();
    history.stopped = now();
    if testbed.servers.all_masters_up() {
        violations.extend(stop_and_inspect(&mut testbed, java.as_mut()));
    }
    for master in testbed.servers.masters() {
        history.permits.extend(leftovers::permits(master)?);
    }
    history.named_java = witness.map(Witness::stop).unwrap_or_default();
    history.generations = std::mem::take(&mut testbed.generations.started);
    drop((testbed, java));

    write(
        "faults.txt",
        history.windows.iter().map(|window| format!("{window:?}\n")).collect::<String>().as_bytes(),
    )?;
    history.read(&folder)?;
    let mut judgement = check::judge(&history);
    judgement.add(&failovers::RULES, &history);
    judgement.violations.splice(0..0, violations);
    if single {
        judgement.unexercised.extend(unexercised_faults(&history, &options.faults));
    }
    let command = format!("cargo xtask chaos {}", arguments_of(&options));
    report::write(&target, &command, &digest, &history, &judgement)?;
    report::print(&history, &judgement, &command);
    if let Some(commit) = commit {
        let block = match options.topology {
            Topology::Single => "faults",
            Topology::Sentinel => "sentinel",
            Topology::Cluster => "cluster",
        };
        let (server, redisson) =
            (figures::server(&environment.server)?, options.java.as_deref().unwrap_or_default());
        let run = figures::Run { block, command: &command, lasted_s, server, redisson, seed: options.seed };
        figures::write(&paths::root(), &commit, &run, &history, &judgement)?;
        println!("chaos: updated the figures of {}", figures::PAGE.path);
    }
    Ok(if judgement.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `docs/reliability.md` has the figures of complete campaigns only.
fn is_complete(options: &Options) -> Result<(), String> {
    let (all, every) = (schedule::KINDS.len(), keys::KINDS.len());
    let complete = options.faults.len() == all && options.kinds.len() == every && options.replicated;
    match complete && options.java.is_some() {
        true => Ok(()),
        false => Err("chaos: --write-docs needs a campaign with all faults, all kinds and --java".to_owned()),
    }
}

/// The kinds of fault after which recovery was never observed, because the next fault always came too soon.
fn unexercised_faults(history: &History, kinds: &[&'static str]) -> Vec<&'static str> {
    let judged = |kind: &str| {
        (0..history.windows.len())
            .any(|number| history.windows[number].kind == kind && check::is_judged(history, number))
    };
    kinds.iter().copied().filter(|kind| !judged(kind)).collect()
}

/// Injects one fault after another, and prints a line every ten seconds. A fault that takes longer than planned delays the
/// later ones.
fn run_faults(testbed: &mut Testbed, plan: &[schedule::Fault], history: &mut History) -> Result<(), String> {
    let began = Instant::now();
    let mut printed = Duration::ZERO;
    let mut wait = |until: Instant, testbed: &Testbed, windows: &[history::Window]| {
        while Instant::now() < until {
            if began.elapsed() >= printed + PROGRESS {
                printed += PROGRESS;
                let sum = |at| testbed.clients.iter().map(|client| client.beat(at)).sum::<u64>();
                let (holds, lost) = (sum(1), sum(2));
                let last = windows.last().map_or("none", |window| window.kind);
                println!(
                    "chaos: {:>4} s, {:>3} faults (last: {last}), {holds} holds by running clients, {lost} lost",
                    printed.as_secs(),
                    windows.len(),
                );
            }
            let left = until.saturating_duration_since(Instant::now());
            thread::sleep(left.min(Duration::from_millis(100)));
        }
    };
    for fault in plan {
        wait(Instant::now() + Duration::from_millis(fault.after_ms), testbed, &history.windows);
        let window = testbed.inflict(fault).map_err(|problem| format!("{}: {problem}", fault.kind))?;
        history.windows.push(window);
        for client in &mut testbed.clients {
            if client.has_exited() {
                return Err(format!("{} exited during {}", client.label, fault.kind));
            }
        }
    }
    wait(Instant::now() + Duration::from_millis(schedule::QUIET_MS), testbed, &history.windows);
    Ok(())
}

/// Stops the clients, and reports what they leave on the servers.
fn stop_and_inspect(testbed: &mut Testbed, mut java: Option<&mut Java>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut wrong =
        |text: String| found.push(Violation { rule: "something is left at the end", at: now(), text });
    for client in &mut testbed.clients {
        client.send("stop").unwrap_or_else(&mut wrong);
    }
    if let Some(java) = &mut java {
        java.stop().unwrap_or_else(&mut wrong);
    }
    for client in &mut testbed.clients {
        expect_baseline(client, "settled").unwrap_or_else(&mut wrong);
    }
    // The clients are still connected, and idle. Their last releases are in flight. No lease has to expire first, because
    // the last fault was long enough ago. After a failover, a lease may have to expire.
    let lease = Duration::from_millis(testbed.recipe.lease_ms);
    let until =
        Instant::now() + if testbed.servers.is_single() { Duration::ZERO } else { lease } + LAST_RELEASES;
    let java = java.as_ref().map(|java| java.id.as_str());
    let servers = &testbed.servers;
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
        for channel in server.call(&["PUBSUB", "CHANNELS", "redisson_lock__*"], TIMEOUT).unwrap_or_default() {
            println!(
                "chaos: {channel} still has subscribers: Redisson's, unless a violation is listed below"
            );
        }
    }
    for client in &mut testbed.clients {
        client.send("close").and_then(|()| expect_baseline(client, "closed")).unwrap_or_else(&mut wrong);
    }
    found
}

/// Compares the numbers of tasks and sockets that a client reports with its baseline.
fn expect_baseline(client: &mut Process, word: &str) -> Result<(), String> {
    let numbers = client.wait_for(word, TIMEOUT)?;
    match numbers.split(' ').collect::<Vec<_>>()[..] {
        [tasks, of_tasks, sockets, of_sockets] if tasks == of_tasks && sockets == of_sockets => Ok(()),
        _ => Err(format!("{} {word}: tasks and sockets, each with its baseline: {numbers}", client.label)),
    }
}

/// The kinds that this version of Redisson takes part in. Before 3.52 that is the reentrant lock only.
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
        topology: Topology::Single,
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
        let mut value = || words.next().ok_or(format!("chaos: {word} needs a value"));
        match *word {
            "--write-docs" => options.write_docs = true,
            "--java" => options.java = options.java.or_else(|| Some(latest())),
            "--redisson" => options.java = Some((*value()?).to_owned()),
            "--seed" => {
                options.seed = value()?.parse().map_err(|_| "chaos: --seed takes a complete number")?;
            }
            "--minutes" => match value()?.parse() {
                Ok(minutes @ 1..=10_000) => options.minutes = minutes,
                _ => return Err("chaos: --minutes takes a complete number from 1 to 10000".to_owned()),
            },
            "--topology" => {
                options.topology = match *value()? {
                    "sentinel" => Topology::Sentinel,
                    "cluster" => Topology::Cluster,
                    _ => return Err("chaos: --topology takes sentinel or cluster".to_owned()),
                };
            }
            "--failovers" => {
                options.failovers =
                    value()?.parse().map_err(|_| "chaos: --failovers takes a complete number")?;
            }
            "--replication" => {
                options.replicated = match *value()? {
                    "any" => true,
                    "none" => false,
                    _ => return Err("chaos: --replication takes any or none".to_owned()),
                };
            }
            "--faults" => options.faults = parse_list(&all, value()?, "fault")?,
            "--kinds" => options.kinds = parse_list(&every, value()?, "kind")?,
            _ => return Err(format!("chaos: unknown argument {word:?}")),
        }
    }
    Ok(options)
}

/// Reads a comma-separated list of names.
fn parse_list(all: &[&'static str], names: &str, what: &str) -> Result<Vec<&'static str>, String> {
    let names = names.split(',').map(|name| {
        let known = all.iter().find(|known| **known == name).copied();
        known.ok_or_else(|| format!("chaos: unknown {what} {name:?}; known are {}", all.join(", ")))
    });
    names.collect()
}

/// The arguments that repeat this campaign.
fn arguments_of(options: &Options) -> String {
    let replication = if options.replicated { "any" } else { "none" };
    let mut text = match options.topology {
        Topology::Single => format!("--minutes {}", options.minutes),
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
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--quiet",
        "--package",
        "redisson-lock",
        // The same features as in the tests, so that the library is built once.
        "--all-features",
        "--example",
        "chaos",
        "--target-dir",
        "target",
    ]);
    let status = cargo.current_dir(paths::root()).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err("chaos: the build of tests/chaos failed".to_owned()) }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
