//! `redisson-lock`: the locks of redisson-lock and Java Redisson from a shell.
//!
//! `args` is the command line. Each command has a file: `run` (with `child`, `signals`, `terminal`, `launcher` and `guard`),
//! `hold`, `inspect`, `list` (with `table`), `unlock`, `semaphore`, `latch`, `watch`, `top`, `doctor`. `connect` (with `security`)
//! and `locks` make the client and the handles, `failure` and `codes` map errors to exit codes, `permissions` names what to grant,
//! `output` writes to the two outputs, `page` writes completions and man pages.

#![forbid(unsafe_code)]
// A program exports nothing: `pub` means that other modules use the item.
#![allow(unreachable_pub)]

mod args;
mod child;
mod codes;
mod connect;
mod doctor;
mod failure;
mod guard;
mod hold;
mod inspect;
mod latch;
mod launcher;
mod list;
mod locks;
mod output;
mod page;
mod permissions;
mod run;
mod security;
mod semaphore;
mod signals;
mod table;
mod terminal;
mod top;
mod unlock;
mod watch;

use args::{Cli, Command, Internal};
use clap::Parser;
use clap::error::ErrorKind;
use codes::Codes;
use failure::Failure;
use std::process::ExitCode;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let is_internal =
        std::env::args_os().nth(1).is_some_and(|word| word.as_encoded_bytes().starts_with(b"__"));
    let code = if is_internal {
        let codes = Codes::default();
        parsed(Internal::try_parse(), &codes).map(|internal| report(run_internal(internal), &codes))
    } else {
        match Codes::from_environment() {
            Err(failure) => Ok(report(Err(failure), &Codes::default())),
            Ok(codes) => parsed(Cli::try_parse(), &codes).map(|cli| {
                let codes = if let Command::Run(run) = &cli.command { codes.with(&run.codes) } else { codes };
                report(run_command(cli, &codes), &codes)
            }),
        }
    };
    // Does not wait for a thread that reads standard input.
    std::process::exit(code.unwrap_or_else(|code| code).into())
}

/// Returns the command line, or the exit code of help and of a wrong command line.
fn parsed<T>(parsed: Result<T, clap::Error>, codes: &Codes) -> Result<T, u8> {
    parsed.map_err(|error| {
        let _ = error.print();
        let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        if asked { 0 } else { codes.usage }
    })
}

/// Writes the failure, if it is one, and returns the exit code.
fn report(outcome: Result<u8, Failure>, codes: &Codes) -> u8 {
    outcome.unwrap_or_else(|failure| {
        if let Failure::Signalled(signal) = failure {
            signals::die_by(signal);
        }
        if !matches!(failure, Failure::Signalled(_) | Failure::Unread) {
            output::say(&failure);
        }
        failure.code(codes)
    })
}

fn run_internal(internal: Internal) -> Result<u8, Failure> {
    match internal {
        Internal::ManPages { folder } => page::man_pages(&folder),
        Internal::Launch(launch) => launcher::launch(&launch),
        Internal::Guard(guard) => guard::guard(&guard),
    }
}

fn run_command(cli: Cli, codes: &Codes) -> Result<u8, Failure> {
    // One thread: a program's death signal depends on the thread that started it.
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot start the runtime", &error))?;
    let connection = cli.connection;
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Run(run) => run::run(run, &connection, codes).await,
            Command::Hold(hold) => hold::hold(hold, &connection).await,
            Command::Inspect(inspect) => inspect::inspect(&inspect, &connection).await,
            Command::List(list) => list::list(&list, &connection).await,
            Command::ForceUnlock(unlock) => unlock::force_unlock(&unlock, &connection).await,
            Command::Semaphore { command } => semaphore::semaphore(command, &connection).await,
            Command::PlainSemaphore { command } => semaphore::plain_semaphore(command, &connection).await,
            Command::Latch { command } => latch::latch(command, &connection).await,
            Command::Top(top) => top::top(&top, &connection).await,
            Command::Watch(watch) => watch::watch(&watch, &connection).await,
            Command::Doctor(doctor) => doctor::doctor(&doctor, &connection).await,
            Command::Completions { shell } => page::completions(shell),
        }
    });
    // Does not wait for a thread that resolves a host name.
    runtime.shutdown_background();
    outcome
}
