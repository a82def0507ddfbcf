//! The scenarios and their targets.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::report::{Table, Target};
use super::sample::{Figures, Sample, Samples, percentile, rate};
use super::testbed::{TUNED, Testbed};
use super::{Effort, cluster};
use crate::setup;

pub struct Scenario {
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(&mut Testbed, &Effort) -> Result<Table, String>,
}

pub const ALL: &[Scenario] = &[
    Scenario { name: "uncontended", title: "One key per worker", run: uncontended },
    Scenario { name: "contended", title: "One key, one process", run: contended },
    Scenario { name: "turns", title: "Two processes alternating on one key", run: turns },
    Scenario { name: "mixed", title: "16 Rust tasks and 8 Java threads on one key", run: mixed },
    Scenario { name: "cluster", title: "One key per worker, in a cluster", run: cluster::run },
    Scenario { name: "held", title: "Locks held and renewed", run: held },
    Scenario {
        name: "waiting",
        title: "10,000 tasks waiting for 10,000 keys of another process",
        run: waiting,
    },
];

pub type Measured = BTreeMap<(usize, &'static str), Samples>;

/// Takes the place of a library: one worker of redis-rs on its own key, which needs two round trips per hold.
const TWO_TRIPS: &str = "raw, two round trips";

/// Measures every library with every number of workers, in turn. Each round begins with another library.
pub fn rounds(
    testbed: &mut Testbed,
    effort: &Effort,
    command: &str,
    workers: &[usize],
    libraries: &[&'static str],
) -> Result<Measured, String> {
    let mut measured = Measured::new();
    for round in 0..effort.rounds {
        for &workers in workers {
            for &library in &rotated(libraries, round) {
                // The first measurement of a JVM only warms up its compiler.
                if round == 0 && ["Redisson", TUNED].contains(&library) {
                    testbed.measure(library, &format!("{command} {workers} 1"))?;
                }
                let (name, work) = match library {
                    TWO_TRIPS => ("raw", "uncontended 1".to_owned()),
                    _ => (library, format!("{command} {workers}")),
                };
                let sample = testbed.measure(name, &format!("{work} {}", effort.seconds))?;
                measured.entry((workers, library)).or_default().0.push(sample);
            }
        }
    }
    Ok(measured)
}

/// Rotates the order in each round: a library that follows a busy one finds a warm processor, and a hot one.
fn rotated<T: Clone>(all: &[T], round: usize) -> Vec<T> {
    let mut all = all.to_vec();
    let first = round % all.len();
    all.rotate_left(first);
    all
}

/// The ratio of `figure` for two libraries, in each round.
pub fn ratio(
    measured: &Measured,
    workers: usize,
    (one, other): (&'static str, &'static str),
    figure: impl Fn(&Sample) -> f64,
) -> Figures {
    let (Some(one), Some(other)) = (measured.get(&(workers, one)), measured.get(&(workers, other))) else {
        return Figures::default();
    };
    Figures(one.0.iter().zip(&other.0).map(|(one, other)| figure(one) / figure(other)).collect())
}

fn scripts(sample: &Sample) -> f64 {
    ["server.evalsha", "server.eval"].map(|name| sample.get(name)).iter().filter(|n| !n.is_nan()).sum::<f64>()
        / sample.get("holds")
}

fn publishes(sample: &Sample) -> f64 {
    let calls = sample.get("server.publish");
    if calls.is_nan() { 0.0 } else { calls / sample.get("holds") }
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
        ["ours", "ours, scripts", "raw", "raw, no Lua", "Redisson", TUNED, "rlock", "rslock"];
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
    for (workers, raw, rslock, redisson) in
        [(1, 0.95, 1.0, 1.5), (16, 1.2, 1.1, 10.0), (64, 1.2, 1.1, 12.0), (256, 1.2, 1.1, 12.0)]
    {
        let to = |other| ratio(&measured, workers, ("ours", other), rate);
        table.target(Target::least(format!("{workers} workers, to raw"), raw, to("raw")));
        table.target(Target::least(format!("{workers} workers, to rslock"), rslock, to("rslock")));
        table.target(Target::least(format!("{workers} workers, to Redisson"), redisson, to("Redisson")));
        let client = ratio(&measured, workers, ("raw", "ours"), |s| s.per_hold("cpu"));
        table.target(Target::least(format!("{workers} workers, holds per client CPU, to raw"), 0.75, client));
        let server = ratio(&measured, workers, ("ours", "raw"), |s| s.per_hold("server.cpu"));
        table.target(Target::most(format!("{workers} workers, server CPU per hold, to raw"), 0.55, server));
        let scripts = ratio(&measured, workers, ("ours, scripts", "raw"), rate);
        table.target(Target::least(format!("{workers} workers, scripts only, to raw"), 1.0, scripts));
    }
    Ok(table)
}

/// Calls per second of a script that acquires and re-enters a lock.
fn redis_benchmark(testbed: &Testbed, clients: usize) -> Result<f64, String> {
    let script = "redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2])";
    let sha = testbed.call(&["SCRIPT", "LOAD", script])?.concat();
    let requests = if clients == 1 { "10000" } else { "50000" };
    let output = std::process::Command::new("redis-benchmark")
        .args(["-p", &testbed.server.port.to_string(), "-c", &clients.to_string(), "-n", requests, "--csv"])
        .args(["EVALSHA", &sha, "1", "benchmark", "owner", "30000"])
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
    let counts = [2, 16, 64, 256];
    let measured = rounds(testbed, effort, "contended", &counts, &LIBRARIES)?;
    let mut table = tabulate(&measured, &LIBRARIES);
    for (workers, redisson) in [(2, 3.2), (16, 3.5), (64, 3.5), (256, 3.5)] {
        let samples = &measured[&(workers, "ours")];
        let to = |other| ratio(&measured, workers, ("ours", other), rate);
        table.target(Target::most(
            format!("{workers} workers, scripts per hold"),
            1.1,
            samples.figures(scripts),
        ));
        let trips = Figures(to(TWO_TRIPS).0.iter().map(|ratio| ratio / 2.0).collect());
        table.target(Target::least(format!("{workers} workers, to one round trip per hold"), 0.9, trips));
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
            0.1,
            to("tokio"),
        ));
        let few = measured[&(workers, piped)].figures(scripts);
        table.target(Target::most(format!("{workers} workers, pipelined, scripts per hold"), 0.1, few));
    }
    Ok(table)
}

