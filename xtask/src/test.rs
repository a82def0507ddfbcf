//! Sets up and runs the tests, all of them: what they need is either there or an error. Then those of `tests/shuttle`.

use std::env;
use std::process::{Command, ExitCode, ExitStatus};

use crate::setup::{self, Clock};

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
    let environment = setup::run(&versions, Clock::Moved)?;
    let options = [["test", "--all-features", "--workspace"].as_slice(), cargo_arguments].concat();
    println!("test: against Redisson {}", environment.versions.join(", "));
    println!("test: cargo {}", options.join(" "));
    let mut tests = cargo();
    environment.tell(tests.args(&options));
    let status = tests.status().map_err(|error| format!("cargo: {error}"))?;
    // Arguments choose a part of the tests above.
    if !status.success() || !cargo_arguments.is_empty() {
        return Ok(exit_code(status));
    }
    println!("test: the client's own code, scheduled at random");
    let status = schedules(&mut cargo(), &["shuttled", "--show-output"]).status();
    Ok(exit_code(status.map_err(|error| format!("cargo: {error}"))?))
}

/// The tests of `tests/shuttle`, which are a build of their own.
pub fn schedules<'a>(cargo: &'a mut Command, arguments: &[&str]) -> &'a mut Command {
    cargo
        .args(["test", "--all-features", "--lib", "--target-dir", "target/shuttle", "--"])
        .args(arguments)
        .env("RUSTFLAGS", format!("{} --cfg shuttle", env::var("RUSTFLAGS").unwrap_or_default()))
        .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
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
