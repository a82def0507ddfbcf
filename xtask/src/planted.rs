//! Shows that the tests can fail: plants each bug of `tests/planted` in a copy of the project, and runs the checks that its patch
//! names. Each check runs without the bug first, because a check that fails there shows nothing. Every named check must catch
//! the bug, and no other failure counts.
//!
//! `tests/planted` itself has the bugs of the engine, and its folder `kinds` those of single kinds.

mod patches;
mod tree;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use patches::{Check, Place, Planted};
use tree::{Seen, Tree};
use verdict::{End, Outcome, Run, Symptom};

use crate::setup;

/// A line of the report.
struct Line {
    bug: String,
    check: Check,
    outcome: Outcome,
    build: Duration,
    control: Option<Run>,
    planted: Option<Run>,
}

/// The runs without a bug, by place and name.
type Controls = BTreeMap<(Place, String), Run>;

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let project = setup::root();
    let bugs = patches::all(&project.join("tests/planted"))?;
    // Also those that are not planted this time.
    for bug in &bugs {
        applies(bug, &project)?;
    }
    let (bugs, at_once) = chosen(bugs, arguments, &project)?;
    let environment = setup::for_tests(&["3.52.0".to_owned()])?;
    let trees: Vec<Tree> = (1..=at_once)
        .map(|number| {
            let name = if number == 1 { "planted".to_owned() } else { format!("planted-{number}") };
            Tree { folder: setup::target().join(name), environment: environment.clone() }
        })
        .collect();
    let mut controls = control(&bugs, &trees[0], &project)?;

    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for tree in &trees {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked = check(bug, tree, &project, &controls);
                    lines.lock().expect("no thread panics").extend(checked);
                }
            });
        }
    });
    let mut lines = lines.into_inner().expect("no thread panics");
    // Alone on the machine, because a campaign judges times.
    lines.extend(campaigns(&bugs, &trees[0], &project, &mut controls)?);
    lines.sort_by(|one, other| (&one.bug, &one.check).cmp(&(&other.bug, &other.check)));
    Ok(report(&bugs, &lines, &controls))
}

/// The bugs that the arguments choose, and how many are planted at once. The bugs are all of them, those of the given names, or
/// with `--share <n>` an nth, the next one with each commit.
fn chosen(
    bugs: Vec<Planted>,
    mut arguments: &[&str],
    project: &Path,
) -> Result<(Vec<Planted>, usize), String> {
    let number = |option: &str, word: &str| {
        let number = word.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("planted: {option} takes a whole number from 1 on, and not {word:?}"))
    };
    let mut at_once = 1;
    if let ["--at-once", count, rest @ ..] = arguments {
        (at_once, arguments) = (number("--at-once", count)?, rest);
    }
    if let ["--share", shares] = arguments {
        let shares = number("--share", shares)?;
        let share = commits(project)? % shares;
        println!("planted: share {} of {shares}; the number of commits chooses it", share + 1);
        return Ok((bugs.into_iter().skip(share).step_by(shares).collect(), at_once));
    }
    for name in arguments {
        if !bugs.iter().any(|bug| bug.name == *name) {
            return Err(format!("planted: no patch is named {name:?}"));
        }
    }
    let chosen = bugs.into_iter().filter(|bug| arguments.is_empty() || arguments.contains(&&*bug.name));
    Ok((chosen.collect(), at_once))
}

fn commits(project: &Path) -> Result<usize, String> {
    let counted = Command::new("git").args(["rev-list", "--count", "HEAD"]).current_dir(project).output();
    let counted = counted.map_err(|error| format!("git: {error}"))?;
    let number = String::from_utf8_lossy(&counted.stdout).trim().parse();
    number.map_err(|_| format!("git rev-list: {}", String::from_utf8_lossy(&counted.stderr).trim()))
}

