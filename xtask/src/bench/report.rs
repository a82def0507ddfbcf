//! Tables, targets and plots.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::sample::Figures;
use super::testbed::{TUNED, TUNED_POOL, tuned_threads};
use crate::paths;

/// The result of one scenario.
pub struct Table {
    /// The unit of the bars.
    unit: &'static str,
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    bars: Vec<(String, String, f64)>,
    targets: Vec<Target>,
}

/// A figure that this library should reach.
pub struct Target {
    what: String,
    aim: f64,
    at_least: bool,
    /// One value for each round.
    measured: Figures,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Met,
    Missed,
    /// Only some rounds meet the target.
    Undecided,
}

impl Target {
    pub fn least(what: String, aim: f64, measured: Figures) -> Self {
        Self { what, aim, at_least: true, measured }
    }

    pub fn most(what: String, aim: f64, measured: Figures) -> Self {
        Self { what, aim, at_least: false, measured }
    }

    fn verdict(&self) -> Verdict {
        let meets = |value: &f64| if self.at_least { *value >= self.aim } else { *value <= self.aim };
        let met = self.measured.0.iter().filter(|value| meets(value)).count();
        match met {
            // Includes the case that nothing was measured.
            0 => Verdict::Missed,
            all if all == self.measured.0.len() => Verdict::Met,
            _ => Verdict::Undecided,
        }
    }
}

impl Table {
    pub fn new(unit: &'static str, head: &[&'static str]) -> Self {
        Self { unit, head: head.to_vec(), rows: Vec::new(), bars: Vec::new(), targets: Vec::new() }
    }

    /// Also prints the row.
    pub fn row(&mut self, cells: &[String]) {
        let pairs = self.head.iter().zip(cells).filter(|(_, cell)| !cell.is_empty() && *cell != "NaN");
        println!("{}", pairs.map(|(head, cell)| format!("{head} {cell}")).collect::<Vec<_>>().join("; "));
        self.rows.push(cells.to_vec());
    }

    pub fn bar(&mut self, group: &str, name: &str, value: f64) {
        self.bars.push((group.to_owned(), name.to_owned(), value));
    }

    pub fn target(&mut self, target: Target) {
        self.targets.push(target);
    }
}

pub struct Report {
    page: String,
    plots: BTreeMap<&'static str, String>,
    verdicts: Vec<Verdict>,
}

impl Report {
    pub fn new(arguments: &[&str], server: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let command = ["cargo xtask bench", &arguments.join(" ")].join(" ");
        let page = format!(
            "# {}\n\nWritten by this command on {}, from commit {}, on {cores} cores ({}), with {} on the same machine and \
             {}.\n\nA hold is one lock and unlock. Figures are medians of the rounds. Each round measures the libraries one \
             after another, beginning with a different one. Only ratios carry over to other machines. A target is met if \
             every round meets it, and undecided if only some do.\n\nEach library has the settings of its README. For example, \
             rslock retries a busy lock after a random time of up to 200 ms. \"Redisson\" has its defaults; \"{TUNED}\" has \
             {TUNED_POOL} connections, open from the start, and {} Netty threads.\n",
            command.trim_end(),
            first_line(&["date", "-u", "+%F"]),
            commit(),
            processor(),
            first_line(&[&server.display().to_string(), "--version"]),
            first_line(&["java", "--version"]),
            tuned_threads(),
        );
        Self { page, plots: BTreeMap::new(), verdicts: Vec::new() }
    }

    pub fn add(&mut self, name: &'static str, title: &str, table: Table) {
        let page = &mut self.page;
        let _ = write!(page, "\n## {title}\n\n![{}]({name}.svg)\n\n", table.unit);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head: Vec<String> = table.head.iter().map(ToString::to_string).collect();
        *page += &line(&head);
        *page += &line(&vec!["---".to_owned(); head.len()]);
        for row in &table.rows {
            let row: Vec<String> =
                row.iter().map(|cell| if cell == "NaN" { String::new() } else { cell.clone() }).collect();
            *page += &line(&row);
        }
        *page += "\n| target | aim | median | range | |\n| --- | --- | --- | --- | --- |\n";
        for target in &table.targets {
            let sign = if target.at_least { "≥" } else { "≤" };
            let verdict = match target.verdict() {
                Verdict::Met => "met",
                Verdict::Missed => "**not met**",
                Verdict::Undecided => "undecided",
            };
            let Target { what, aim, measured, .. } = target;
            let (middle, least, most) = (measured.median(), measured.least(), measured.most());
            let _ = writeln!(
                page,
                "| {what} | {sign} {aim} | {middle:.2} | {least:.2} to {most:.2} | {verdict} |"
            );
            println!("target: {what}: {sign} {aim}: {middle:.2} ({least:.2} to {most:.2}): {verdict}");
        }
        self.verdicts.extend(table.targets.iter().map(Target::verdict));
        self.plots.insert(name, plot(title, &table));
    }

