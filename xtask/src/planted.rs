//! Shows that the tests can fail: applies each patch of `tests/planted` to a copy of the project, and runs the tests
//! that are to catch it. A patch opens with lines of text: what the bug is, and one of [`CHECKS`] or more, each with its
//! arguments. A patch that no longer applies is a failure, as is a bug that one of its checks does not catch.
//!
//! `tests/planted` itself has the bugs of the engine, and its folder `kinds` those of single kinds.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::setup;
use crate::test::schedules;

/// How long one check of a bug may take.
const LIMIT: Duration = Duration::from_secs(200);

struct Planted {
    name: String,
    patch: PathBuf,
    /// What the bug is.
    bug: String,
    checks: Vec<Check>,
}

/// What is to catch a bug, with the arguments that choose a part of it.
struct Check {
    kind: Kind,
    arguments: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// The tests of `tests/it`.
    Suite,
    /// Those of `tests/shuttle`.
    Schedules,
    /// A minute of `cargo xtask torture`.
    Campaign,
}

/// How a patch says what it is caught by.
const CHECKS: [(&str, Kind); 3] = [
    ("Caught by the suite: ", Kind::Suite),
    ("Caught by the schedules: ", Kind::Schedules),
    ("Caught by the campaign: ", Kind::Campaign),
];

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let project = setup::root();
    let tree = setup::target().join("planted");
    let folder = project.join("tests/planted");
    let mut bugs = all(&folder)?;
    bugs.extend(all(&folder.join("kinds"))?);
    // Also those that are not planted this time.
    for bug in &bugs {
        applies(bug, &project)?;
    }
    let bugs = chosen(bugs, arguments, &project)?;
    let environment = setup::for_tests(&["3.52.0".to_owned()])?;
    let mut missed = 0;
    for bug in &bugs {
        println!("planted: {}: {}", bug.name, bug.bug);
        copy_project(&project, &tree)?;
        let outcome = plant(bug, &tree).and_then(|()| {
            for check in &bug.checks {
                let caught = check.catch(&tree, &environment)?;
                println!("planted: {}: caught by the {:?}: {}", bug.name, check.kind, caught.join(", "));
            }
            Ok(())
        });
        if let Err(problem) = outcome {
            missed += 1;
            println!("planted: {}: MISSED: {problem}", bug.name);
        }
    }
    println!("planted: {} bugs, {} caught", bugs.len(), bugs.len() - missed);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The bugs that the arguments choose: all of them, those of the given names, or with `--share <n>` an nth, the next one
/// with each commit.
fn chosen(bugs: Vec<Planted>, arguments: &[&str], project: &Path) -> Result<Vec<Planted>, String> {
    if let ["--share", shares] = arguments {
        let shares: usize = shares.parse().ok().filter(|shares| *shares > 0).ok_or_else(|| {
            format!("planted: --share takes a number of shares from 1 on, and not {shares:?}")
        })?;
        let share = commits(project)? % shares;
        println!("planted: share {} of {shares}; the number of commits chooses it", share + 1);
        return Ok(bugs.into_iter().skip(share).step_by(shares).collect());
    }
    for name in arguments {
        if !bugs.iter().any(|bug| bug.name == *name) {
            return Err(format!("planted: no patch is named {name:?}"));
        }
    }
    Ok(bugs.into_iter().filter(|bug| arguments.is_empty() || arguments.contains(&&*bug.name)).collect())
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

fn all(folder: &Path) -> Result<Vec<Planted>, String> {
    let mut patches: Vec<_> = fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .collect();
    patches.sort();
    patches.into_iter().map(read).collect()
}

fn read(patch: PathBuf) -> Result<Planted, String> {
    let text = fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    let head: Vec<&str> = text.lines().take_while(|line| !line.starts_with("--- ")).collect();
    let mut bug = Vec::new();
    let mut checks = Vec::new();
    for line in head {
        match CHECKS.iter().find_map(|(words, kind)| Some((line.strip_prefix(words)?, *kind))) {
            Some((arguments, kind)) => {
                checks.push(Check {
                    kind,
                    arguments: arguments.split_whitespace().map(str::to_owned).collect(),
                });
            }
            None => bug.push(line),
        }
    }
    if checks.is_empty() {
        return Err(format!("{}: no line says what it is caught by", patch.display()));
    }
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Planted { name, bug: bug.join(" ").trim().to_owned(), checks, patch })
}