/// Times in us of one library's hand-overs between two processes, and of its unlocks.
fn hand_overs(testbed: &mut Testbed, library: &str, seconds: f64) -> Result<(Vec<f64>, Vec<f64>), String> {
    let names = [library.to_owned(), format!("{library}/2")];
    let files: Vec<_> = (0..2).map(|n| setup::target().join(format!("bench-turns-{n}"))).collect();
    for name in &names {
        testbed.process(name)?;
    }
    for (name, file) in names.iter().zip(&files) {
        testbed.send(name, &format!("turns {seconds} {}", file.display()))?;
    }
    for name in &names {
        testbed.wait_for(name, "done")?;
    }
    let mut holds = Vec::new();
    for (process, file) in files.iter().enumerate() {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        for line in text.lines() {
            let times: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [locked, unlocking, unlocked] = times[..] else { return Err(format!("turns: {line}")) };
            holds.push((locked, process, unlocking, unlocked));
        }
    }
    holds.sort_unstable();
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let between = holds.windows(2).filter(|two| two[0].1 != two[1].1);
    let turns = between.map(|two| us(two[0].2, two[1].0)).collect();
    let unlocks = holds.iter().map(|hold| us(hold.2, hold.3)).collect();
    Ok((turns, unlocks))
}

fn turns(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    let mut table =
        Table::new("us, p50", &["library", "hand-overs", "p50 us", "p90 us", "p99 us", "unlock p50 us"]);
    let libraries = ["ours", "raw", "Redisson", TUNED];
    let mut all: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    // The median and the 99th percentile of each round.
    let mut each: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for round in 0..effort.rounds {
        for library in rotated(&libraries, round) {
            if round == 0 && ["Redisson", TUNED].contains(&library) {
                hand_overs(testbed, library, 1.0)?;
            }
            let (mut turns, unlocks) = hand_overs(testbed, library, effort.seconds)?;
            turns.sort_by(f64::total_cmp);
            let [middle, late] = each.entry(library).or_default();
            middle.push(percentile(&turns, 0.5));
            late.push(percentile(&turns, 0.99));
            let both = all.entry(library).or_default();
            both.0.extend(turns);
            both.1.extend(unlocks);
        }
    }
    for (library, (turns, unlocks)) in &mut all {
        turns.sort_by(f64::total_cmp);
        unlocks.sort_by(f64::total_cmp);
        let at = |part| percentile(turns, part);
        table.bar("p50", library, at(0.5));
        table.bar("p99", library, at(0.99));
        table.row(&[
            (*library).to_owned(),
            turns.len().to_string(),
            format!("{:.0}", at(0.5)),
            format!("{:.0}", at(0.9)),
            format!("{:.0}", at(0.99)),
            format!("{:.0}", percentile(unlocks, 0.5)),
        ]);
    }
    let to = |other, which: usize| {
        let pairs = each["ours"][which].iter().zip(&each[other][which]);
        Figures(pairs.map(|(ours, other): (&f64, &f64)| ours / other).collect())
    };
    table.target(Target::most("p50, to raw".into(), 1.15, to("raw", 0)));
    table.target(Target::most("p50, to Redisson".into(), 0.5, to("Redisson", 0)));
    table.target(Target::most("p99, to Redisson".into(), 0.5, to("Redisson", 1)));
    for library in libraries {
        testbed.stop(&format!("{library}/2"));
    }
    Ok(table)
}