    pub fn write(mut self, folder: &Path) -> Result<(), String> {
        let count = |wanted| self.verdicts.iter().filter(|verdict| **verdict == wanted).count();
        let sum = format!(
            "{} targets: {} met, {} undecided, {} not met.",
            self.verdicts.len(),
            count(Verdict::Met),
            count(Verdict::Undecided),
            count(Verdict::Missed),
        );
        let _ = write!(self.page, "\n{sum}\n");
        println!("\n{sum}");
        let files = self.plots.iter().map(|(name, plot)| (format!("{name}.svg"), plot));
        for (name, text) in files.chain([("README.md".to_owned(), &self.page)]) {
            fs::write(folder.join(&name), text).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

/// The first line of a program's output.
fn first_line(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).current_dir(paths::root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn commit() -> String {
    let changed = first_line(&["git", "status", "--porcelain", "--untracked-files=no"]) != "unknown";
    first_line(&["git", "rev-parse", "--short", "HEAD"]) + if changed { " with changes" } else { "" }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| "unknown processor".to_owned(), |(_, model)| model.to_owned())
}

const COLOURS: [&str; 8] =
    ["#188038", "#7cb342", "#1a73e8", "#c5221f", "#f9ab00", "#9334e6", "#5f6368", "#00acc1"];
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 20.0;
const TOP: f64 = 60.0;
const WIDE: f64 = 30.0;

/// Grouped bars on a logarithmic scale, each with its value on top.
fn plot(title: &str, table: &Table) -> String {
    let bars: Vec<_> = table.bars.iter().filter(|(_, _, value)| *value > 0.0).collect();
    let mut names: Vec<&str> = Vec::new();
    let mut groups: Vec<&str> = Vec::new();
    for (group, name, _) in &bars {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
        if !groups.contains(&group.as_str()) {
            groups.push(group);
        }
    }
    let logs = bars.iter().map(|(_, _, value)| value.log10());
    let (low, high) =
        (logs.clone().fold(f64::INFINITY, f64::min) - 0.3, logs.fold(f64::NEG_INFINITY, f64::max));
    let group_width = WIDE * (names.len() as f64 + 1.0);
    let width = (LEFT * 2.0 + group_width * groups.len() as f64).max(110.0 * names.len() as f64 + LEFT);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\" \
         font-size=\"14\">{title}: {} (logarithmic)</text>\n",
        TOP + HEIGHT + 30.0,
        table.unit,
    );
    for (at, name) in names.iter().enumerate() {
        let x = LEFT + 110.0 * at as f64;
        let colour = COLOURS[at % COLOURS.len()];
        let _ = writeln!(
            text,
            "<rect x=\"{x}\" y=\"28\" width=\"10\" height=\"10\" fill=\"{colour}\"/><text x=\"{}\" y=\"37\">{name}</text>",
            x + 14.0
        );
    }
    for (number, group) in groups.iter().enumerate() {
        let left = LEFT + group_width * number as f64;
        let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\">{group}</text>", TOP + HEIGHT + 18.0);
        for (_, name, value) in bars.iter().filter(|(of, _, _)| of == group) {
            let at = names.iter().position(|one| one == name).unwrap_or_default();
            let tall = HEIGHT * (value.log10() - low) / (high - low).max(0.1) * 0.95;
            let (x, y) = (left + WIDE * at as f64, TOP + HEIGHT - tall);
            let shown = if *value >= 1e4 { format!("{:.0}k", value / 1e3) } else { format!("{value:.0}") };
            let colour = COLOURS[at % COLOURS.len()];
            let _ = writeln!(
                text,
                "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{}\" height=\"{tall:.0}\" fill=\"{colour}\"/>\
                 <text x=\"{x:.0}\" y=\"{:.0}\" font-size=\"9\">{shown}</text>",
                WIDE - 4.0,
                y - 3.0
            );
        }
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_within_the_spread_of_its_rounds_is_undecided() {
        let verdict = |at_least: bool, rounds: &[f64]| {
            let new = if at_least { Target::least } else { Target::most };
            new(String::new(), 1.0, Figures(rounds.to_vec())).verdict()
        };
        assert_eq!(verdict(true, &[1.0, 1.2]), Verdict::Met);
        assert_eq!(verdict(true, &[0.9, 1.2, 1.3]), Verdict::Undecided);
        assert_eq!(verdict(true, &[0.9, 0.8]), Verdict::Missed);
        assert_eq!(verdict(false, &[1.0, 0.8]), Verdict::Met);
        assert_eq!(verdict(false, &[0.9, 1.1]), Verdict::Undecided);
        assert_eq!(verdict(false, &[1.1]), Verdict::Missed);
        assert_eq!(verdict(true, &[]), Verdict::Missed);
    }
}
