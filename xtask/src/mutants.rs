//! Runs the mutants: applies each patch of `tests/mutants` to a copy of the project, and runs the checks that the patch
//! names. Every named check must catch its mutant; other failures do not count. Each check first runs without a mutant, as
//! its control, because a check that fails there shows nothing.
//!
//! The patches in `tests/mutants` change code that all kinds share; those in its folder `kinds` change single kinds.

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

use patches::{Check, Harness, Mutant};
use tree::{TestRun, Tree};
use verdict::{End, Outcome, Run, Symptom};

use crate::needs::Needs;
use crate::paths;
use crate::setup;

/// A row of the report.
struct Line {
    mutant: String,
    check: Check,
    outcome: Outcome,
    build: Duration,
    control: Option<Run>,
    mutated: Option<Run>,
}

/// The runs without a mutant, by harness and name.
type Controls = BTreeMap<(Harness, String), Run>;

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let project = paths::root();
    let mutants = patches::all(&project.join("tests/mutants"))?;
    // Includes the mutants that this run leaves out.
    for mutant in &mutants {
        check_applies(mutant, &project)?;
    }
    let (mutants, at_once) = chosen(mutants, arguments, &project)?;
    let only_program = mutants
        .iter()
        .flat_map(|mutant| &mutant.checks)
        .all(|check| matches!(check.harness, Harness::CommandLine | Harness::Schedules));
    let environment = match only_program {
        true => setup::for_needs(&[], &Needs::new())?,
        false => setup::for_tests(&["3.52.0".to_owned()])?,
    };
    let trees: Vec<Tree> = (1..=at_once)
        .map(|number| {
            let name = if number == 1 { "mutants".to_owned() } else { format!("mutants-{number}") };
            Tree { folder: paths::target().join(name), environment: environment.clone() }
        })
        .collect();
    let mut controls = control(&mutants, &trees[0], &project)?;

    let (next, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for tree in &trees {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked = check(mutant, tree, &project, &controls);
                    lines.lock().expect("no thread panics").extend(checked);
                }
            });
        }
    });
    let mut lines = lines.into_inner().expect("no thread panics");
    // Campaigns judge times, so each one has the machine to itself.
    lines.extend(campaigns(&mutants, &trees[0], &project, &mut controls)?);
    lines.sort_by(|one, other| (&one.mutant, &one.check).cmp(&(&other.mutant, &other.check)));
    Ok(report(&mutants, &lines, &controls))
}

/// Returns the mutants that the arguments select, and how many run at once. Without names, all are selected; `--share <n>`
/// selects one nth of them, a different one at each commit.
fn chosen(
    mutants: Vec<Mutant>,
    mut arguments: &[&str],
    project: &Path,
) -> Result<(Vec<Mutant>, usize), String> {
    let number = |option: &str, word: &str| {
        let number = word.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("mutants: {option} takes a positive whole number, not {word:?}"))
    };
    let mut at_once = 1;
    if let ["--at-once", count, rest @ ..] = arguments {
        (at_once, arguments) = (number("--at-once", count)?, rest);
    }
    if let ["--share", shares] = arguments {
        let shares = number("--share", shares)?;
        let share = commits(project)? % shares;
        println!("mutants: share {} of {shares}, chosen by the number of commits", share + 1);
        return Ok((mutants.into_iter().skip(share).step_by(shares).collect(), at_once));
    }
    for name in arguments {
        if !mutants.iter().any(|mutant| mutant.name == *name) {
            return Err(format!("mutants: no patch in tests/mutants is named {name:?}"));
        }
    }
    let chosen =
        mutants.into_iter().filter(|mutant| arguments.is_empty() || arguments.contains(&&*mutant.name));
    Ok((chosen.collect(), at_once))
}

fn commits(project: &Path) -> Result<usize, String> {
    let counted = Command::new("git").args(["rev-list", "--count", "HEAD"]).current_dir(project).output();
    let counted = counted.map_err(|error| format!("git: {error}"))?;
    let number = String::from_utf8_lossy(&counted.stdout).trim().parse();
    number.map_err(|_| format!("git rev-list: {}", String::from_utf8_lossy(&counted.stderr).trim()))
}

