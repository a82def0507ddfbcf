//! The launcher: the process between the fork and the program of `run`.
//!
//! The standard library has no safe way to run code between fork and exec. So `run` starts this program again, as the
//! launcher, which prepares its own process and then becomes the program.

use crate::args::Launch;
use crate::failure::Failure;
use crate::output::say;
use crate::terminal;
use nix::sys::signal::{SigSet, Signal::SIGPIPE};
use rustix::process::{Pid, Signal, getpgrp, getpid, getppid, kill_process, set_parent_process_death_signal};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes the program, which is killed when `run` dies. Returns only if that fails.
pub fn launch(launch: &Launch) -> Result<u8, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::system("cannot set the death signal", &error))?;
    // The parent may have died before the signal was set.
    if getppid().map(Pid::as_raw_pid) != Some(launch.parent) {
        return Err(Failure::System("`run` ended before the program started".to_owned()));
    }
    // Until the guard knows the deadline of the hold. `run` continues this process then.
    kill_process(getpid(), Signal::STOP)
        .map_err(|error| Failure::system("cannot wait for the guard", &error))?;
    if launch.foreground {
        terminal::give_to(getpgrp());
    }
    let [program, arguments @ ..] = launch.program.as_slice() else {
        return Err(Failure::Usage("no program is named: write it after --".to_owned()));
    };
    let error = Command::new(program).args(arguments).exec();
    // `exec` has restored the default action for the program, so that a message without a reader would end this process.
    let _ = SigSet::from(SIGPIPE).thread_block();
    let program = program.display();
    Ok(match error.kind() {
        ErrorKind::NotFound => {
            say(format_args!("`{program}` is not found: check the path of the program"));
            launch.not_found
        }
        _ => {
            say(format_args!("`{program}` cannot be executed: {error}: check its permissions and format"));
            launch.not_executable
        }
    })
}
