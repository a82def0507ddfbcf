//! A copy of the project, in which a mutant is applied and its checks are built and run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::patches::{Harness, Mutant};
use super::verdict::{End, Run};
use crate::cargo;
use crate::setup::Environment;
use crate::test::schedules;

/// How long a campaign of one minute may take, including its build and set-up.
const CAMPAIGN_LIMIT: Duration = Duration::from_secs(600);

pub struct Tree {
    pub folder: PathBuf,
    pub environment: Environment,
}

/// A run of a test, and where the test panicked.
pub struct TestRun {
    pub run: Run,
    pub panicked: Option<String>,
}

impl Tree {
    /// Makes the copy equal to the project. Keeps its build directory.
    pub fn reset(&self, project: &Path) -> Result<(), String> {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(project)
            .output()
            .map_err(|error| format!("git: {error}"))?;
        if !listed.status.success() {
            return Err(format!("git: {}", String::from_utf8_lossy(&listed.stderr)));
        }
        let listed = String::from_utf8_lossy(&listed.stdout);
        let mut kept = BTreeSet::from([self.folder.join("target")]);
        for file in listed.lines() {
            let (from, to) = (project.join(file), self.folder.join(file));
            let Ok(content) = fs::read(&from) else { continue };
            kept.insert(to.clone());
            // An unchanged file keeps its modification time, so that cargo does not rebuild it.
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            let folder = to.parent().expect("a file is in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&to, content))
                .map_err(|error| format!("{file}: {error}"))?;
        }
        clear(&self.folder, &kept).map_err(|error| format!("{}: {error}", self.folder.display()))
    }

    pub fn apply(&self, mutant: &Mutant) -> Result<(), String> {
        let applied = Command::new("git")
            .args(["apply", "--unsafe-paths", "--whitespace=nowarn"])
            .arg(format!("--directory={}", self.folder.display()))
            .arg(&mutant.patch)
            .current_dir("/")
            .output()
            .map_err(|error| format!("git: {error}"))?;
        succeeded(&applied).map_err(|text| format!("the patch does not apply: {text}"))
    }

    /// Builds the tests of a harness, and returns their program.
    pub fn build(&self, harness: &Harness) -> Result<PathBuf, String> {
        let mut building = self.cargo();
        let name = match harness {
            Harness::Suite => {
                building.args(["build", "--all-features", "--example", "worker", "--test", "it"]);
                "it-"
            }
            Harness::Schedules => {
                schedules(&mut building).arg("--no-run");
                "redisson_lock-"
            }
            Harness::CommandLine => {
                building.args(["build", "--package", "redisson-lock-cli", "--bins", "--test", "cli"]);
                "cli-"
            }
            Harness::Campaign(_) => return Err("a campaign has no test program to build".to_owned()),
        };
        let built = building
            .arg("--message-format=json-render-diagnostics")
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        succeeded(&built).map_err(|text| format!("the build failed: {text}"))?;
        let messages = String::from_utf8_lossy(&built.stdout);
        let mut programs = messages.lines().filter_map(|line| {
            let (program, _) = line.split_once("\"executable\":\"")?.1.split_once('"')?;
            Some(PathBuf::from(program))
        });
        programs
            .find(|program| program.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
            .ok_or_else(|| format!("cargo built no program named {name}*"))
    }

    /// The full names of all tests of a program.
    pub fn tests(&self, program: &Path) -> Result<BTreeSet<String>, String> {
        let mut listing = Command::new(program);
        listing.args(["--list", "--format", "terse"]).current_dir(&self.folder);
        self.environment.apply_to(&mut listing);
        let listed = listing.output().map_err(|error| format!("{}: {error}", program.display()))?;
        succeeded(&listed)?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Runs each test in its own process, `at_once` at a time. A test is killed at its limit.
    pub fn run_tests(
        &self,
        program: &Path,
        tests: &[(&str, Duration)],
        at_once: usize,
    ) -> Result<BTreeMap<String, TestRun>, String> {
        let (next, all) = (AtomicUsize::new(0), Mutex::new(Ok(BTreeMap::new())));
        thread::scope(|scope| {
            for _ in 0..at_once.min(tests.len()) {
                scope.spawn(|| {
                    while let Some((name, limit)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let run = self.run_test(program, name, *limit);
                        let mut all = all.lock().expect("no thread panics");
                        match (&mut *all, run) {
                            (Ok(all), Ok(run)) => drop(all.insert((*name).to_owned(), run)),
                            (Ok(_), Err(problem)) => *all = Err(problem),
                            (Err(_), _) => {}
                        }
                    }
                });
            }
        });
        all.into_inner().expect("no thread panics")
    }

    fn run_test(&self, program: &Path, name: &str, limit: Duration) -> Result<TestRun, String> {
        let mut command = Command::new(program);
        command.args(["--exact", name]);
        let (succeeded, took, output) = self.run(command, name, limit)?;
        let end = match succeeded {
            None => End::Hung,
            // An ignored test, or one that exits the process, does not pass.
            Some(true) if output.contains("test result: ok. 1 passed") => End::Passed,
            Some(_) => End::Failed,
        };
        let panicked = output.lines().filter_map(|line| Some(line.split_once("panicked at ")?.1)).next();
        Ok(TestRun { run: Run { end, took }, panicked: panicked.map(str::to_owned) })
    }

    /// Runs a campaign of one minute. Returns for each rule how often it applied and how often it was broken.
    pub fn run_campaign(
        &self,
        arguments: &[String],
    ) -> Result<(BTreeMap<String, [usize; 2]>, Duration), String> {
        let mut command = self.cargo();
        command.args(["xtask", "chaos", "--minutes", "1"]).args(arguments);
        let (_, took, output) = self.run(command, "campaign", CAMPAIGN_LIMIT)?;
        let rules: BTreeMap<_, _> = output.lines().filter_map(rule).collect();
        match rules.is_empty() {
            true => Err(format!("the campaign printed no table of rules: {}", last_lines(&output))),
            false => Ok((rules, took)),
        }
    }

    /// Returns whether the command succeeded (`None` if it was killed at the limit), its duration, and its output.
    fn run(
        &self,
        mut command: Command,
        name: &str,
        limit: Duration,
    ) -> Result<(Option<bool>, Duration, String), String> {
        let folder = self.folder.join("target/checks");
        let log = folder.join(format!("{}.log", name.replace("::", "-")));
        let at = |error: io::Error| format!("{}: {error}", log.display());
        fs::create_dir_all(&folder).map_err(at)?;
        // The output goes to a file, because a child that outlives the process would keep a pipe open.
        let output = File::create(&log).map_err(at)?;
        self.environment.apply_to(&mut command);
        let started = Instant::now();
        let mut running = command
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(at)?)
            .stderr(output)
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let status = loop {
            match running.try_wait().map_err(at)? {
                Some(status) => break Some(status.success()),
                None if started.elapsed() > limit => {
                    let group = format!("-{}", running.id());
                    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                    let _ = running.wait();
                    break None;
                }
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        let took = started.elapsed();
        let output = fs::read(&log).map_err(at)?;
        Ok((status, took, String::from_utf8_lossy(&output).into_owned()))
    }

    fn cargo(&self) -> Command {
        let mut cargo = cargo::cargo();
        cargo.current_dir(&self.folder).env_remove("CARGO_TARGET_DIR");
        // Nobody debugs these builds, and debug information takes most of the build time.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_DEV_STRIP", "debuginfo");
        cargo.env("CARGO_PROFILE_TEST_DEBUG", "false").env("CARGO_PROFILE_TEST_STRIP", "debuginfo");
        // A mutant changes one function. Without incremental builds, each build takes six times as long.
        cargo.env("CARGO_INCREMENTAL", "1");
        cargo
    }
}

/// Parses a row of the campaign's table of rules.
fn rule(line: &str) -> Option<(String, [usize; 2])> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
    let (name, applied, broken) = (cells.next()?, cells.next()?, cells.next()?);
    Some((name.to_owned(), [applied.parse().ok()?, broken.parse().ok()?]))
}

fn succeeded(output: &Output) -> Result<(), String> {
    match output.status.success() {
        true => Ok(()),
        false => Err(last_lines(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Removes files that no longer exist in the project.
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

#[cfg(test)]
mod tests {
    use super::rule;

    #[test]
    fn only_rows_of_the_table_of_rules_are_parsed() {
        assert_eq!(
            rule("| fencing tokens increase | 12 | 3 |"),
            Some(("fencing tokens increase".to_owned(), [12, 3]))
        );
        for other in ["| rule | applied | broken |", "| --- | ---: | ---: |", "tokens rise: 12"] {
            assert_eq!(rule(other), None);
        }
    }
}
