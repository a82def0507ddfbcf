//! The scenarios and their targets.

use std::collections::BTreeMap;

use super::report::{Table, Target};
use super::rounds::{Measured, TWO_TRIPS, ratio, rotated, rounds};
use super::sample::{Figures, Sample, Samples, rate};
use super::testbed::{TUNED, Testbed, UNCOUNTED};
use super::{Effort, clients, cluster, many};

pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(&mut Testbed, &Effort) -> Result<Table, String>,
}

pub const ALL: &[Scenario] = &[
    Scenario { name: "uncontended", title: "One key per worker", run: uncontended },
    Scenario {
        name: "observed",
        title: "One key per worker, with counters, an observer and metrics",
        run: observed,
    },
    Scenario { name: "contended", title: "One key, one process", run: contended },
    Scenario { name: "turns", title: "Two processes alternating on one key", run: clients::turns },
    Scenario { name: "mixed", title: "16 Rust tasks and 8 Java threads on one key", run: clients::mixed },
    Scenario {
        name: "crowd",
        title: "Many clients of one task, one key, holds of 1 ms",
        run: clients::crowd,
    },
    Scenario { name: "threads", title: "The API for threads, one key per worker", run: threads },
    Scenario { name: "kinds", title: "The other kinds, 64 workers of one process", run: kinds },
    Scenario { name: "cluster", title: "One key per worker, in a cluster", run: cluster::run },
    Scenario { name: "held", title: "Locks held and renewed", run: many::held },
    Scenario { name: "memory", title: "The memory of 100,000 locks, held and dropped", run: many::memory },
    Scenario {
        name: "waiting",
        title: "10,000 tasks waiting for 10,000 keys of another process",
        run: many::waiting,
    },
];

/// The two requests of a hold as redis-rs sends them.
const NO_LUA: &str = "raw, no Lua";

/// The calls of these commands for each hold.
fn calls(sample: &Sample, commands: &[&str]) -> f64 {
    commands.iter().map(|name| sample.get(name)).filter(|n| !n.is_nan()).sum::<f64>() / sample.get("holds")
}

fn scripts(sample: &Sample) -> f64 {
    calls(sample, &["server.evalsha", "server.eval"])
}

/// The requests for a lock: scripts, `RESTORE` and transactions.
fn requests(sample: &Sample) -> f64 {
    scripts(sample) + calls(sample, &["server.restore", "server.exec"])
}

fn publishes(sample: &Sample) -> f64 {
    calls(sample, &["server.publish"])
}