/// Checks that the patch applies to the project.
fn check_applies(mutant: &Mutant, project: &Path) -> Result<(), String> {
    let checked = Command::new("git")
        .args(["apply", "--check", "--whitespace=nowarn"])
        .arg(&mutant.patch)
        .current_dir(project)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    match checked.status.success() {
        true => Ok(()),
        false => {
            Err(format!("mutants: {}: {}", mutant.name, String::from_utf8_lossy(&checked.stderr).trim()))
        }
    }
}

/// The tests or rules of a harness that the mutants name.
fn named<'a>(mutants: &'a [Mutant], harness: &Harness) -> BTreeSet<&'a str> {
    let checks = mutants.iter().flat_map(|mutant| &mutant.checks).filter(|check| check.harness == *harness);
    checks.map(|check| &*check.name).collect()
}

/// Runs every named test without a mutant, with a single build. A name without a test is an error.
fn control(mutants: &[Mutant], tree: &Tree, project: &Path) -> Result<Controls, String> {
    tree.reset(project)?;
    let mut controls = Controls::new();
    for harness in [Harness::Suite, Harness::Schedules, Harness::CommandLine] {
        let names = named(mutants, &harness);
        if names.is_empty() {
            continue;
        }
        let began = Instant::now();
        let program = tree.build(&harness).map_err(|problem| format!("mutants: control: {problem}"))?;
        let built = began.elapsed();
        let tests = tree.tests(&program)?;
        if let Some(unknown) = names.iter().find(|name| !tests.contains(**name)) {
            let by = mutants.iter().find(|mutant| mutant.checks.iter().any(|check| check.name == *unknown));
            let by = by.map_or("a patch", |mutant| &mutant.name);
            return Err(format!(
                "mutants: {by} names {unknown:?}, but the {} has no such test",
                harness.name()
            ));
        }
        let limit = verdict::limit(Symptom::Failure, Duration::ZERO);
        let tests: Vec<_> = names.into_iter().map(|name| (name, limit)).collect();
        let runs = tree.run_tests(&program, &tests, 2 * processors())?;
        println!(
            "mutants: control: {} tests of the {}: built in {}, ran in {}",
            tests.len(),
            harness.name(),
            seconds(built),
            seconds(began.elapsed() - built)
        );
        for (name, TestRun { run, panicked }) in runs {
            if run.end != End::Passed {
                let at = panicked.unwrap_or_default();
                println!(
                    "mutants: control: {name}: {:?} without a mutant, after {} {at}",
                    run.end,
                    seconds(run.took)
                );
            }
            controls.insert((harness.clone(), name), run);
        }
    }
    Ok(controls)
}

/// Applies the mutant, and runs the tests that it names.
fn check(mutant: &Mutant, tree: &Tree, project: &Path, controls: &Controls) -> Vec<Line> {
    let mut lines = Vec::new();
    let began = Instant::now();
    let applied = tree.reset(project).and_then(|()| tree.apply(mutant));
    for harness in [Harness::Suite, Harness::Schedules, Harness::CommandLine] {
        let checks: Vec<_> = mutant.checks.iter().filter(|check| check.harness == harness).collect();
        if checks.is_empty() {
            continue;
        }
        let build = Instant::now();
        let program = applied.clone().and_then(|()| tree.build(&harness));
        let build = build.elapsed();
        let runs = program.and_then(|program| {
            let limit = |check: &Check| {
                verdict::limit(check.symptom, controls[&(harness.clone(), check.name.clone())].took)
            };
            let tests: Vec<_> = checks.iter().map(|check| (&*check.name, limit(check))).collect();
            tree.run_tests(&program, &tests, processors())
        });
        if let Err(problem) = &runs {
            println!("mutants: {}: {problem}", mutant.name);
        }
        let runs = runs.ok();
        for check in checks {
            let control = controls[&(harness.clone(), check.name.clone())];
            let test = runs.as_ref().and_then(|runs| runs.get(&check.name));
            let mutated = test.map(|test| test.run);
            let outcome =
                mutated.map_or(Outcome::NotBuilt, |mutated| verdict::decide(check.symptom, control, mutated));
            let at = test.and_then(|test| test.panicked.as_deref()).unwrap_or_default();
            println!("mutants: {}: {outcome} by {} {at}", mutant.name, check.name);
            lines.push(Line {
                mutant: mutant.name.clone(),
                check: check.clone(),
                outcome,
                build,
                control: Some(control),
                mutated,
            });
        }
    }
    println!("mutants: {}: {} in total: {}", mutant.name, seconds(began.elapsed()), mutant.description);
    lines
}

