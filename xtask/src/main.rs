//! The project's own commands: `cargo xtask <command>`.

mod bench;
mod cluster;
mod demo;
mod others;
mod planted;
mod process;
mod server;
mod servers;
mod setup;
mod test;
mod torture;

use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  bench [--quick] [<scenario>..]
      Measure ours, raw redis-rs, Redisson and other Rust crates beside each other. The report is docs/bench; with
      --quick, which takes four minutes, target/bench. A name that is none has the scenarios listed.
  demo [--no-java] [--seconds <n>] [--redisson <version>]
      Set up, then show threads of a real Redisson and tasks of two Rust processes contending for one lock.
  planted [--at-once <n>] [--share <n> | <name>..]
      Plant the bugs of tests/planted in a copy of the project, and run the tests that must catch them, which run without
      the bugs first. With --share, plant an nth of the bugs, another one at each commit; with --at-once, plant so many at
      the same time, each in a copy of its own.
  setup
      Get what the tests need: redis-servers, a JDK, Maven, the Java peer built on each version of Redisson, and the
      locks of other languages.
  test [--redisson <version>] [--server <name>] [-- <arguments of cargo test>]
      Set up, then run every test, and a core of them on each other server. With --redisson, against that version alone,
      which may be any that exists; with --server, every test on that server alone: an unknown name has them listed.
  torture --minutes <n> --seed <n> [--faults <a,b,..>] [--kinds <a,b,..>] [--java] [--redisson <version>]
      Processes contend for locks while the server, the network and the processes fail, each fault by a plan that the
      seed fixes; then what they did is judged. Without --faults all of them, without --kinds locks of all kinds: an
      unknown name has them listed. The report is target/torture/report.md, with a picture.
  torture --topology sentinel|cluster [--failovers <n>] [--replication any|none] --seed <n> [--kinds <a,b,..>] [--java]
      The same on a master and a replica under sentinels, or a cluster of three and three, whose masters are killed one
      by one: 30 times, if not told otherwise. With none, acquires count though no replica has them.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
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