/// The rows of the scenarios with workers.
fn tabulate(measured: &Measured, libraries: &[&'static str]) -> Table {
    let mut table = Table::new(
        "holds per second",
        &[
            "workers",
            "library",
            "holds per second",
            "±",
            "client us per hold",
            "server us per hold",
            "scripts",
            "publishes",
            "to raw",
            "to Redisson",
            "max / min",
            "allocations",
        ],
    );
    let mut counts: Vec<usize> = measured.keys().map(|(workers, _)| *workers).collect();
    counts.dedup();
    for workers in counts {
        for &library in libraries {
            let Some(samples) = measured.get(&(workers, library)) else { continue };
            let to = |other| ratio(measured, workers, (library, other), rate);
            table.bar(&format!("{workers}"), library, samples.median(rate));
            table.row(&[
                format!("{workers}"),
                library.to_owned(),
                format!("{:.0}", samples.median(rate)),
                format!("{:.0} %", samples.figures(rate).spread() * 100.0),
                format!("{:.1}", samples.median(|s| s.per_hold("cpu")) * 1e6),
                format!("{:.1}", samples.median(|s| s.per_hold("server.cpu")) * 1e6),
                format!("{:.2}", samples.median(scripts)),
                format!("{:.2}", samples.median(publishes)),
                format!("{:.2}", to("raw").median()),
                format!("{:.2}", to("Redisson").median()),
                format!("{:.1}", samples.median(|s| s.get("most") / s.get("least"))),
                format!("{:.1}", samples.median(|s| s.get("allocations"))),
            ]);
        }
    }
    table
}

fn uncontended(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const LIBRARIES: [&str; 8] =
        ["ours", "ours, scripts", "raw", NO_LUA, "Redisson", TUNED, "rlock", "rslock"];
    let counts = [1, 16, 64, 256];
    let measured = rounds(testbed, effort, "uncontended", &counts, &LIBRARIES)?;
    let mut table = tabulate(&measured, &LIBRARIES);
    for workers in counts {
        let rate = redis_benchmark(testbed, workers)?;
        table.bar(&format!("{workers}"), "redis-benchmark", rate);
        let mut row =
            vec![format!("{workers}"), "redis-benchmark, one script".to_owned(), format!("{rate:.0}")];
        row.resize(12, String::new());
        table.row(&row);
    }
    testbed.call(&["DEL", BENCHMARKED])?;
    for (workers, peers, redisson) in [(1, 1.0, 1.5), (16, 1.0, 10.0), (64, 1.0, 12.0), (256, 1.15, 12.0)] {
        let to = |other| ratio(&measured, workers, ("ours", other), rate);
        for (other, aim) in [(NO_LUA, 0.95), ("rslock", peers), ("rlock", peers), ("Redisson", redisson)] {
            table.target(Target::least(format!("{workers} workers, to {other}"), aim, to(other)));
        }
        let client = ratio(&measured, workers, ("ours", NO_LUA), |s| s.per_hold("cpu"));
        table.target(Target::most(
            format!("{workers} workers, client CPU per hold, to {NO_LUA}"),
            1.1,
            client,
        ));
        let server = ratio(&measured, workers, ("ours", "raw"), |s| s.per_hold("server.cpu"));
        table.target(Target::most(format!("{workers} workers, server CPU per hold, to raw"), 0.55, server));
        let scripts = ratio(&measured, workers, ("ours, scripts", "raw"), rate);
        table.target(Target::least(format!("{workers} workers, scripts only, to raw"), 1.0, scripts));
    }
    Ok(table)
}

/// The cost of counters, of an observer, and of metrics with a recorder.
fn observed(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const WORKERS: usize = 64;
    const LIBRARIES: [&str; 4] = [UNCOUNTED, "ours", "ours, observed", "ours, metrics"];
    // The ratios are close to 1, so each counts only as the median of three rounds.
    let effort = Effort { rounds: 3 * effort.rounds, ..*effort };
    let measured = rounds(testbed, &effort, "uncontended", &[WORKERS], &LIBRARIES)?;
    let mut table = tabulate(&measured, &LIBRARIES);
    for (library, aim) in LIBRARIES.into_iter().skip(1).zip([0.98, 0.97, 0.93]) {
        let to = ratio(&measured, WORKERS, (library, UNCOUNTED), rate).by_threes();
        table.target(Target::least(format!("{library}: holds, to {UNCOUNTED}"), aim, to));
    }
    Ok(table)
}

/// The key of redis-benchmark.
const BENCHMARKED: &str = "benchmark";

/// Calls per second of a script that acquires and re-enters a lock.
fn redis_benchmark(testbed: &Testbed, clients: usize) -> Result<f64, String> {
    let script = "redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2])";
    let sha = testbed.call(&["SCRIPT", "LOAD", script])?.concat();
    let requests = if clients == 1 { "10000" } else { "50000" };
    let output = std::process::Command::new("redis-benchmark")
        .args(["-p", &testbed.server.port.to_string(), "-c", &clients.to_string(), "-n", requests, "--csv"])
        .args(["EVALSHA", &sha, "1", BENCHMARKED, "owner", "30000"])
        .output()
        .map_err(|error| format!("redis-benchmark: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate =
        text.lines().last().and_then(|line| line.split("\",\"").nth(1)?.trim_matches('"').parse().ok());
    rate.ok_or_else(|| format!("cannot parse the output of redis-benchmark: {text}"))
}

fn contended(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const LIBRARIES: [&str; 8] =
        ["ours", "ours, pipelined", TWO_TRIPS, "Redisson", TUNED, "rlock", "rslock", "tokio"];
    let counts = [2, 16, 64, 256, 1024];
    let measured = rounds(testbed, effort, "contended", &counts, &LIBRARIES)?;
    let mut table = tabulate(&measured, &LIBRARIES);
    let crowds = &counts[1..];
    for (workers, redisson) in counts.into_iter().zip([3.2, 3.5, 3.5, 3.5, 3.5]) {
        let samples = &measured[&(workers, "ours")];
        let to = |other| ratio(&measured, workers, ("ours", other), rate);
        table.target(Target::most(
            format!("{workers} workers, requests per hold"),
            1.1,
            samples.figures(requests),
        ));
        let trips = Figures(to(TWO_TRIPS).0.iter().map(|ratio| ratio / 2.0).collect());
        table.target(Target::least(format!("{workers} workers, to one round trip per hold"), 0.95, trips));
        if crowds.contains(&workers) {
            let to_best = to_best(&measured, workers, crowds);
            table.target(Target::least(
                format!("{workers} workers, to the best of 16 to 1024"),
                0.9,
                to_best,
            ));
        }
        table.target(Target::least(format!("{workers} workers, to Redisson"), redisson, to("Redisson")));
        let fair = samples.figures(|s| s.get("most") / s.get("least"));
        table.target(Target::most(format!("{workers} workers, max / min holds of a worker"), 1.5, fair));
        let piped = "ours, pipelined";
        let to = |other| ratio(&measured, workers, (piped, other), rate);
        table.target(Target::least(
            format!("{workers} workers, pipelined, to Redisson"),
            100.0,
            to("Redisson"),
        ));
        table.target(Target::least(
            format!("{workers} workers, pipelined, to tokio's Mutex"),
            0.25,
            to("tokio"),
        ));
        let few = measured[&(workers, piped)].figures(requests);
        table.target(Target::most(format!("{workers} workers, pipelined, requests per hold"), 0.1, few));
    }
    Ok(table)
}

/// Our rate with `workers` to our best rate with any number of `crowds`, in each round.
fn to_best(measured: &Measured, workers: usize, crowds: &[usize]) -> Figures {
    let rate_of = |workers: usize, round: usize| rate(&measured[&(workers, "ours")].0[round]);
    let best = |round| crowds.iter().map(|&crowd| rate_of(crowd, round)).fold(0.0, f64::max);
    let rounds = measured[&(workers, "ours")].0.len();
    Figures((0..rounds).map(|round| rate_of(workers, round) / best(round)).collect())
}

/// The API for threads beside the one for tasks, and beside threads that use redis-rs.
fn threads(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const WORKERS: usize = 64;
    const TASKS: &str = "64 tasks";
    const THREADS: &str = "64 threads";
    const RAW_TASKS: &str = "64 tasks, raw, no Lua";
    const RAW: &str = "64 threads, raw, no Lua";
    /// With the row of the same library's tasks.
    const ROWS: [(&str, &str, &str, &str); 4] = [
        (TASKS, "ours", "uncontended", TASKS),
        (THREADS, "ours", "threads", TASKS),
        (RAW_TASKS, NO_LUA, "uncontended", RAW_TASKS),
        (RAW, NO_LUA, "threads", RAW_TASKS),
    ];
    let head = ["workers", "holds per second", "±", "client us per hold", "to tasks"];
    let mut table = Table::new("holds per second", &head);
    let mut measured: BTreeMap<&str, Samples> = BTreeMap::new();
    for round in 0..effort.rounds {
        for (row, library, command, _) in rotated(&ROWS, round) {
            let sample = testbed.measure(library, &format!("{command} {WORKERS} {}", effort.seconds))?;
            measured.entry(row).or_default().0.push(sample);
        }
    }
    let to = |row: &str, other: &str| {
        let pairs = measured[row].0.iter().zip(&measured[other].0);
        Figures(pairs.map(|(one, other)| rate(one) / rate(other)).collect())
    };
    for (row, .., tasks) in ROWS {
        let rates = measured[row].figures(rate);
        table.bar("", row, rates.median());
        table.row(&[
            row.to_owned(),
            format!("{:.0}", rates.median()),
            format!("{:.0} %", rates.spread() * 100.0),
            format!("{:.1}", measured[row].median(|sample| sample.per_hold("cpu") * 1e6)),
            format!("{:.2}", to(row, tasks).median()),
        ]);
    }
    for (other, aim) in [(TASKS, 0.8), (RAW, 0.95)] {
        table.target(Target::least(format!("{THREADS}, to {other}"), aim, to(THREADS, other)));
    }
    Ok(table)
}

/// Each kind, on a key for each worker and on one key.
fn kinds(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const WORKERS: usize = 64;
    /// redis-rs with the least scripts is the floor for keys of their own. Nothing of it serves waiters.
    const FLOOR: &str = "raw";
    const OWN: [&str; 3] = ["ours", "Redisson", FLOOR];
    const ONE: [&str; 3] = ["ours", "Redisson", TWO_TRIPS];
    /// With the least ratios to Redisson: on keys of their own, and on one key.
    const KINDS: [(&str, [f64; 2]); 8] = [
        ("fair", [5.0, 1.5]),
        ("fenced", [5.0, 3.0]),
        ("read", [5.0, 3.0]),
        ("write", [5.0, 3.0]),
        ("spin", [5.0, 3.0]),
        ("semaphore", [5.0, 3.0]),
        ("expirable", [5.0, 3.0]),
        // Redisson has no such lock. Its plain lock takes the place.
        ("value", [5.0, 3.0]),
    ];
    let head = [
        "kind",
        "keys",
        "ours, holds per second",
        "±",
        "Redisson",
        "±",
        "to Redisson",
        "least scripts, to Redisson",
        "to one round trip",
    ];
    let mut table = Table::new("holds per second", &head);
    for (kind, aims) in KINDS {
        for ((keys, libraries), aim) in [("own", OWN), ("one", ONE)].into_iter().zip(aims) {
            let measured = rounds(testbed, effort, &format!("kind {kind} {keys}"), &[WORKERS], &libraries)?;
            let floor = ratio(&measured, WORKERS, (FLOOR, "Redisson"), rate).median();
            let to_redisson = ratio(&measured, WORKERS, ("ours", "Redisson"), rate);
            let of = |library| measured[&(WORKERS, library)].figures(rate);
            let (ours, theirs) = (of("ours"), of("Redisson"));
            // A lock that is handed on needs one round trip for each hold, so this is the limit of one key with one holder.
            let to_trip = ratio(&measured, WORKERS, ("ours", TWO_TRIPS), rate).median() / 2.0;
            table.bar(&format!("{kind}, {keys}"), "ours", ours.median());
            table.bar(&format!("{kind}, {keys}"), "Redisson", theirs.median());
            table.row(&[
                kind.to_owned(),
                keys.to_owned(),
                format!("{:.0}", ours.median()),
                format!("{:.0} %", ours.spread() * 100.0),
                format!("{:.0}", theirs.median()),
                format!("{:.0} %", theirs.spread() * 100.0),
                format!("{:.1}", to_redisson.median()),
                format!("{floor:.1}"),
                format!("{to_trip:.2}"),
            ]);
            table.target(Target::least(format!("{kind}, {keys}: to Redisson"), aim, to_redisson));
            testbed.call(&["FLUSHALL"])?;
        }
    }
    Ok(table)
}