/// Whether the patch fits the project.
fn applies(bug: &Planted, project: &Path) -> Result<(), String> {
    let checked = Command::new("git")
        .args(["apply", "--check", "--whitespace=nowarn"])
        .arg(&bug.patch)
        .current_dir(project)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    match checked.status.success() {
        true => Ok(()),
        false => Err(format!("planted: {}: {}", bug.name, String::from_utf8_lossy(&checked.stderr).trim())),
    }
}

/// The tests of a place that the bugs name.
fn named<'a>(bugs: &'a [Planted], place: &Place) -> BTreeSet<&'a str> {
    let checks = bugs.iter().flat_map(|bug| &bug.checks).filter(|check| check.place == *place);
    checks.map(|check| &*check.name).collect()
}

/// Runs every named test on the project without a bug, with one build. A name without a test is an error.
fn control(bugs: &[Planted], tree: &Tree, project: &Path) -> Result<Controls, String> {
    tree.reset(project)?;
    let mut controls = Controls::new();
    for place in [Place::Suite, Place::Schedules] {
        let names = named(bugs, &place);
        if names.is_empty() {
            continue;
        }
        let began = Instant::now();
        let program = tree.build(&place).map_err(|problem| format!("planted: without a bug: {problem}"))?;
        let built = began.elapsed();
        let tests = tree.tests(&program)?;
        if let Some(unknown) = names.iter().find(|name| !tests.contains(**name)) {
            let by = bugs.iter().find(|bug| bug.checks.iter().any(|check| check.name == *unknown));
            let by = by.map_or("a patch", |bug| &bug.name);
            return Err(format!("planted: {by} names {unknown:?}, which is no test of the {}", place.name()));
        }
        let limit = verdict::limit(Symptom::Failure, Duration::ZERO);
        let tests: Vec<_> = names.into_iter().map(|name| (name, limit)).collect();
        let seen = tree.run_tests(&program, &tests, 2 * processors())?;
        println!(
            "planted: control: {} tests of the {}: built in {}, run in {}",
            tests.len(),
            place.name(),
            seconds(built),
            seconds(began.elapsed() - built)
        );
        for (name, Seen { run, panicked }) in seen {
            if run.end != End::Passed {
                let at = panicked.unwrap_or_default();
                println!(
                    "planted: control: {name} {:?} without a bug, in {} {at}",
                    run.end,
                    seconds(run.took)
                );
            }
            controls.insert((place.clone(), name), run);
        }
    }
    Ok(controls)
}

/// Plants the bug, and runs the tests that it names.
fn check(bug: &Planted, tree: &Tree, project: &Path, controls: &Controls) -> Vec<Line> {
    let mut lines = Vec::new();
    let began = Instant::now();
    let planted = tree.reset(project).and_then(|()| tree.plant(bug));
    for place in [Place::Suite, Place::Schedules] {
        let checks: Vec<_> = bug.checks.iter().filter(|check| check.place == place).collect();
        if checks.is_empty() {
            continue;
        }
        let build = Instant::now();
        let program = planted.clone().and_then(|()| tree.build(&place));
        let build = build.elapsed();
        let seen = program.and_then(|program| {
            let limit = |check: &Check| {
                verdict::limit(check.symptom, controls[&(place.clone(), check.name.clone())].took)
            };
            let tests: Vec<_> = checks.iter().map(|check| (&*check.name, limit(check))).collect();
            tree.run_tests(&program, &tests, processors())
        });
        if let Err(problem) = &seen {
            println!("planted: {}: {problem}", bug.name);
        }
        let seen = seen.ok();
        for check in checks {
            let control = controls[&(place.clone(), check.name.clone())];
            let seen = seen.as_ref().and_then(|seen| seen.get(&check.name));
            let planted = seen.map(|seen| seen.run);
            let outcome =
                planted.map_or(Outcome::NotBuilt, |planted| verdict::decide(check.symptom, control, planted));
            let at = seen.and_then(|seen| seen.panicked.as_deref()).unwrap_or_default();
            println!("planted: {}: {outcome} by {} {at}", bug.name, check.name);
            lines.push(Line {
                bug: bug.name.clone(),
                check: check.clone(),
                outcome,
                build,
                control: Some(control),
                planted,
            });
        }
    }
    println!("planted: {}: {} in all: {}", bug.name, seconds(began.elapsed()), bug.bug);
    lines
}

