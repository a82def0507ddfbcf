//! The project's own commands: `cargo xtask <command>`.

#![forbid(unsafe_code)]
// A program exports nothing: `pub` means that other modules use the item.
#![allow(unreachable_pub)]

mod bench;
mod cargo;
mod chaos;
mod cluster;
mod command_line;
mod demo;
mod downloads;
mod features;
mod fetch;
mod mutants;
mod needs;
mod package;
mod page;
mod paths;
mod process;
mod programs;
mod public_api;
mod redisson_api;
mod server;
mod server_versions;
mod setup;
mod test;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask <command>

  bench [--quick] [<scenario>..]
      Compare this library with raw redis-rs, Redisson and other Rust crates. The report goes to docs/bench. With --quick
      (about seven minutes), or for single scenarios, it goes to target/bench. An unknown name lists the scenarios.
  check-command-line [--static]
      Install redisson-lock from the files of the last commit, and measure its size and how quickly it starts. With --static,
      also build it without a dynamic C library, which needs the target x86_64-unknown-linux-musl.
  check-features
      Check the library with every combination of its features.
  check-minimal-versions
      Check the package with the oldest versions of its dependencies that the manifest permits.
  check-package
      Check the files of the package, unpack it, and build it with its examples.
  demo [--no-java] [--seconds <n>] [--redisson <version>]
      Show threads of a real Redisson and tasks of two Rust processes that contend for one lock.
  mutants [--at-once <n>] [--share <n> | <name>..]
      Apply each patch of tests/mutants to a copy of the project, and run the checks that must catch it. Each check first
      runs without a mutant. --share n runs one nth of the mutants, a different one at each commit. --at-once n runs n
      mutants in parallel, each in its own copy.
  public-api [--check]
      Write the public API of the library to docs/public-api.txt, or check that the file is up to date. Needs Rust 1.95.
  redisson-api
      Write the tables of Redisson's methods in docs/migrating-from-redisson.md.
  setup
      Install what the tests need: redis-servers, a JDK, Maven, the Java peer for each version of Redisson, and the locks
      of other languages.
  test [--no-java] [--redisson <version>] [--server <name>] [--features <a,b,..>] [-- <arguments of cargo test>]
      Install what the tests need, run all tests, and run a core set on each other server. Arguments of cargo test select
      tests; then only what these need is installed.
      --no-java skips the tests that need Java. --redisson uses only this version, which may be any published one.
      --server runs all tests on this server only; an unknown name lists the servers. --features builds with these
      features in place of all, and needs arguments of cargo test.
  chaos --minutes <n> --seed <n> [--faults <a,b,..>] [--kinds <a,b,..>] [--java] [--redisson <version>] [--write-docs]
      Run a fault campaign: processes contend for locks while the server, the network and the processes fail, and rules
      judge their logs. The seed determines the plan of faults. The report is target/chaos/report.md, with a timeline.
      --faults and --kinds select faults and kinds of locks; an unknown name lists them. --java adds the newest Redisson,
      --redisson another version. --write-docs updates the figures of docs/reliability.md; it needs all faults, all kinds,
      Java, and a tree without uncommitted changes.
  chaos --topology sentinel|cluster [--failovers <n>] [--replication any|none] --seed <n> [--kinds <a,b,..>] [--java]
      [--write-docs]
      Run the campaign on a master and a replica under sentinels, or on a cluster of three masters with a replica each,
      and kill masters one by one, 30 times by default. With --replication none, acquires do not wait for a replica.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(mut again) = without_package_variables() {
        eprintln!("xtask: {}", again.args(&arguments).exec());
        return ExitCode::FAILURE;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["check-command-line"] => command_line::check(false).map(|()| ExitCode::SUCCESS),
        ["check-command-line", "--static"] => command_line::check(true).map(|()| ExitCode::SUCCESS),
        ["check-features"] => features::check_all().map(|()| ExitCode::SUCCESS),
        ["check-minimal-versions"] => features::check_minimal_versions().map(|()| ExitCode::SUCCESS),
        ["check-package"] => package::check().map(|()| ExitCode::SUCCESS),
        ["public-api"] => public_api::run(false).map(|()| ExitCode::SUCCESS),
        ["public-api", "--check"] => public_api::run(true).map(|()| ExitCode::SUCCESS),
        ["setup"] => setup::for_tests(&setup::default_versions()).map(|_| ExitCode::SUCCESS),
        ["bench", rest @ ..] => bench::run(rest),
        ["demo", rest @ ..] => demo::run(rest),
        ["mutants", names @ ..] => mutants::run(names),
        ["test", rest @ ..] => test::run(rest),
        ["chaos", rest @ ..] => chaos::run(rest),
        ["redisson-api"] => redisson_api::write().map(|()| ExitCode::SUCCESS),
        _ => Err(USAGE.to_owned()),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("{problem}");
        ExitCode::FAILURE
    })
}

/// Returns a command that runs this program again without the variables that `cargo run` sets for the package xtask; `None`
/// if none is set. The build script of a dependency (ring) watches some of them. A cargo that inherits them would rebuild
/// that dependency and everything that depends on it, and so would the next cargo in the user's shell.
fn without_package_variables() -> Option<Command> {
    let of_package =
        |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
    let names: Vec<_> =
        env::vars_os().map(|(name, _)| name).filter(|name| name.to_str().is_some_and(of_package)).collect();
    let mut again = Command::new(env::current_exe().ok()?);
    names.iter().for_each(|name| {
        again.env_remove(name);
    });
    (!names.is_empty()).then_some(again)
}
