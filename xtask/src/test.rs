//! Sets up and runs every test: a missing tool is an error, never a skipped test. Then runs parts of them again: the locks by
//! scripts alone, the random schedules of `tests/shuttle`, and a core on each other server.

use std::env;
use std::ffi::OsStr;
use std::num::NonZero;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Instant;

use crate::servers::{self, Lacks};
use crate::setup::{self, Environment};

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

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let (own, cargo_arguments) = match arguments.iter().position(|word| *word == "--") {
        Some(dashes) => (&arguments[..dashes], &arguments[dashes + 1..]),
        None => (arguments, [].as_slice()),
    };
    let (mut versions, mut server) = (setup::default_versions(), None);
    for option in own.chunks(2) {
        match option {
            ["--redisson", version] => versions = vec![(*version).to_owned()],
            ["--server", name] => server = Some(*name),
            _ => {
                return Err(format!(
                    "test: cannot read {option:?}; arguments for cargo test stand behind --"
                ));
            }
        }
    }
    let installed = setup::for_tests(&versions)?;
    let (environment, lacks) = match server {
        Some(name) => installed.clone().on(name)?,
        None => (installed.clone(), [].as_slice()),
    };
    println!("test: against Redisson {}", environment.versions.join(", "));
    let all = ["test", "--all-features", "--workspace"].map(str::to_owned).into_iter();
    let mut words: Vec<String> = all.chain(cargo_arguments.iter().map(|word| (*word).to_owned())).collect();
    without(lacks, &mut words);
    println!("test: cargo {}", words.join(" "));
    let status = tests(&environment, &words).status().map_err(|error| format!("cargo: {error}"))?;
    // Arguments choose a part of the tests above.
    if !status.success() || !cargo_arguments.is_empty() {
        return Ok(exit_code(status));
    }
    // Beside the newest Redisson alone, here and on the other servers.
    let mut beside_newest = environment;
    beside_newest.versions = versions.last().cloned().into_iter().collect();
    let scripts_only = names_in(&beside_newest, &SCRIPTS_ONLY)?;
    let mut scripts = selected(&beside_newest, &scripts_only);
    scripts.env("REDISSON_LOCK_SCRIPTS_ONLY", "1");
    let mut further = vec![("locks where the server permits only scripts".to_owned(), scripts)];
    if server.is_none() {
        let mut random = cargo();
        schedules(&mut random).args(["--", "shuttled", "--show-output"]);
        further.push(("the client's own code, scheduled at random".to_owned(), random));
        let core = names_in(&beside_newest, &CORE)?;
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

/// The full names of the tests in `modules`. A module without a test is an error: it was renamed, or the list is wrong.
fn names_in(environment: &Environment, modules: &[&str]) -> Result<Vec<String>, String> {
    let mut listing = tests(environment, &["test", "--quiet", "--all-features", "--test", "it"]);
    let listed = listing
        .args(["--", "--list", "--format", "terse"])
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !listed.status.success() {
        return Err(format!("test: cannot list the tests: {}", String::from_utf8_lossy(&listed.stderr)));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let all: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let mut names = Vec::new();
    for module in modules {
        let before = names.len();
        let inside = |name: &&&str| name.split_once("::").is_some_and(|(first, _)| first == *module);
        names.extend(all.iter().filter(inside).map(|name| (*name).to_owned()));
        if names.len() == before {
            return Err(format!("test: no test is in the module {module}"));
        }
    }
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
