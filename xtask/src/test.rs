//! Installs what the tests need, and runs all of them. A missing tool is an error; no test is skipped for it. Then some
//! tests run again: with scripts only, on random schedules (`tests/shuttle`), and a core set on each other server. If the
//! arguments select tests, only what these need is installed, and nothing runs again.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crate::cargo::{self, cargo};
use crate::needs::{self, JAVA, Needs};
use crate::paths;
use crate::server_versions::{self, Unsupported};
use crate::setup::{self, Environment};

/// Modules that run again on each other server. They cover records, replies, messages, refusals and failovers, which differ
/// between versions.
const CORE: [&str; 10] = [
    "truth_table",
    "interop",
    "kinds",
    "kinds_lost_replies",
    "permissions",
    "cluster",
    "sentinel",
    "value_lock",
    "regressions",
    "semaphore_faults",
];

/// Modules that run again on a server that permits only scripts. The other modules use no lock that has a fast path, or do
/// not use the library.
const SCRIPTS_ONLY: [&str; 22] = [
    "basic",
    "cancellation",
    "cancelled_calls",
    "cancelled_tasks",
    "cluster",
    "crowds",
    "faults",
    "interop",
    "kinds",
    "kinds_cancelled",
    "kinds_interop",
    "kinds_lost_replies",
    "kinds_loss",
    "lost_replies",
    "model_api",
    "multi_lock",
    "operations",
    "pipelined",
    "red_lock",
    "regressions",
    "replication",
    "value_lock",
];

struct Options<'a> {
    versions: Vec<String>,
    server: Option<&'a str>,
    java: bool,
    /// Cargo's options for the features: all of them, or a list.
    features: Vec<String>,
    cargo_arguments: &'a [&'a str],
}

fn read_options<'a>(arguments: &'a [&'a str]) -> Result<Options<'a>, String> {
    let (own, cargo_arguments) = match arguments.iter().position(|word| *word == "--") {
        Some(dashes) => (&arguments[..dashes], &arguments[dashes + 1..]),
        None => (arguments, [].as_slice()),
    };
    let mut options = Options {
        versions: setup::default_versions(),
        server: None,
        java: true,
        features: vec!["--all-features".to_owned()],
        cargo_arguments,
    };
    let mut words = own.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("test: {word} needs a value"));
        match *word {
            "--redisson" => options.versions = vec![(*value()?).to_owned()],
            "--server" => options.server = Some(value()?),
            "--no-java" => options.java = false,
            "--features" if cargo_arguments.is_empty() => {
                return Err("test: --features needs arguments of cargo test, such as -- --test it -- tls::"
                    .to_owned());
            }
            "--features" => {
                options.features =
                    ["--no-default-features", "--features", value()?].map(str::to_owned).to_vec();
            }
            _ => {
                return Err(format!("test: unknown argument {word:?}; put arguments of cargo test after --"));
            }
        }
    }
    Ok(options)
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let part = !options.cargo_arguments.is_empty();
    let needs = needs::of_tests()?;
    let mut words = vec!["test".to_owned()];
    words.extend(options.features.iter().cloned());
    words.push("--workspace".to_owned());
    words.extend(options.cargo_arguments.iter().map(|word| (*word).to_owned()));
    // A selection is built and listed first, so that only what it needs is installed.
    let chosen = if part { Some(list(&words)?) } else { None };
    let is_chosen = |test: &String| chosen.as_ref().is_none_or(|chosen| chosen.contains(test));
    let left_out: Vec<&String> = needs
        .iter()
        .filter(|(test, needs)| !options.java && needs.contains(JAVA) && is_chosen(test))
        .map(|(test, _)| test)
        .collect();
    let mut wanted = match &chosen {
        Some(chosen) => chosen.iter().filter_map(|test| needs.get(test)).flatten().cloned().collect(),
        None => needs::all(),
    };
    if !options.java {
        wanted.remove(JAVA);
    }
    if let Some(server) = server_versions::FETCHED.iter().find(|server| options.server == Some(server.name)) {
        wanted.insert(server.setting());
    }
    // Downloads and the compiler run in parallel. A selection was already built to list it.
    let mut building = match part {
        true => None,
        false => {
            Some(cargo().args(&words).arg("--no-run").spawn().map_err(|error| format!("cargo: {error}"))?)
        }
    };
    let installed = setup::for_needs(&options.versions, &wanted);
    if let Some(building) = &mut building {
        let built = building.wait().map_err(|error| format!("cargo: {error}"))?;
        if !built.success() {
            return Ok(exit_code(built));
        }
    }
    let installed = installed?;
    let (environment, unsupported) = match options.server {
        Some(name) => installed.clone().on(name)?,
        None => (installed.clone(), [].as_slice()),
    };
    if !environment.versions.is_empty() {
        println!("test: against Redisson {}", environment.versions.join(", "));
    }
    if part && wanted.contains(needs::PROGRAMS) {
        // `cargo test` builds the examples only if it is not told what to test. Only the tests of `examples` need all of
        // them.
        let all = chosen.iter().flatten().any(|test| test.starts_with("examples::"));
        let which = if all { ["--examples"].as_slice() } else { &["--example", "worker"] };
        let status = cargo().arg("build").args(&options.features).args(which).status();
        if !status.map_err(|error| format!("cargo: {error}"))?.success() {
            return Err("test: the build of the examples failed".to_owned());
        }
    }
    write_needs(&needs)?;
    skip_unsupported(unsupported, &mut words);
    println!("test: cargo {}", words.join(" "));
    skip(&left_out, needs.keys(), &mut words)?;
    let schedules = (!part && options.server.is_none()).then(build_schedules);
    let status = tests(&environment, &words, 3).status().map_err(|error| format!("cargo: {error}"))?;
    if let Some(Ok(mut building)) = schedules {
        let _ = building.wait();
    }
    // Nothing runs again for a selection.
    let code = match !status.success() || part {
        true => exit_code(status),
        false => run_again(&environment, &options, &left_out)?,
    };
    if !left_out.is_empty() {
        println!(
            "test: NOT RUN: {} tests that need Java; repeat without --no-java to run them",
            left_out.len()
        );
    }
    Ok(code)
}