/// Runs the campaigns that the bugs name: each without a bug first, and then with each of its bugs.
fn campaigns(
    bugs: &[Planted],
    tree: &Tree,
    project: &Path,
    controls: &mut Controls,
) -> Result<Vec<Line>, String> {
    let places: BTreeSet<&Place> =
        bugs.iter().flat_map(|bug| &bug.checks).map(|check| &check.place).collect();
    let mut lines = Vec::new();
    for place in places {
        let Place::Campaign(arguments) = place else { continue };
        tree.reset(project)?;
        let (rules, took) = tree.run_campaign(arguments)?;
        for name in named(bugs, place) {
            let &[applied, broken] = rules.get(name).ok_or_else(|| {
                format!("planted: the campaign has no rule {name:?}: it has {:?}", rules.keys())
            })?;
            // A rule that never applied is no control.
            let end = if applied > 0 && broken == 0 { End::Passed } else { End::Failed };
            println!(
                "planted: control: campaign {}: {name}: {applied} times, {broken} broken",
                arguments.join(" ")
            );
            controls.insert((place.clone(), name.to_owned()), Run { end, took });
        }
        for bug in bugs {
            let checks: Vec<_> = bug.checks.iter().filter(|check| check.place == *place).collect();
            if checks.is_empty() {
                continue;
            }
            let began = Instant::now();
            let seen = tree
                .reset(project)
                .and_then(|()| tree.plant(bug))
                .and_then(|()| tree.run_campaign(arguments))
                .map_err(|problem| println!("planted: {}: {problem}", bug.name));
            for check in checks {
                let control = controls[&(place.clone(), check.name.clone())];
                let planted = seen.as_ref().ok().map(|(rules, took)| {
                    let broken = rules.get(&check.name).is_some_and(|[_, broken]| *broken > 0);
                    Run { end: if broken { End::Failed } else { End::Passed }, took: *took }
                });
                let outcome = planted
                    .map_or(Outcome::NotBuilt, |planted| verdict::decide(check.symptom, control, planted));
                println!("planted: {}: {outcome} by the campaign's {}", bug.name, check.name);
                lines.push(Line {
                    bug: bug.name.clone(),
                    check: check.clone(),
                    outcome,
                    build: Duration::ZERO,
                    control: Some(control),
                    planted,
                });
            }
            println!("planted: {}: {} in all", bug.name, seconds(began.elapsed()));
        }
    }
    Ok(lines)
}

/// Prints the table. It fails if a check did not catch its bug.
fn report(bugs: &[Planted], lines: &[Line], controls: &Controls) -> ExitCode {
    let time = |run: Option<Run>| run.map_or("-".to_owned(), |run| seconds(run.took));
    println!("\n| patch | check | outcome | without the bug | with it | build |");
    println!("| --- | --- | --- | ---: | ---: | ---: |");
    for line in lines {
        let symptom = if line.check.symptom == Symptom::Hang { ", hangs" } else { "" };
        println!(
            "| {} | {}: {}{symptom} | {} | {} | {} | {} |",
            line.bug,
            line.check.place.name(),
            line.check.name,
            line.outcome,
            time(line.control),
            time(line.planted),
            seconds(line.build),
        );
    }
    let uncaught: BTreeSet<_> =
        lines.iter().filter(|line| line.outcome != Outcome::Caught).map(|line| &line.bug).collect();
    let failed = controls.values().filter(|run| run.end != End::Passed).count();
    println!(
        "\nplanted: {} bugs, {} caught by all their checks; {} checks without a bug, {failed} failed",
        bugs.len(),
        bugs.len() - uncaught.len(),
        controls.len()
    );
    for bug in &uncaught {
        println!("planted: NOT CAUGHT: {bug}");
    }
    if uncaught.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
