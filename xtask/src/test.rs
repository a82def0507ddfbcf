//! Sets up and runs the tests, all of them: what they need is either there or an error. Then those with a server once
//! more, without the way around Lua, those of `tests/shuttle`, and a core on each other server.

use std::env;
use std::num::NonZero;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use crate::servers::{self, Lacks};
use crate::setup::{self, Environment};

/// What is run on each other server: what is told of records, replies and messages, and who follows whom.
const CORE: [&str; 10] = [
    "truth_table::",
    "interop::",
    "kinds::",
    "kinds_lost_replies::",
    "permissions::",
    "cluster::",
    "sentinel::",
    "value_lock::",
    // What the server refuses, with the words of each version.
    "schedules::",
    "semaphore_faults::",
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
    let mut with_server = ["test", "--all-features", "--test", "it"].map(str::to_owned).to_vec();
    let core = with_server.clone();
    without(lacks, &mut with_server);
    let mut scripts = tests(&environment, &with_server);
    scripts.env("REDISSON_LOCK_SCRIPTS_ONLY", "1");
    let mut further = vec![("the same where the server permits only scripts".to_owned(), scripts)];
    if server.is_none() {
        let mut random = cargo();
        schedules(&mut random, &["shuttled", "--show-output"]);
        further.push(("the client's own code, scheduled at random".to_owned(), random));
        // Beside the newest Redisson alone.
        let newest = versions.last().cloned().into_iter().collect();
        let mut installed = installed;
        installed.versions = newest;
        for server in &servers::FETCHED {
            // Nothing of the core is what one of them lacks.
            let (environment, _) = installed.clone().on(server.name)?;
            let words = [core.as_slice(), &["--".to_owned()], &CORE.map(str::to_owned)].concat();
            further.push((format!("a core of them on {}", server.name), tests(&environment, &words)));
        }
    }
    for (what, mut tests) in further {
        println!("test: {what}");
        let status = tests.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Ok(exit_code(status));
        }
    }
    Ok(ExitCode::SUCCESS)
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

fn tests(environment: &Environment, words: &[String]) -> Command {
    let mut tests = cargo();
    environment.tell(tests.args(words));
    wait_at_once(&mut tests);
    tests
}

/// The tests of `tests/shuttle`, which are a build of their own.
pub fn schedules<'a>(cargo: &'a mut Command, arguments: &[&str]) -> &'a mut Command {
    cargo
        .args(["test", "--all-features", "--lib", "--target-dir", "target/shuttle", "--"])
        .args(arguments)
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