fn mixed(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    let mut table = Table::new(
        "holds per second",
        &["library", "workers", "holds per second", "±", "share", "fair share"],
    );
    let seconds = effort.seconds.max(2.0);
    let sides = [("ours", 16_usize), ("Redisson", 8)];
    let workers: usize = sides.iter().map(|(_, workers)| workers).sum();
    // One value for each round.
    let mut rates: BTreeMap<&str, Figures> = BTreeMap::new();
    let mut shares: BTreeMap<&str, Figures> = BTreeMap::new();
    for round in 0..effort.rounds {
        for (name, workers) in rotated(&sides, round) {
            testbed.send(name, &format!("contended {workers} {seconds}"))?;
        }
        let mut of_round = Vec::new();
        for (name, _) in sides {
            testbed.wait_for(name, "begin")?;
            let sample = Sample::read(&testbed.wait_for(name, "end")?);
            of_round.push((name, rate(&sample)));
        }
        for (name, _) in sides {
            testbed.wait_for(name, "done")?;
        }
        let all: f64 = of_round.iter().map(|(_, rate)| rate).sum();
        for (name, rate) in of_round {
            rates.entry(name).or_default().0.push(rate);
            shares.entry(name).or_default().0.push(rate / all);
        }
    }
    for (name, of_name) in sides {
        let fair = of_name as f64 / workers as f64;
        let (rate, share) = (&rates[name], &shares[name]);
        table.bar("", name, rate.median());
        table.row(&[
            name.to_owned(),
            of_name.to_string(),
            format!("{:.0}", rate.median()),
            format!("{:.0} %", rate.spread() * 100.0),
            format!("{:.0} %", share.median() * 100.0),
            format!("{:.0} %", fair * 100.0),
        ]);
        let to_fair = Figures(share.0.iter().map(|share| share / fair).collect());
        table.target(Target::least(format!("{name}: share, to the fair share"), 0.25, to_fair));
    }
    Ok(table)
}

