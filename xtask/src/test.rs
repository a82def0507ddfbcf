//! Sets up and runs the tests, all of them: what they need is either there or an error. Then those with a server once
//! more, without the way around Lua, and those of `tests/shuttle`.

use std::env;
use std::num::NonZero;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;

use crate::setup;

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let (own, cargo_arguments) = match arguments.iter().position(|word| *word == "--") {
        Some(dashes) => (&arguments[..dashes], &arguments[dashes + 1..]),
        None => (arguments, [].as_slice()),
    };
    let versions = match own {
        [] => setup::default_versions(),
        ["--redisson", version] => vec![(*version).to_owned()],
        _ => {
            return Err(format!("test: cannot read {own:?}; arguments for cargo test stand behind --"));
        }
    };
    let environment = setup::for_tests(&versions)?;
    let options = [["test", "--all-features", "--workspace"].as_slice(), cargo_arguments].concat();
    println!("test: against Redisson {}", environment.versions.join(", "));
    println!("test: cargo {}", options.join(" "));
    let mut tests = cargo();
    environment.tell(tests.args(&options));
    wait_at_once(&mut tests);
    let status = tests.status().map_err(|error| format!("cargo: {error}"))?;
    // Arguments choose a part of the tests above.
    if !status.success() || !cargo_arguments.is_empty() {
        return Ok(exit_code(status));
    }
    let mut scripts = cargo();
    scripts.args(["test", "--all-features", "--test", "it"]).env("REDISSON_LOCK_SCRIPTS_ONLY", "1");
    environment.tell(&mut scripts);
    wait_at_once(&mut scripts);
    let mut random = cargo();
    schedules(&mut random, &["shuttled", "--show-output"]);
    let what =
        ["the same where the server permits only scripts", "the client's own code, scheduled at random"];
    for (what, mut tests) in what.into_iter().zip([scripts, random]) {
        println!("test: {what}");
        let status = tests.status().map_err(|error| format!("cargo: {error}"))?;
        if !status.success() {
            return Ok(exit_code(status));
        }
    }
    Ok(ExitCode::SUCCESS)
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
