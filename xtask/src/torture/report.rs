//! What a campaign leaves behind: a page, a picture, and what is printed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::check::{Judgement, RETRY_NS, Violation, is_certain, progress, watched_keys};
use super::history::{History, Hold};
use super::keys::kind;

/// At most that many of a rule are told.
const TOLD: usize = 5;

/// Figures of a kind of fault.
#[derive(Default)]
struct Figures {
    count: usize,
    holds: usize,
    lost: usize,
    /// To the last of the watched keys.
    progress: Option<u64>,
}

pub fn write(
    folder: &Path,
    command: &str,
    digest: &str,
    history: &History,
    judgement: &Judgement,
) -> Result<(), String> {
    let save = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    save("report.md", page(command, digest, history, judgement))?;
    save("report.svg", super::picture::draw(history))
}

pub fn print(history: &History, judgement: &Judgement, command: &str) {
    let Judgement { violations, unjudged, .. } = judgement;
    for (rule, violations) in by_rule(violations) {
        for violation in violations.iter().take(TOLD) {
            println!("FAILED   {rule}, {}:\n  {}", circumstances(history, violation), violation.text);
        }
    }
    println!("\n{}", summary(history));
    println!("{}", super::failovers::figures(history));
    print!("{}", rules(judgement));
    println!("report: target/torture/report.md; logs: target/torture/run");
    for what in unjudged {
        println!("UNJUDGED {what}");
    }
    match judgement.is_well() {
        true => println!("all is well"),
        false => {
            println!("{} violations, {} unjudged. Once more: {command}", violations.len(), unjudged.len())
        }
    }
}

fn by_rule(violations: &[Violation]) -> BTreeMap<&str, Vec<&Violation>> {
    let mut rules: BTreeMap<&str, Vec<&Violation>> = BTreeMap::new();
    for violation in violations {
        rules.entry(violation.rule).or_default().push(violation);
    }
    rules
}

/// How often each rule applied and was broken. `cargo xtask planted` reads these lines.
fn rules(judgement: &Judgement) -> String {
    let mut text = "\n| rule | applied | broken |\n| --- | ---: | ---: |\n".to_owned();
    for (rule, count, broken) in &judgement.counts {
        let _ = writeln!(text, "| {rule} | {count} | {broken} |");
    }
    text
}

fn page(command: &str, digest: &str, history: &History, judgement: &Judgement) -> String {
    let violations = &judgement.violations;
    let mut text = format!("# {command}\n\nPlan `{digest}`. {}\n\n", summary(history));
    text += if violations.is_empty() { "No rule was broken.\n\n" } else { "**RULES WERE BROKEN.**\n\n" };
    text += "| fault | count | holds from it to a lease after | told lost | longest time to progress |\n";
    text += "| --- | ---: | ---: | ---: | ---: |\n";
    for (fault, figures) in figures(history) {
        let Figures { count, holds, lost, progress } = figures;
        let progress = progress.map_or("-".to_owned(), |ns| format!("{:.0} ms", ns as f64 / 1e6));
        let _ = writeln!(text, "| {fault} | {count} | {holds} | {lost} | {progress} |");
    }
    let _ = write!(
        text,
        "\nProgress is counted from the end of the fault until each hot key of each kind and each client's own key was \
         taken, where the next fault left the time for it; {} ms are allowed, and for a fair lock's dead waiters their \
         allowance. A Java hold is taken for certain only where no fault that \
         could concern it came within a lease of it: Java does not tell.\n\n![Who held when](report.svg)\n",
        (history.lease_ns + RETRY_NS) / 1_000_000
    );
    text += &rules(judgement);
    for what in &judgement.unjudged {
        let _ = writeln!(text, "\n**Never judged: {what}.**");
    }
    text += &kinds(history);
    text += &format!("\n{}", super::failovers::figures(history));
    for (rule, violations) in by_rule(violations) {
        let _ = write!(text, "\n## {rule}: {}\n\n", violations.len());
        for violation in violations.iter().take(TOLD) {
            let _ =
                write!(text, "{}\n\n```text\n{}\n```\n\n", circumstances(history, violation), violation.text);
        }
    }
    text
}

