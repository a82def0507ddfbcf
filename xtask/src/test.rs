//! Sets up and runs every test: a missing tool is an error, never a skipped test. Then runs parts of them again: the locks by
//! scripts alone, the random schedules of `tests/shuttle`, and a core on each other server. Of a part of the tests, it sets up
//! what that part needs, and runs nothing again.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use crate::needs::{self, Needs};
use crate::servers::{self, Lacks};
use crate::setup::{self, Environment, JAVA};

/// The modules that run on each other server: records, replies, messages, refusals and failovers, which differ from version
/// to version.
const CORE: [&str; 10] = [
    "truth_table",
    "interop",
    "kinds",
    "kinds_lost_replies",
    "permissions",
    "cluster",
    "sentinel",
    "value_lock",
    "schedules",
    "semaphore_faults",
];

/// The modules that run once more on a server that permits only scripts. The others use no lock with a way around Lua, or do
/// not use the library at all.
const SCRIPTS_ONLY: [&str; 21] = [
    "alone",
    "cancellation",
    "cancelled_calls",
    "cancelled_tasks",
    "cluster",
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
    "replication",
    "schedules",
    "value_lock",
];

struct Options<'a> {
    versions: Vec<String>,
    server: Option<&'a str>,
    java: bool,
    cargo_arguments: &'a [&'a str],
}

fn read_options<'a>(arguments: &'a [&'a str]) -> Result<Options<'a>, String> {
    let (own, cargo_arguments) = match arguments.iter().position(|word| *word == "--") {
        Some(dashes) => (&arguments[..dashes], &arguments[dashes + 1..]),
        None => (arguments, [].as_slice()),
    };
    let mut options =
        Options { versions: setup::default_versions(), server: None, java: true, cargo_arguments };
    let mut words = own.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("test: {word} lacks its value"));
        match *word {
            "--redisson" => options.versions = vec![(*value()?).to_owned()],
            "--server" => options.server = Some(value()?),
            "--no-java" => options.java = false,
            _ => {
                return Err(format!("test: cannot read {word:?}; arguments for cargo test stand behind --"));
            }
        }
    }
    Ok(options)
}

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let options = read_options(arguments)?;
    let part = !options.cargo_arguments.is_empty();
    let needs = needs::of_tests()?;
    let all = ["test", "--all-features", "--workspace"].map(str::to_owned).into_iter();
    let mut words: Vec<String> =
        all.chain(options.cargo_arguments.iter().map(|word| (*word).to_owned())).collect();
    // Built and listed before anything is set up, so that only that is set up which a part of the tests needs.
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
    if let Some(server) = servers::FETCHED.iter().find(|server| options.server == Some(server.name)) {
        wanted.insert(server.setting());
    }
    // The set-up waits for downloads, and the compiler does not. A part was built when it was listed.
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
    let (environment, lacks) = match options.server {
        Some(name) => installed.clone().on(name)?,
        None => (installed.clone(), [].as_slice()),
    };
    if !environment.versions.is_empty() {
        println!("test: against Redisson {}", environment.versions.join(", "));
    }
    if part && wanted.contains(needs::PROGRAMS) {
        // `cargo test` builds them only when it is not told what to test. All but one are for the tests of that module.
        let all = chosen.iter().flatten().any(|test| test.starts_with("examples::"));
        let which = if all { ["--examples"].as_slice() } else { &["--example", "worker"] };
        let status = cargo().args(["build", "--all-features"]).args(which).status();
        if !status.map_err(|error| format!("cargo: {error}"))?.success() {
            return Err("test: the examples do not build".to_owned());
        }
    }
    write_needs(&needs)?;
    without(lacks, &mut words);
    println!("test: cargo {}", words.join(" "));
    skip(&left_out, needs.keys(), &mut words)?;
    let status = tests(&environment, &words).status().map_err(|error| format!("cargo: {error}"))?;
    // Arguments choose a part of the tests above.
    let code = match !status.success() || part {
        true => exit_code(status),
        false => further(&environment, &options, &left_out)?,
    };
    if !left_out.is_empty() {
        println!(
            "test: NOT RUN, because of --no-java: {} tests that need Java. The same command without --no-java runs them.",
            left_out.len()
        );
    }
    Ok(code)
}

