//! The project's own commands: `cargo xtask <command>`.

mod bench;
mod cluster;
mod demo;
mod needs;
mod others;
mod planted;
mod process;
mod server;
mod servers;
mod setup;
mod test;
mod torture;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask <command>

  bench [--quick] [<scenario>..]
      Measure ours, raw redis-rs, Redisson and other Rust crates beside each other. The report is docs/bench; with
      --quick, which takes about seven minutes, target/bench. A name that is none has the scenarios listed.
  demo [--no-java] [--seconds <n>] [--redisson <version>]
      Set up, then show threads of a real Redisson and tasks of two Rust processes contending for one lock.
  planted [--at-once <n>] [--share <n> | <name>..]
      Plant the bugs of tests/planted in a copy of the project, and run the tests that must catch them, which run without
      the bugs first. With --share, plant an nth of the bugs, another one at each commit; with --at-once, plant so many at
      the same time, each in a copy of its own.
  setup
      Get what the tests need: redis-servers, a JDK, Maven, the Java peer built on each version of Redisson, and the
      locks of other languages.
  test [--no-java] [--redisson <version>] [--server <name>] [-- <arguments of cargo test>]
      Set up, then run every test, and a core of them on each other server. Arguments of cargo test choose a part of the
      tests: then only what those need is set up. With --no-java, leave out the tests that need Java; with --redisson, run
      against that version alone, which may be any that exists; with --server, run every test on that server alone: an
      unknown name has them listed.
  torture --minutes <n> --seed <n> [--faults <a,b,..>] [--kinds <a,b,..>] [--java] [--redisson <version>] [--write-docs]
      Processes contend for locks while the server, the network and the processes fail, each fault by a plan that the
      seed fixes; then what they did is judged. Without --faults all of them, without --kinds locks of all kinds: an
      unknown name has them listed. The report is target/torture/report.md, with a picture. With --write-docs the run, of all
      faults and kinds beside Java and from a commit, puts its figures into docs/reliability.md.
  torture --topology sentinel|cluster [--failovers <n>] [--replication any|none] --seed <n> [--kinds <a,b,..>] [--java]
      [--write-docs]
      The same on a master and a replica under sentinels, or a cluster of three and three, whose masters are killed one
      by one: 30 times, if not told otherwise. With none, acquires count though no replica has them.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(mut again) = without_package_variables() {
        eprintln!("xtask: {}", again.args(&arguments).exec());
        return ExitCode::FAILURE;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["setup"] => setup::for_tests(&setup::default_versions()).map(|_| ExitCode::SUCCESS),
        ["bench", rest @ ..] => bench::run(rest),
        ["demo", rest @ ..] => demo::run(rest),
        ["planted", names @ ..] => planted::run(names),
        ["test", rest @ ..] => test::run(rest),
        ["torture", rest @ ..] => torture::run(rest),
        _ => Err(USAGE.to_owned()),
    };
    outcome.unwrap_or_else(|problem| {
        eprintln!("{problem}");
        ExitCode::FAILURE
    })
}

/// This program without the variables by which `cargo run` describes the package xtask; `None` if none is set. The build script
/// of a dependency (ring) watches some of them: a cargo that inherits them builds that dependency anew, with all that
/// depend on it, and so does the next cargo that a shell starts.
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