/// What was done with each kind.
fn kinds(history: &History) -> String {
    let mut all: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for hold in &history.holds {
        let java = hold.first == "Java";
        let counts = [true, is_certain(history, hold), !java && hold.is_lost(), java];
        let figures = all.entry(kind(hold.key)).or_default();
        figures.iter_mut().zip(counts).for_each(|(figure, counts)| *figure += usize::from(counts));
    }
    let mut text =
        "\n| kind | holds | certain | told lost | of Java |\n| --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for (kind, [holds, certain, lost, java]) in all {
        let _ = writeln!(text, "| {kind} | {holds} | {certain} | {lost} | {java} |");
    }
    text
}

fn summary(history: &History) -> String {
    let count = |which: &dyn Fn(&Hold) -> bool| history.holds.iter().filter(|hold| which(hold)).count();
    let java = count(&|hold| hold.first == "Java");
    let certain_java = count(&|hold| hold.first == "Java" && is_certain(history, hold));
    let text = format!(
        "{} holds: {} of Rust ({} certain, {} lost), {java} of Java ({certain_java} certain); {} faults; {} calls failed or \
         took longer than 20 ms.",
        history.holds.len(),
        history.holds.len() - java,
        count(&|hold| hold.first != "Java" && is_certain(history, hold)),
        count(&|hold| hold.first != "Java" && hold.is_lost()),
        history.windows.len(),
        history.calls.len(),
    );
    let walls = history.beats.iter().filter(|beat| beat.process == "rust0").map(|beat| beat.wall_s);
    match (walls.clone().min(), walls.max()) {
        (Some(least), Some(most)) if history.windows.iter().any(|window| window.kind == "clock") => {
            format!("{text} The first client's wall clock went over {} s.", most - least)
        }
        _ => text,
    }
}

fn figures(history: &History) -> BTreeMap<&str, Figures> {
    let mut all: BTreeMap<&str, Figures> = BTreeMap::new();
    for (number, window) in history.windows.iter().enumerate() {
        let figures = all.entry(window.kind).or_default();
        figures.count += 1;
        let first = history.holds.partition_point(|hold| hold.start < window.from);
        let last = history.holds.partition_point(|hold| hold.start < window.to + history.lease_ns);
        figures.holds += last - first;
        // A lost hold may have begun long before.
        let near =
            history.holds.partition_point(|hold| hold.start < window.from.saturating_sub(10_000_000_000));
        figures.lost += history.holds[near..last]
            .iter()
            .filter(|hold| hold.first != "Java" && hold.is_lost() && hold.lease_ms == 0)
            .filter(|hold| hold.done >= window.from && hold.done < window.to + history.lease_ns)
            .count();
        let times = watched_keys(history).into_iter().map(|watched| progress(history, window, &watched));
        let longest = times.collect::<Option<Vec<_>>>().and_then(|times| times.into_iter().max());
        let next = history.windows.get(number + 1).map_or(history.stopped, |next| next.from);
        let undisturbed = longest.filter(|took| window.to + took < next);
        figures.progress = figures.progress.max(undisturbed);
    }
    all
}

/// The fault before it, and how long before.
fn circumstances(history: &History, violation: &Violation) -> String {
    let last = history.windows.iter().rfind(|window| window.from <= violation.at);
    last.map_or("before any fault".to_owned(), |window| {
        let since = |at: u64| violation.at.saturating_sub(at) as f64 / 1e6;
        let whom = window.process.unwrap_or("all");
        format!(
            "{:.0} ms after {} ({whom}) began and {:.0} ms after it was over",
            since(window.from),
            window.kind,
            since(window.to)
        )
    })
}