/// Runs some of the tests again.
fn run_again(environment: &Environment, options: &Options, left_out: &[&String]) -> Result<ExitCode, String> {
    // These runs use only the newest Redisson.
    let mut beside_newest = environment.clone();
    beside_newest.versions = environment.versions.last().cloned().into_iter().collect();
    let scripts_only = names_in(&SCRIPTS_ONLY, left_out)?;
    let mut scripts = selected(&beside_newest, &scripts_only);
    scripts.env("REDISSON_LOCK_SCRIPTS_ONLY", "1");
    let mut runs = vec![("tests with scripts only".to_owned(), scripts)];
    if options.server.is_none() {
        let mut random = cargo();
        schedules(&mut random).args(["--", "shuttled", "--show-output"]);
        runs.push(("random schedules".to_owned(), random));
        let core = names_in(&CORE, left_out)?;
        for server in &server_versions::FETCHED {
            // Every server supports all of the core.
            let (environment, _) = beside_newest.clone().on(server.name)?;
            runs.push((format!("core set on {}", server.name), selected(&environment, &core)));
        }
    }
    Ok(in_pairs(runs))
}

/// Runs commands, two at a time because their tests mostly wait. Prints the output of each one when it ends. Starts no more
/// after one has failed.
fn in_pairs(runs: Vec<(String, Command)>) -> ExitCode {
    let (left, code) = (Mutex::new(runs.into_iter()), Mutex::new(ExitCode::SUCCESS));
    let run_all = || {
        let next = || left.lock().expect("no thread panics").next();
        while let Some((what, mut tests)) = next() {
            println!("test: {what}: started");
            let started = Instant::now();
            let output = tests.stdin(Stdio::null()).output();
            let took = started.elapsed().as_secs();
            // Held until all is printed.
            let mut code = code.lock().expect("no thread panics");
            match output {
                Ok(Output { status, stdout, stderr }) => {
                    print!("{}{}", String::from_utf8_lossy(&stderr), String::from_utf8_lossy(&stdout));
                    println!("test: {what}: {took} s, {status}");
                    if status.success() {
                        continue;
                    }
                    *code = exit_code(status);
                }
                Err(error) => {
                    println!("test: {what}: cargo: {error}");
                    *code = ExitCode::FAILURE;
                }
            }
            left.lock().expect("no thread panics").by_ref().for_each(drop);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(run_all);
        }
    });
    code.into_inner().expect("no thread panics")
}

