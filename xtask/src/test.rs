//! Sets up and runs the tests, all of them: what they need is either there or an error.

use std::env;
use std::process::{Command, ExitCode};

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
    let environment = setup::run(&versions)?;
    let versions = environment.versions.join(",");
    let options = [["test", "--all-features", "--workspace"].as_slice(), cargo_arguments].concat();
    println!("test: against Redisson {versions}");
    println!("test: cargo {}", options.join(" "));
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(&options)
        .current_dir(setup::root())
        .env("REDISSON_LOCK_SERVER", &environment.server)
        .env("REDISSON_LOCK_PEERS", &environment.peers)
        .env("REDISSON_LOCK_VERSIONS", versions)
        .env("REDISSON_LOCK_FAKETIME", &environment.faketime)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