/// The files that git knows and those it does not ignore, and no others but what was built; what is planted is never in the
/// project itself.
fn copy_project(project: &Path, copy: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(project)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let mut kept = BTreeSet::from([copy.join("target")]);
    for file in listed.lines() {
        let (from, to) = (project.join(file), copy.join(file));
        let Ok(content) = fs::read(&from) else { continue };
        kept.insert(to.clone());
        // An unchanged file keeps its time, so that it is not compiled anew.
        if fs::read(&to).is_ok_and(|old| old == content) {
            continue;
        }
        let folder = to.parent().expect("a file is in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&to, content))
            .map_err(|error| format!("{file}: {error}"))?;
    }
    clear(copy, &kept).map_err(|error| format!("{}: {error}", copy.display()))
}

/// Removes the files of a folder that are not to be kept: they were moved or deleted where it is copied from.
fn clear(folder: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if kept.contains(&path) {
            continue;
        }
        if path.is_dir() {
            clear(&path, kept)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Applies the patch, and sees that what comes of it builds: what its checks need, and no more.
fn plant(bug: &Planted, tree: &Path) -> Result<(), String> {
    let said = |output: Output, what: &str| match output.status.success() {
        true => Ok(()),
        false => Err(format!("it does not {what}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    };
    let applied = Command::new("git")
        .args(["apply", "--unsafe-paths", "--whitespace=nowarn"])
        .arg(format!("--directory={}", tree.display()))
        .arg(&bug.patch)
        .current_dir("/")
        .output()
        .map_err(|error| format!("git: {error}"))?;
    said(applied, "apply")?;
    for kind in BTreeSet::from_iter(bug.checks.iter().map(|check| check.kind)) {
        let mut building = cargo(tree);
        match kind {
            Kind::Suite => building.args(["build", "--all-features", "--example", "worker", "--test", "it"]),
            Kind::Schedules => schedules(&mut building, &["--list"]),
            Kind::Campaign => building.args([
                "build",
                "--all-features",
                "--example",
                "torture",
                "--package=xtask",
                "--package=redisson-lock",
            ]),
        };
        said(building.output().map_err(|error| format!("cargo: {error}"))?, "build")?;
    }
    Ok(())
}

fn cargo(tree: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(tree).env_remove("CARGO_TARGET_DIR");
    // Nobody looks into what is built here, and most of the time it takes goes into what a debugger would need.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_DEV_STRIP", "debuginfo");
    cargo
}

impl Check {
    /// What failed, or an error if nothing did.
    fn catch(&self, tree: &Path, environment: &setup::Environment) -> Result<Vec<String>, String> {
        let mut command = cargo(tree);
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        match self.kind {
            Kind::Suite => command.args(["test", "--all-features", "--test", "it", "--"]).args(&arguments),
            Kind::Schedules => schedules(&mut command, &arguments),
            Kind::Campaign => command.args(["xtask", "torture", "--minutes", "1"]).args(&arguments),
        };
        environment.tell(&mut command);
        let mut running = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cargo: {error}"))?;
        let output = BufReader::new(running.stdout.take().expect("it is piped"));
        let (lines, told) = mpsc::channel();
        let reading =
            thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        let until = Instant::now() + LIMIT;
        let (mut failed, mut hanging) = (BTreeSet::new(), BTreeSet::new());
        loop {
            match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => match self.kind {
                    Kind::Campaign => {
                        let rule = line.strip_prefix("FAILED   ").and_then(|told| told.split(',').next());
                        failed.extend(rule.map(str::to_owned));
                    }
                    Kind::Suite | Kind::Schedules => {
                        let Some(told) = line.strip_prefix("test ") else { continue };
                        if let Some((test, "FAILED")) = told.split_once(" ... ") {
                            failed.insert(test.to_owned());
                        }
                        hanging.extend(
                            told.split_once(" has been running").map(|(test, _)| format!("{test} (no end)")),
                        );
                    }
                },
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // A bug may well leave a test waiting for ever.
                    failed.extend(hanging);
                    let group = format!("-{}", running.id());
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                    break;
                }
            }
        }
        let _ = (running.wait(), reading.join());
        if failed.is_empty() {
            return Err(format!("nothing failed in the {:?} under {arguments:?}", self.kind));
        }
        Ok(failed.into_iter().collect())
    }
}
