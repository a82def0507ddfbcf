//! Scenarios with very many locks.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::Effort;
use super::report::{Table, Target};
use super::rounds::rotated;
use super::sample::{Figures, Sample, Samples, rate};
use super::testbed::Testbed;

/// The memory of fewer locks disappears in that of the rest of the client.
const MANY: usize = 100_000;

pub fn held(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
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
        // redis-rs renews as many locks in one script, and does nothing else: the floor for a client.
        let libraries: &[&'static str] = match count {
            ..100_000 => &["ours", "Redisson"],
            100_000 => &["ours", "Redisson", "raw"],
            _ => &["ours", "raw"],
        };
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
                if count < MANY { String::new() } else { format!("{:.0}", of("bytes").median()) },
                format!("{:.1}", of("least ttl").least()),
                format!("{:.0}", of("slow").most()),
                format!("{:.1}", of("uneven").median()),
            ]);
            if library == "ours" && count >= MANY {
                table.target(Target::most(format!("{count} held, bytes per lock"), 500.0, of("bytes")));
            }
            if library == "ours" {
                // Two thirds of the lease are left when the renewal is due. The target allows a second of slack.
                table.target(Target::least(format!("{count} held, min TTL s"), 19.0, of("least ttl")));
                table.target(Target::most(format!("{count} held, scripts over 1 ms"), 0.0, of("slow")));
            }
            if library == "ours" && count == 100_000 {
                table.target(Target::most("100000 held, % of a core of the client".into(), 1.0, part("cpu")));
            }
        }
    }
    Ok(table)
}

/// Holds `count` locks in a new process, so that its memory is comparable.
fn hold(testbed: &mut Testbed, library: &str, count: usize, seconds: f64) -> Result<Sample, String> {
    let name = format!("{library}/held");
    let taken = testbed.measure(&name, &format!("hold {count} 64"))?;
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

/// Locks that are acquired many at a time or one after the other, and guards that are dropped at once.
pub fn memory(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const COUNT: usize = 100_000;
    const NAME: &str = "ours/held";
    let mut table = Table::new("bytes per lock", &["what", "bytes per lock", "±", "per second"]);
    let (mut held, mut dropped) = (BTreeMap::<usize, Samples>::new(), Samples::default());
    for round in 0..effort.long_rounds {
        for workers in rotated(&[256, 1], round) {
            held.entry(workers)
                .or_default()
                .0
                .push(testbed.measure(NAME, &format!("hold {COUNT} {workers}"))?);
            if workers > 1 {
                dropped.0.push(testbed.measure(NAME, "drop-at-once")?);
            }
            testbed.stop(NAME);
            testbed.call(&["FLUSHALL"])?;
        }
    }
    let bytes = |samples: &Samples| samples.figures(|sample| sample.get("memory") / COUNT as f64);
    for (what, aim, samples) in [
        ("held, acquired 256 at a time", 500.0, &held[&256]),
        ("held, acquired one by one", 400.0, &held[&1]),
        ("dropped at once, above the held state", 200.0, &dropped),
    ] {
        let of_lock = bytes(samples);
        let rates = samples.figures(rate);
        table.bar("", what, of_lock.median());
        table.row(&[
            what.to_owned(),
            format!("{:.0}", of_lock.median()),
            format!("{:.0} %", of_lock.spread() * 100.0),
            format!("{:.0}", rates.median()),
        ]);
        table.target(Target::most(format!("{what}, bytes"), aim, of_lock));
    }
    table.target(Target::least("dropped at once, freed per second".into(), 80_000.0, dropped.figures(rate)));
    Ok(table)
}

pub fn waiting(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
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
    // A task of redis-rs that waits for a message on a channel that all of them share, or for the end of the lease.
    const LIBRARIES: [&str; 2] = ["ours", "raw"];
    let mut measured: BTreeMap<&str, Samples> = BTreeMap::new();
    for round in 0..effort.long_rounds {
        for library in rotated(&LIBRARIES, round) {
            let sample = wait(testbed, library, COUNT, effort.idle)?;
            measured.entry(library).or_default().0.push(sample);
        }
    }
    for library in LIBRARIES {
        let of = |name: &'static str| measured[library].figures(move |sample| sample.get(name));
        let bytes = of("bytes");
        table.bar("", library, bytes.median());
        table.row(&[
            library.to_owned(),
            COUNT.to_string(),
            format!("{:.0}", bytes.median()),
            format!("{:.0} %", bytes.spread() * 100.0),
            format!("{:.2} %", of("idle").median()),
            format!("{:.0}", of("channels").median()),
            format!("{:.2}", of("asked").median()),
        ]);
    }
    let of = |name: &'static str| measured["ours"].figures(move |sample| sample.get(name));
    let (bytes, idle, channels) = (of("bytes"), of("idle"), of("channels"));
    table.target(Target::most("bytes per waiter".into(), 1500.0, bytes));
    table.target(Target::most("idle client CPU, %".into(), 2.0, idle));
    let a_key = Figures(channels.0.iter().map(|channels| channels / COUNT as f64).collect());
    table.target(Target::most("subscriptions per key".into(), 1.0, a_key));
    Ok(table)
}

/// When the cost of waiting is measured: this long after the last waiter began.
const SETTLED: Duration = Duration::from_secs(15);

/// Starts `count` tasks in a new process, each of which waits for a lock that another process holds.
fn wait(testbed: &mut Testbed, library: &str, count: usize, seconds: f64) -> Result<Sample, String> {
    let waiting = format!("{library}/waiting");
    testbed.measure("ours/held", &format!("hold {count} 64"))?;
    let before = testbed.spent()?;
    let taken = testbed.measure(&waiting, &format!("wait {count}"))?;
    let began = Instant::now();
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
    // A waiter checks its lock after 10, 20, 40 ms and so on, so the first seconds are not typical.
    thread::sleep(SETTLED.saturating_sub(began.elapsed()));
    let mut sample = testbed.measure(&waiting, &format!("idle {seconds}"))?;
    let channels = testbed.call(&["PUBSUB", "CHANNELS", "redisson_lock__channel*"])?.len();
    let asked = (calls - before.get("server.evalsha").copied().unwrap_or_default()) / count as f64;
    sample.set("channels", channels as f64);
    sample.set("asked", asked);
    sample.set("idle", sample.get("cpu") / sample.get("seconds") * 100.0);
    // The memory once all tasks wait, not right after they were spawned.
    sample.set("bytes", (sample.get("memory") - taken.get("before")) / count as f64);
    testbed.stop(&waiting);
    testbed.stop("ours/held");
    testbed.call(&["FLUSHALL"])?;
    Ok(sample)
}
