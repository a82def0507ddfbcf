//! The benchmark. It measures this library, raw redis-rs, Redisson and other Rust crates in turn, on one server that it
//! starts. Every result is a ratio to another library of the same run.

mod clients;
mod cluster;
mod many;
mod report;
mod rounds;
mod sample;
mod scenarios;
mod testbed;

use std::fs;
use std::process::ExitCode;

use report::Report;
use testbed::Testbed;

use crate::paths;
use crate::setup::{self, Clock};

/// The version of Redisson that is measured.
const REDISSON: &str = "4.7.0";

/// How much is measured.
pub struct Effort {
    pub rounds: usize,
    /// Rounds of the slow scenarios: many holds, and many waiters.
    pub long_rounds: usize,
    pub seconds: f64,
    /// The numbers of locks held at a time.
    pub held: &'static [usize],
    /// For how many seconds an idle client is observed: a multiple of the time between two renewals.
    pub idle: f64,
    /// For how many seconds a crowd of clients is observed.
    pub crowd: f64,
}

impl Effort {
    /// The effort of a slow scenario.
    pub fn long(&self, seconds: f64) -> Self {
        Self { rounds: self.long_rounds, seconds, ..*self }
    }
}

/// The benchmarks that need no server.
const LOCAL: &str = "local";

const FULL: Effort = Effort {
    rounds: 5,
    long_rounds: 3,
    seconds: 2.0,
    held: &[1_000, 10_000, 100_000, 1_000_000],
    idle: 30.0,
    crowd: 20.0,
};
const QUICK: Effort = Effort {
    rounds: 2,
    long_rounds: 2,
    seconds: 0.7,
    held: &[1_000, 10_000, 100_000],
    idle: 10.0,
    crowd: 5.0,
};

pub fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let (mut effort, mut folder, mut only) = (FULL, paths::root().join("docs/bench"), Vec::new());
    for word in arguments {
        match *word {
            "--quick" => (effort, folder) = (QUICK, paths::target().join("bench")),
            name if name == LOCAL || scenarios::ALL.iter().any(|scenario| scenario.name == name) => {
                only.push(name)
            }
            _ => {
                let names: Vec<_> =
                    scenarios::ALL.iter().map(|scenario| scenario.name).chain([LOCAL]).collect();
                return Err(format!(
                    "bench: unknown argument {word:?}; known are --quick, {}",
                    names.join(", ")
                ));
            }
        }
    }
    // Only a complete run replaces the published report.
    if !only.is_empty() {
        folder = paths::target().join("bench");
    }
    let wanted = |name: &str| only.is_empty() || only.contains(&name);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if scenarios::ALL.iter().any(|scenario| wanted(scenario.name)) {
        let report = side_by_side(&effort, wanted, arguments)?;
        report.write(&folder)?;
        println!("\nreport: {}", folder.join("README.md").display());
    }
    if wanted(LOCAL) {
        println!("\n# Benchmarks without requests");
        let output = testbed::local()?;
        print!("{output}");
        let file = folder.join("local.txt");
        fs::write(&file, output).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("\nreport: {}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn side_by_side(
    effort: &Effort,
    wanted: impl Fn(&str) -> bool,
    arguments: &[&str],
) -> Result<Report, String> {
    let environment = setup::run(&[], Clock::Real)?;
    let java = setup::build_java(&setup::BENCH, REDISSON)?;
    let contenders = testbed::build()?;
    let mut report = Report::new(arguments, &environment.server);
    let mut testbed = Testbed::start(&environment.server, contenders, java)?;
    for scenario in scenarios::ALL {
        if wanted(scenario.name) {
            println!("\n# {}", scenario.title);
            testbed.wait_for_silence()?;
            let table = (scenario.run)(&mut testbed, effort)?;
            report.add(scenario.name, scenario.title, table);
        }
    }
    Ok(report)
}
