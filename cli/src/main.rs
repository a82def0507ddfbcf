//! `redisson-lock`: the locks of redisson-lock and Java Redisson from a shell.
//!
//! `args` is the command line. Each command has a file: `run` (with `child`, `signals`, `terminal`, `launcher` and `guard`),
//! `hold`, `inspect`, `list` (with `table`), `unlock`, `semaphore`, `latch`, `watch`, `doctor`. `connect` and `locks` make the client and the handles, `failure` maps
//! errors to exit codes, `page` writes completions and man pages.

#![forbid(unsafe_code)]
// A program exports nothing: `pub` means that other modules use the item.
#![allow(unreachable_pub)]

mod args;
mod child;
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
mod page;
mod run;
mod semaphore;
mod signals;
mod table;
mod terminal;
mod unlock;
mod watch;

use args::{Cli, Command, Internal};
use clap::Parser;
use clap::error::ErrorKind;
use failure::{Codes, Failure};
use std::process::ExitCode;
use tokio::runtime::Builder;

fn main() -> ExitCode {
    let is_internal =
        std::env::args_os().nth(1).is_some_and(|word| word.as_encoded_bytes().starts_with(b"__"));
    let parsed = if is_internal {
        Internal::try_parse().map(|internal| (run_internal(internal), Codes::default()))
    } else {
        Cli::try_parse().map(|cli| {
            let codes = if let Command::Run(run) = &cli.command { run.codes } else { Codes::default() };
            (run_command(cli), codes)
        })
    };
    let code = match parsed {
        Ok((Ok(code), _)) => code,
        Ok((Err(failure), codes)) => {
            eprintln!("redisson-lock: {failure}");
            failure.code(&codes)
        }
        Err(error) => {
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if asked { 0 } else { failure::USAGE }
        }
    };
    // Does not wait for a thread that reads standard input.
    std::process::exit(code.into())
}

fn run_internal(internal: Internal) -> Result<u8, Failure> {
    match internal {
        Internal::ManPages { folder } => page::man_pages(&folder),
        Internal::Launch(launch) => launcher::launch(&launch),
        Internal::Guard(guard) => guard::guard(&guard),
    }
}

fn run_command(cli: Cli) -> Result<u8, Failure> {
    // One thread: a program's death signal depends on the thread that started it.
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot start the runtime", &error))?;
    let connection = cli.connection;
    runtime.block_on(async {
        match cli.command {
            Command::Run(run) => run::run(run, &connection).await,
            Command::Hold(hold) => hold::hold(hold, &connection).await,
            Command::Inspect(inspect) => inspect::inspect(&inspect, &connection).await,
            Command::List(list) => list::list(&list, &connection).await,
            Command::ForceUnlock(unlock) => unlock::force_unlock(&unlock, &connection).await,
            Command::Semaphore { command } => semaphore::semaphore(command, &connection).await,
            Command::Latch { command } => latch::latch(command, &connection).await,
            Command::Watch(watch) => watch::watch(&watch, &connection).await,
            Command::Doctor(doctor) => doctor::doctor(&doctor, &connection).await,
            Command::Completions { shell } => page::completions(shell),
        }
    })
}