/// Parts of the tests once more.
fn further(environment: &Environment, options: &Options, left_out: &[&String]) -> Result<ExitCode, String> {
    // Beside the newest Redisson alone, here and on the other servers.
    let mut beside_newest = environment.clone();
    beside_newest.versions = environment.versions.last().cloned().into_iter().collect();
    let scripts_only = names_in(&SCRIPTS_ONLY, left_out)?;
    let mut scripts = selected(&beside_newest, &scripts_only);
    scripts.env("REDISSON_LOCK_SCRIPTS_ONLY", "1");
    let mut further = vec![("locks where the server permits only scripts".to_owned(), scripts)];
    if options.server.is_none() {
        let mut random = cargo();
        schedules(&mut random).args(["--", "shuttled", "--show-output"]);
        further.push(("the client's own code, scheduled at random".to_owned(), random));
        let core = names_in(&CORE, left_out)?;
        for server in &servers::FETCHED {
            // No server lacks anything that the core needs.
            let (environment, _) = beside_newest.clone().on(server.name)?;
            further.push((format!("the core on {}", server.name), selected(&environment, &core)));
        }
    }
    for (what, mut tests) in further {
        println!("test: {what}");
        let started = Instant::now();
        let status = tests.status().map_err(|error| format!("cargo: {error}"))?;
        println!("test: {what}: {} s", started.elapsed().as_secs());
        if !status.success() {
            return Ok(exit_code(status));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the tests that `words` choose, and returns their names.
fn list(words: &[String]) -> Result<BTreeSet<String>, String> {
    let mut listing = cargo();
    listing.args(words);
    if !words.iter().any(|word| word == "--") {
        listing.arg("--");
    }
    // The build says what it does on the error stream.
    let listed = listing.arg("--list").stderr(Stdio::inherit()).output();
    let listed = listed.map_err(|error| format!("cargo: {error}"))?;
    if !listed.status.success() {
        return Err("test: the tests do not build, or cannot be listed".to_owned());
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: BTreeSet<_> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    match names.is_empty() {
        true => Err("test: these arguments choose no test".to_owned()),
        false => Ok(names),
    }
}

/// For `setting` in `tests/it/support`, which refuses a test what is not found in its sources.
fn write_needs(needs: &BTreeMap<String, Needs>) -> Result<(), String> {
    let line =
        |(test, needs): (&String, &Needs)| format!("{test} {}\n", Vec::from_iter(needs.clone()).join(" "));
    fs::write(needs_file(), needs.iter().map(line).collect::<String>()).map_err(setup::at(&needs_file()))
}

fn needs_file() -> PathBuf {
    setup::target().join("needs")
}

/// Leaves these tests out of all.
fn skip<'a>(
    left_out: &[&String],
    all: impl Iterator<Item = &'a String> + Clone,
    words: &mut Vec<String>,
) -> Result<(), String> {
    if !left_out.is_empty() && !words.iter().any(|word| word == "--") {
        words.push("--".to_owned());
    }
    for test in left_out {
        // Other tests whose names contain this one would be left out, too.
        let other = all.clone().find(|other| other.contains(test.as_str()) && !left_out.contains(other));
        if let Some(other) = other {
            return Err(format!("test: {test} cannot be left out without {other}: rename one of them"));
        }
        words.extend(["--skip".to_owned(), (*test).clone()]);
    }
    Ok(())
}

/// The full names of the tests in `modules` but for those that are left out. A module without a test is an error: it was
/// renamed, or the list is wrong.
fn names_in(modules: &[&str], left_out: &[&String]) -> Result<Vec<String>, String> {
    let all = list(&["test", "--quiet", "--all-features", "--test", "it"].map(str::to_owned))?;
    let mut names = Vec::new();
    for module in modules {
        let before = names.len();
        let inside = |name: &&String| name.split_once("::").is_some_and(|(first, _)| first == *module);
        names.extend(all.iter().filter(inside).cloned());
        if names.len() == before {
            return Err(format!("test: no test is in the module {module}"));
        }
    }
    names.retain(|name| !left_out.contains(&name));
    Ok(names)
}

/// The tests of these full names.
fn selected(environment: &Environment, names: &[String]) -> Command {
    let mut tests = tests(environment, &["test", "--all-features", "--test", "it", "--", "--exact"]);
    tests.args(names);
    tests
}

/// Leaves out what the server can't run, and says so.
fn without(lacks: Lacks, words: &mut Vec<String>) {
    if !lacks.is_empty() && !words.iter().any(|word| word == "--") {
        words.push("--".to_owned());
    }
    for (part, why) in lacks {
        println!("test: NOT RUN on this server, because {why}: {part}");
        words.extend(["--skip", part].map(str::to_owned));
    }
}

fn tests<S: AsRef<OsStr>>(environment: &Environment, words: &[S]) -> Command {
    let mut tests = cargo();
    environment.tell(tests.args(words));
    tests.env("REDISSON_LOCK_NEEDS", needs_file());
    wait_at_once(&mut tests);
    tests
}

/// The tests of `tests/shuttle`, which are a build of their own.
pub fn schedules(cargo: &mut Command) -> &mut Command {
    cargo
        .args(["test", "--all-features", "--lib", "--target-dir", "target/shuttle"])
        .env("RUSTFLAGS", format!("{} --cfg shuttle", env::var("RUSTFLAGS").unwrap_or_default()))
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
}

/// The tests wait for most of their time, so twice as many run at once as there are processors; unless told otherwise.
fn wait_at_once(tests: &mut Command) {
    const SETTING: &str = "RUST_TEST_THREADS";
    if env::var_os(SETTING).is_none() {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        tests.env(SETTING, (2 * processors).to_string());
    }
}

fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(setup::root());
    cargo
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