fn held(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    let mut table = Table::new(
        "% of a core of the client",
        &[
            "library",
            "held",
            "client CPU",
            "±",
            "server CPU",
            "bytes per lock",
            "min TTL s",
            "scripts over 1 ms",
            "renewal scripts per second, max / mean",
        ],
    );
    for &count in effort.held {
        let libraries: &[&'static str] = if count <= 100_000 { &["ours", "Redisson"] } else { &["ours"] };
        let mut measured: BTreeMap<&str, Samples> = BTreeMap::new();
        for round in 0..effort.long_rounds {
            for library in rotated(libraries, round) {
                let sample = hold(testbed, library, count, effort.idle)?;
                measured.entry(library).or_default().0.push(sample);
            }
        }
        for &library in libraries {
            let samples = &measured[library];
            let part = |cpu: &'static str| {
                samples.figures(move |sample| sample.get(cpu) / sample.get("seconds") * 100.0)
            };
            let of = |name: &'static str| samples.figures(move |sample| sample.get(name));
            table.bar(&count.to_string(), library, part("cpu").median());
            table.row(&[
                library.to_owned(),
                count.to_string(),
                format!("{:.2} %", part("cpu").median()),
                format!("{:.0} %", part("cpu").spread() * 100.0),
                format!("{:.2} %", part("server.cpu").median()),
                format!("{:.0}", of("bytes").median()),
                format!("{:.1}", of("least ttl").least()),
                format!("{:.0}", of("slow").most()),
                format!("{:.1}", of("uneven").median()),
            ]);
            if library == "ours" {
                // Two thirds of the lease are left when the renewal is due. The target allows a second of slack.
                table.target(Target::least(format!("{count} held, min TTL s"), 19.0, of("least ttl")));
                table.target(Target::most(format!("{count} held, scripts over 1 ms"), 0.0, of("slow")));
            }
            if library == "ours" && count == 100_000 {
                table.target(Target::most("100000 held, % of a core of the client".into(), 1.0, part("cpu")));
                table.target(Target::most("100000 held, bytes per lock".into(), 300.0, of("bytes")));
            }
        }
    }
    Ok(table)
}

/// Holds `count` locks in a new process, so that its memory is comparable.
fn hold(testbed: &mut Testbed, library: &str, count: usize, seconds: f64) -> Result<Sample, String> {
    let name = format!("{library}/held");
    let taken = testbed.measure(&name, &format!("hold {count}"))?;
    testbed.call(&["SLOWLOG", "RESET"])?;
    let (mut sample, least, uneven) = watch(testbed, &name, count, library, seconds)?;
    let slow = testbed.call(&["SLOWLOG", "LEN"])?.concat().parse().unwrap_or(f64::NAN);
    sample.set("slow", slow);
    sample.set("bytes", taken.get("memory") / count as f64);
    sample.set("least ttl", least);
    sample.set("uneven", uneven);
    testbed.stop(&name);
    testbed.call(&["FLUSHALL"])?;
    Ok(sample)
}