/// Runs the campaigns that the mutants name, first without a mutant and then with each of them.
fn campaigns(
    mutants: &[Mutant],
    tree: &Tree,
    project: &Path,
    controls: &mut Controls,
) -> Result<Vec<Line>, String> {
    let harnesses: BTreeSet<&Harness> =
        mutants.iter().flat_map(|mutant| &mutant.checks).map(|check| &check.harness).collect();
    let mut lines = Vec::new();
    for harness in harnesses {
        let Harness::Campaign(arguments) = harness else { continue };
        tree.reset(project)?;
        let (rules, took) = tree.run_campaign(arguments)?;
        for name in named(mutants, harness) {
            let &[applied, broken] = rules.get(name).ok_or_else(|| {
                format!("mutants: the campaign has no rule {name:?}; its rules are {:?}", rules.keys())
            })?;
            // A rule that never applied is not a control.
            let end = if applied > 0 && broken == 0 { End::Passed } else { End::Failed };
            println!(
                "mutants: control: campaign {}: {name}: applied {applied} times, broken {broken} times",
                arguments.join(" ")
            );
            controls.insert((harness.clone(), name.to_owned()), Run { end, took });
        }
        for mutant in mutants {
            let checks: Vec<_> = mutant.checks.iter().filter(|check| check.harness == *harness).collect();
            if checks.is_empty() {
                continue;
            }
            let began = Instant::now();
            let campaign = tree
                .reset(project)
                .and_then(|()| tree.apply(mutant))
                .and_then(|()| tree.run_campaign(arguments))
                .map_err(|problem| println!("mutants: {}: {problem}", mutant.name));
            for check in checks {
                let control = controls[&(harness.clone(), check.name.clone())];
                let mutated = campaign.as_ref().ok().map(|(rules, took)| {
                    let broken = rules.get(&check.name).is_some_and(|[_, broken]| *broken > 0);
                    Run { end: if broken { End::Failed } else { End::Passed }, took: *took }
                });
                let outcome = mutated
                    .map_or(Outcome::NotBuilt, |mutated| verdict::decide(check.symptom, control, mutated));
                println!("mutants: {}: {outcome} by the campaign's rule {:?}", mutant.name, check.name);
                lines.push(Line {
                    mutant: mutant.name.clone(),
                    check: check.clone(),
                    outcome,
                    build: Duration::ZERO,
                    control: Some(control),
                    mutated,
                });
            }
            println!("mutants: {}: {} in total", mutant.name, seconds(began.elapsed()));
        }
    }
    Ok(lines)
}

/// Prints the table. Fails if a check did not catch its mutant.
fn report(mutants: &[Mutant], lines: &[Line], controls: &Controls) -> ExitCode {
    let time = |run: Option<Run>| run.map_or("-".to_owned(), |run| seconds(run.took));
    println!("\n| mutant | check | outcome | control | with the mutant | build |");
    println!("| --- | --- | --- | ---: | ---: | ---: |");
    for line in lines {
        let symptom = if line.check.symptom == Symptom::Hang { ", hangs" } else { "" };
        println!(
            "| {} | {}: {}{symptom} | {} | {} | {} | {} |",
            line.mutant,
            line.check.harness.name(),
            line.check.name,
            line.outcome,
            time(line.control),
            time(line.mutated),
            seconds(line.build),
        );
    }
    let uncaught: BTreeSet<_> =
        lines.iter().filter(|line| line.outcome != Outcome::Caught).map(|line| &line.mutant).collect();
    let failed = controls.values().filter(|run| run.end != End::Passed).count();
    println!(
        "\nmutants: {} run, {} caught by all their checks; {} controls, {failed} failed",
        mutants.len(),
        mutants.len() - uncaught.len(),
        controls.len()
    );
    for mutant in &uncaught {
        println!("mutants: NOT CAUGHT: {mutant}");
    }
    if uncaught.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}