/// Builds the tests that `words` select, and returns their names.
fn list(words: &[String]) -> Result<BTreeSet<String>, String> {
    let mut listing = cargo();
    listing.args(words);
    if !words.iter().any(|word| word == "--") {
        listing.arg("--");
    }
    // Cargo reports the build on stderr.
    let listed = listing.arg("--list").stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|error| format!("cargo: {error}"))?;
    if !listed.status.success() {
        return Err("test: the tests could not be built or listed".to_owned());
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: BTreeSet<_> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    match names.is_empty() {
        true => Err("test: no test matches these arguments".to_owned()),
        false => Ok(names),
    }
}

/// Writes the needs for `setting` in `tests/it/support`, which fails a test that asks for an unlisted setting.
fn write_needs(needs: &BTreeMap<String, Needs>) -> Result<(), String> {
    let line =
        |(test, needs): (&String, &Needs)| format!("{test} {}\n", Vec::from_iter(needs.clone()).join(" "));
    fs::write(needs_file(), needs.iter().map(line).collect::<String>()).map_err(paths::at(&needs_file()))
}

fn needs_file() -> PathBuf {
    paths::target().join("needs")
}

/// Adds arguments that skip these tests.
fn skip<'a>(
    left_out: &[&String],
    all: impl Iterator<Item = &'a String> + Clone,
    words: &mut Vec<String>,
) -> Result<(), String> {
    if !left_out.is_empty() && !words.iter().any(|word| word == "--") {
        words.push("--".to_owned());
    }
    for test in left_out {
        // `--skip` matches substrings, so it would skip other tests whose names contain this one.
        let other = all.clone().find(|other| other.contains(test.as_str()) && !left_out.contains(other));
        if let Some(other) = other {
            return Err(format!("test: skipping {test} would also skip {other}: rename one of them"));
        }
        words.extend(["--skip".to_owned(), (*test).clone()]);
    }
    Ok(())
}

/// The full names of the tests in `modules`, without the skipped ones. A module without tests is an error, because it was
/// probably renamed.
fn names_in(modules: &[&str], left_out: &[&String]) -> Result<Vec<String>, String> {
    let all = list(&["test", "--quiet", "--all-features", "--test", "it"].map(str::to_owned))?;
    let mut names = Vec::new();
    for module in modules {
        let before = names.len();
        let inside = |name: &&String| name.split_once("::").is_some_and(|(first, _)| first == *module);
        names.extend(all.iter().filter(inside).cloned());
        if names.len() == before {
            return Err(format!("test: the module {module} has no tests"));
        }
    }
    names.retain(|name| !left_out.contains(&name));
    Ok(names)
}

/// Runs the tests with these full names.
fn selected(environment: &Environment, names: &[String]) -> Command {
    let mut tests = tests(environment, &["test", "--all-features", "--test", "it", "--", "--exact"], 2);
    tests.args(names);
    tests
}

/// Skips the tests that the server cannot run, and prints why.
fn skip_unsupported(unsupported: Unsupported, words: &mut Vec<String>) {
    if !unsupported.is_empty() && !words.iter().any(|word| word == "--") {
        words.push("--".to_owned());
    }
    for (part, why) in unsupported {
        println!("test: NOT RUN: {part}, because {why}");
        words.extend(["--skip", part].map(str::to_owned));
    }
}

/// Runs tests, `at_once` for each processor, because they mostly wait. The environment may set another number.
fn tests<S: AsRef<OsStr>>(environment: &Environment, words: &[S], at_once: usize) -> Command {
    let mut tests = cargo();
    environment.apply_to(tests.args(words));
    tests.env("REDISSON_LOCK_NEEDS", needs_file());
    const SETTING: &str = "RUST_TEST_THREADS";
    if env::var_os(SETTING).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        tests.env(SETTING, (at_once * processors).to_string());
    }
    tests
}

/// Selects the tests of `tests/shuttle`, which need a build of their own.
pub fn schedules(cargo: &mut Command) -> &mut Command {
    cargo
        .args(["test", "--all-features", "--lib", "--target-dir", "target/shuttle"])
        .env("RUSTFLAGS", format!("{} --cfg shuttle", env::var("RUSTFLAGS").unwrap_or_default()))
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
}

/// Starts the build of the schedules. With a low priority, it uses the time while other tests wait. An error is reported when the
/// schedules run.
fn build_schedules() -> io::Result<Child> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(cargo::program()).current_dir(paths::root());
    schedules(&mut nice).arg("--no-run").stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
