//! The cargo that runs this program.

use std::env;
use std::ffi::OsString;
use std::process::Command;

use crate::paths;

/// Cargo, run in the root of the workspace.
pub fn cargo() -> Command {
    let mut cargo = Command::new(program());
    cargo.current_dir(paths::root());
    cargo
}

pub fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
