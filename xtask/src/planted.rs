//! Shows that the tests can fail: applies each patch of `tests/planted` to a copy of the project, and runs the tests
//! that are to catch it. A patch opens with lines of text: what the bug is, and `Caught by: <filters of the test binary>`.
//! A patch that no longer applies is a failure, as is a bug that nothing catches.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::setup;

/// How long the tests of one bug may take.
const LIMIT: Duration = Duration::from_secs(100);

struct Planted {
    name: String,
    patch: PathBuf,
    /// What the bug is.
    bug: String,
    filters: Vec<String>,
}

pub fn run(names: &[&str]) -> Result<ExitCode, String> {
    let environment = setup::run(&["3.52.0".to_owned()])?;
    let project = setup::root();
    let copy = setup::target().join("planted");
    let mut missed = 0;
    let bugs = all(&project.join("tests/planted"))?;
    let bugs: Vec<_> = bugs.iter().filter(|bug| names.is_empty() || names.contains(&&*bug.name)).collect();
    if bugs.is_empty() {
        return Err(format!("planted: no patch is named {names:?}"));
    }
    for bug in &bugs {
        copy_project(&project, &copy.join("tree"))?;
        let outcome = plant(bug, &copy, &environment)?;
        match &outcome {
            Ok(failed) => println!("planted: {}: caught by {}\n    {}", bug.name, failed.join(", "), bug.bug),
            Err(problem) => {
                missed += 1;
                println!("planted: {}: MISSED: {problem}\n    {}", bug.name, bug.bug);
            }
        }
    }
    println!("planted: {} bugs, {} caught", bugs.len(), bugs.len() - missed);
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    let (filters, bug): (Vec<&str>, Vec<&str>) =
        head.iter().partition(|line| line.starts_with("Caught by: "));
    let [filters] = filters.as_slice() else {
        return Err(format!("{}: no line, or more than one, says what it is caught by", patch.display()));
    };
    let filters = filters["Caught by: ".len()..].split_whitespace().map(str::to_owned).collect();
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Planted { name, bug: bug.join(" ").trim().to_owned(), filters, patch })
}

/// The files that git knows and those it does not ignore; what is planted is never in the project itself.
fn copy_project(project: &Path, copy: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(project)
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !listed.status.success() {
        return Err(format!("git: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    for file in String::from_utf8_lossy(&listed.stdout).lines() {
        let (from, to) = (project.join(file), copy.join(file));
        let Ok(content) = fs::read(&from) else { continue };
        // An unchanged file keeps its time, so that it is not compiled anew.
        if fs::read(&to).is_ok_and(|old| old == content) {
            continue;
        }
        let folder = to.parent().expect("a file is in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&to, content))
            .map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

/// The tests that caught it, or why none did.
fn plant(
    bug: &Planted,
    copy: &Path,
    environment: &setup::Environment,
) -> Result<Result<Vec<String>, String>, String> {
    let tree = copy.join("tree");
    let applied = Command::new("git")
        .args(["apply", "--unsafe-paths", "--whitespace=nowarn"])
        .arg(format!("--directory={}", tree.display()))
        .arg(&bug.patch)
        .current_dir("/")
        .output()
        .map_err(|error| format!("git: {error}"))?;
    if !applied.status.success() {
        return Ok(Err(format!("it does not apply: {}", String::from_utf8_lossy(&applied.stderr).trim())));
    }
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(arguments)
            .current_dir(&tree)
            .env("CARGO_TARGET_DIR", copy.join("target"))
            .env("REDISSON_LOCK_SERVER", &environment.server)
            .env("REDISSON_LOCK_PEERS", &environment.peers)
            .env("REDISSON_LOCK_VERSIONS", "3.52.0")
            .env("REDISSON_LOCK_FAKETIME", &environment.faketime);
        cargo
    };
    let failed = |error| format!("cargo: {error}");
    let built =
        cargo(&["build", "--quiet", "--all-features", "--examples", "--tests"]).output().map_err(failed)?;
    if !built.status.success() {
        return Ok(Err(format!("it does not build: {}", String::from_utf8_lossy(&built.stderr))));
    }
    let filters: Vec<&str> = bug.filters.iter().map(String::as_str).collect();
    let arguments = [["test", "--all-features", "--test", "it", "--"].as_slice(), &filters].concat();
    let mut testing = cargo(&arguments)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let output = BufReader::new(testing.stdout.take().expect("it is piped"));
    let (lines, told) = mpsc::channel();
    let reading =
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
    let until = Instant::now() + LIMIT;
    let mut caught = Vec::new();
    let mut running = BTreeSet::new();
    loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => match line.strip_prefix("test ").and_then(|line| line.split_once(" ... ")) {
                Some((test, "FAILED")) => caught.push(test.to_owned()),
                _ => {
                    let hanging =
                        line.strip_prefix("test ").and_then(|line| line.split_once(" has been running"));
                    running.extend(hanging.map(|(test, _)| format!("{test} (no end)")));
                }
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                // A bug may well leave a test waiting for ever.
                caught.extend(running);
                let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", testing.id())]).status();
                break;
            }
        }
    }
    let _ = (testing.wait(), reading.join());
    Ok(if caught.is_empty() { Err(format!("nothing failed under {filters:?}")) } else { Ok(caught) })
}
