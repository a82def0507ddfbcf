//! Scenarios with several clients on one key.

use std::collections::BTreeMap;
use std::fs;

use super::Effort;
use super::report::{Table, Target};
use super::rounds::{rotated, rounds, warm_up};
use super::sample::{Figures, Sample, percentile, rate};
use super::testbed::{TUNED, Testbed};
use crate::paths;

/// Times in us of one library's hand-overs between two processes, and of its unlocks.
fn hand_overs(testbed: &mut Testbed, library: &str, seconds: f64) -> Result<(Vec<f64>, Vec<f64>), String> {
    let names = [library.to_owned(), format!("{library}/2")];
    let files: Vec<_> = (0..2).map(|n| paths::target().join(format!("bench-turns-{n}"))).collect();
    for name in &names {
        testbed.process(name)?;
    }
    testbed.wait_for_silence()?;
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

pub fn turns(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    let mut table =
        Table::new("us, p50", &["library", "hand-overs", "p50 us", "p90 us", "p99 us", "unlock p50 us"]);
    let libraries = ["ours", "raw", "Redisson", TUNED];
    let mut all: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    // The median and the 99th percentile of each round.
    let mut each: BTreeMap<&str, [Vec<f64>; 2]> = BTreeMap::new();
    for round in 0..effort.rounds {
        for library in rotated(&libraries, round) {
            if round == 0 && ["Redisson", TUNED].contains(&library) {
                warm_up(|| Ok(hand_overs(testbed, library, 1.0)?.0.len() as f64))?;
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
    table.target(Target::most("p50, to raw".into(), 1.05, to("raw", 0)));
    table.target(Target::most("p99, to raw".into(), 1.2, to("raw", 1)));
    table.target(Target::most("p50, to Redisson".into(), 0.5, to("Redisson", 0)));
    table.target(Target::most("p99, to Redisson".into(), 0.5, to("Redisson", 1)));
    for library in libraries {
        testbed.stop(&format!("{library}/2"));
    }
    Ok(table)
}

pub fn mixed(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
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
    warm_up(|| Ok(beside_each_other(testbed, &sides, "contended", 1.0)?.iter().map(|(_, rate)| rate).sum()))?;
    for round in 0..effort.rounds {
        let of_round = beside_each_other(testbed, &rotated(&sides, round), "contended", seconds)?;
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

/// Runs `command` on several libraries at the same time, each with its number of workers. Returns their rates.
fn beside_each_other(
    testbed: &mut Testbed,
    sides: &[(&'static str, usize)],
    command: &str,
    seconds: f64,
) -> Result<Vec<(&'static str, f64)>, String> {
    testbed.wait_for_silence()?;
    for (name, workers) in sides {
        testbed.send(name, &format!("{command} {workers} {seconds}"))?;
    }
    let mut rates = Vec::new();
    for (name, _) in sides {
        testbed.wait_for(name, "begin")?;
        rates.push((*name, rate(&Sample::read(&testbed.wait_for(name, "end")?))));
    }
    for (name, _) in sides {
        testbed.wait_for(name, "done")?;
    }
    Ok(rates)
}

/// The cost of a hold must not grow with the number of clients, and no client may starve.
pub fn crowd(testbed: &mut Testbed, effort: &Effort) -> Result<Table, String> {
    const FEW: usize = 8;
    const SIZES: [usize; 4] = [FEW, 32, 128, 512];
    /// The numbers of Rust and Java clients in one crowd.
    const RUST: usize = 128;
    const JAVA: usize = 8;
    let head = [
        "library",
        "clients",
        "holds per second",
        "±",
        "requests per hold",
        "client us per hold",
        "least / mean",
        "most / mean",
        "Java's share, to the fair share",
    ];
    let mut table = Table::new("holds per second", &head);
    let measured = rounds(testbed, &effort.long(effort.crowd), "crowd", &SIZES, &["ours", "raw"])?;
    for library in ["ours", "raw"] {
        for clients in SIZES {
            let samples = &measured[&(clients, library)];
            let rates = samples.figures(rate);
            let to_mean =
                |name: &'static str| samples.figures(move |sample| sample.per_hold(name) * clients as f64);
            table.bar(&clients.to_string(), library, rates.median());
            table.row(&[
                library.to_owned(),
                clients.to_string(),
                format!("{:.0}", rates.median()),
                format!("{:.0} %", rates.spread() * 100.0),
                format!("{:.1}", samples.median(|sample| sample.per_hold("server.reads"))),
                format!("{:.0}", samples.median(|sample| sample.per_hold("cpu") * 1e6)),
                format!("{:.2}", to_mean("least").median()),
                format!("{:.2}", to_mean("most").median()),
                String::new(),
            ]);
            if library == "ours" && clients > FEW {
                table.target(Target::least(
                    format!("{clients}: least holds, to the mean"),
                    0.3,
                    to_mean("least"),
                ));
            }
        }
    }
    for (clients, requests, holds) in [(128, 10.0, 0.8), (512, 14.0, 0.55)] {
        let reads = measured[&(clients, "ours")].figures(|sample| sample.per_hold("server.reads"));
        table.target(Target::most(format!("{clients}: requests per hold"), requests, reads));
        let (many, few) = (&measured[&(clients, "ours")].0, &measured[&(FEW, "ours")].0);
        let to_few = many.iter().zip(few).map(|(many, few)| rate(many) / rate(few)).collect();
        table.target(Target::least(format!("{clients}: holds, to {FEW}"), holds, Figures(to_few)));
    }
    // redis-rs attempts at every message, as Redisson does. So its row shows what Redisson leaves to other clients.
    let fair = JAVA as f64 / (RUST + JAVA) as f64;
    let beside = format!("{JAVA} Java clients beside {RUST}");
    for library in ["ours", "raw"] {
        let (mut rates, mut shares) = (Figures::default(), Figures::default());
        let sides = [(library, RUST), ("Redisson", JAVA)];
        warm_up(|| Ok(beside_each_other(testbed, &sides, "crowd", 1.0)?.iter().map(|(_, rate)| rate).sum()))?;
        for round in 0..effort.long_rounds {
            let sides = rotated(&sides, round);
            let of_round = beside_each_other(testbed, &sides, "crowd", effort.crowd)?;
            let all: f64 = of_round.iter().map(|(_, rate)| rate).sum();
            let rust: f64 = of_round.iter().filter(|(name, _)| *name == library).map(|(_, rate)| rate).sum();
            rates.0.push(all);
            shares.0.push((all - rust) / all / fair);
        }
        let mut row = vec![format!("{library}, {beside}"), (RUST + JAVA).to_string()];
        row.extend([format!("{:.0}", rates.median()), format!("{:.0} %", rates.spread() * 100.0)]);
        row.resize(head.len() - 1, String::new());
        row.push(format!("{:.2}", shares.median()));
        table.row(&row);
        if library == "ours" {
            let what = format!("{beside}: share, to the fair share");
            table.target(Target::least(what.clone(), 0.25, shares.clone()));
            table.target(Target::most(what, 2.0, shares));
        }
    }
    Ok(table)
}