/// Returns the cost of holding, the smallest expiry that was seen on a record, and how uneven the renewals were.
fn watch(
    testbed: &mut Testbed,
    name: &str,
    count: usize,
    library: &str,
    seconds: f64,
) -> Result<(Sample, f64, f64), String> {
    testbed.send(name, &format!("idle {seconds}"))?;
    testbed.wait_for(name, "begin")?;
    let began = Instant::now();
    let before = testbed.spent()?;
    let calls = |spent: &BTreeMap<String, f64>| spent.get("server.evalsha").copied().unwrap_or_default();
    let mut steps = vec![calls(&before)];
    let mut least = f64::INFINITY;
    while began.elapsed().as_secs_f64() < seconds - 1.0 {
        thread::sleep(
            Duration::from_secs(1)
                .saturating_sub(Duration::from_nanos((began.elapsed().as_nanos() % 1_000_000_000) as u64)),
        );
        steps.push(calls(&testbed.spent()?));
        for at in 0..20 {
            let n = at * count / 20;
            let key = match library {
                "Redisson" => format!("held:0:{n}"),
                _ => format!("held:{n}"),
            };
            let left: f64 = testbed.call(&["PTTL", &key])?.concat().parse().unwrap_or(f64::NAN);
            least = least.min(left / 1e3);
        }
    }
    let mut sample = Sample::read(&testbed.wait_for(name, "end")?);
    for (key, value) in testbed.spent()? {
        sample.set(&key, value - before.get(&key).copied().unwrap_or_default());
    }
    testbed.wait_for(name, "done")?;
    let each: Vec<f64> = steps.windows(2).map(|two| two[1] - two[0]).collect();
    let mean = each.iter().sum::<f64>() / each.len().max(1) as f64;
    let most = each.iter().copied().fold(0.0, f64::max);
    Ok((sample, least, most / mean))
}

fn waiting(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const COUNT: usize = 10_000;
    let head = [
        "library",
        "waiters",
        "bytes per waiter",
        "±",
        "idle client CPU",
        "subscriptions",
        "scripts per waiter to begin",
    ];
    let mut table = Table::new("bytes per waiter", &head);
    let mut all = Samples::default();
    for _ in 0..effort.long_rounds {
        all.0.push(wait(testbed, COUNT, effort.idle.min(12.0))?);
    }
    let of = |name: &'static str| all.figures(move |sample| sample.get(name));
    let (bytes, idle, channels) = (of("bytes"), of("idle"), of("channels"));
    table.bar("", "ours", bytes.median());
    table.row(&[
        "ours".to_owned(),
        COUNT.to_string(),
        format!("{:.0}", bytes.median()),
        format!("{:.0} %", bytes.spread() * 100.0),
        format!("{:.2} %", idle.median()),
        format!("{:.0}", channels.median()),
        format!("{:.2}", of("asked").median()),
    ]);
    table.target(Target::most("bytes per waiter".into(), 1024.0, bytes));
    table.target(Target::most("idle client CPU, %".into(), 2.0, idle));
    let a_key = Figures(channels.0.iter().map(|channels| channels / COUNT as f64).collect());
    table.target(Target::most("subscriptions per key".into(), 1.0, a_key));
    Ok(table)
}

/// Starts `count` tasks in a new process, each of which waits for a lock that another process holds.
fn wait(testbed: &mut Testbed, count: usize, seconds: f64) -> Result<Sample, String> {
    testbed.measure("ours/held", &format!("hold {count}"))?;
    let before = testbed.spent()?;
    let taken = testbed.measure("ours/waiting", &format!("wait {count}"))?;
    // Until all tasks wait: the last subscription is confirmed, and no more scripts run.
    let mut calls = f64::NAN;
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        thread::sleep(Duration::from_millis(500));
        let now = testbed.spent()?.get("server.evalsha").copied().unwrap_or_default();
        if now == calls || Instant::now() > until {
            break;
        }
        calls = now;
    }
    let mut sample = testbed.measure("ours/waiting", &format!("idle {seconds}"))?;
    let channels = testbed.call(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"])?.len();
    let asked = (calls - before.get("server.evalsha").copied().unwrap_or_default()) / count as f64;
    sample.set("channels", channels as f64);
    sample.set("asked", asked);
    sample.set("idle", sample.get("cpu") / sample.get("seconds") * 100.0);
    // The memory once all tasks wait, not right after they were spawned.
    sample.set("bytes", (sample.get("memory") - taken.get("before")) / count as f64);
    testbed.stop("ours/waiting");
    testbed.stop("ours/held");
    testbed.call(&["FLUSHALL"])?;
    Ok(sample)
}
