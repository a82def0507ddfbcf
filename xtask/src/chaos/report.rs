//! The results of a campaign: a page, a timeline, and the printed summary.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::check::{Judgement, RETRY_NS, Violation, is_certain, progress, watched_keys};
use super::history::{History, Hold};
use super::keys::kind;

/// How many violations of a rule are shown.
const SHOWN: usize = 5;

/// The figures of one kind of fault.
#[derive(Default)]
struct Figures {
    count: usize,
    holds: usize,
    lost: usize,
    /// The longest time until all watched keys were acquired again.
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
    save("report.svg", super::timeline::draw(history))
}

pub fn print(history: &History, judgement: &Judgement, command: &str) {
    let Judgement { violations, unexercised, .. } = judgement;
    println!("{}", summary(history));
    println!("{}", super::failovers::figures(history));
    print!("{}", rules(judgement));
    // At the end, because a log may be cut off before.
    for (rule, violations) in by_rule(violations) {
        for violation in violations.iter().take(SHOWN) {
            println!("FAILED   {rule}, {}:\n  {}", circumstances(history, violation), violation.text);
        }
    }
    println!("report: target/chaos/report.md; logs: target/chaos/run");
    for what in unexercised {
        println!("NOT EXERCISED  {what}");
    }
    match judgement.passed() {
        true => println!("passed: no rule was broken"),
        false => {
            println!(
                "failed: {} violations, {} not exercised; repeat with: {command}",
                violations.len(),
                unexercised.len()
            )
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

/// For each rule, how often it applied and how often it was broken. `cargo xtask mutants` parses these lines.
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
    text += if violations.is_empty() { "No rule was broken.\n\n" } else { "**Rules were broken.**\n\n" };
    text += "| fault | count | holds until a lease after it | reported lost | longest recovery |\n";
    text += "| --- | ---: | ---: | ---: | ---: |\n";
    for (fault, figures) in figures(history) {
        let Figures { count, holds, lost, progress } = figures;
        let progress = progress.map_or("-".to_owned(), |ns| format!("{:.0} ms", ns as f64 / 1e6));
        let _ = writeln!(text, "| {fault} | {count} | {holds} | {lost} | {progress} |");
    }
    let _ = write!(
        text,
        "\nRecovery is the time from the end of the fault until every hot key of every kind and every client's own key was \
         acquired, if the next fault left enough time. The limit is {} ms; dead waiters of a fair lock add their allowance. \
         Java reports no state, so a Java hold is certain only if no fault that could affect it came within a lease of \
         it.\n\n![Timeline of the holds](report.svg)\n",
        (history.lease_ns + RETRY_NS) / 1_000_000
    );
    text += &rules(judgement);
    for what in &judgement.unexercised {
        let _ = writeln!(text, "\n**Not exercised: {what}.**");
    }
    text += &kinds(history);
    text += &format!("\n{}", super::failovers::figures(history));
    for (rule, violations) in by_rule(violations) {
        let _ = write!(text, "\n## {rule}: {}\n\n", violations.len());
        for violation in violations.iter().take(SHOWN) {
            let _ =
                write!(text, "{}\n\n```text\n{}\n```\n\n", circumstances(history, violation), violation.text);
        }
    }
    text
}

/// The figures of each kind of lock.
fn kinds(history: &History) -> String {
    let mut all: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for hold in &history.holds {
        let java = hold.first == "Java";
        let counts = [true, is_certain(history, hold), !java && hold.is_lost(), java];
        let figures = all.entry(kind(hold.key)).or_default();
        figures.iter_mut().zip(counts).for_each(|(figure, counts)| *figure += usize::from(counts));
    }
    let mut text =
        "\n| kind | holds | certain | reported lost | by Java |\n| --- | ---: | ---: | ---: | ---: |\n"
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
        "{} holds: {} by Rust ({} certain, {} lost), {java} by Java ({certain_java} certain); {} faults; {} calls failed or \
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
            format!("{text} The first client's wall clock shifted over a range of {} s.", most - least)
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

/// The latest fault before the violation, and how long ago it was.
fn circumstances(history: &History, violation: &Violation) -> String {
    let last = history.windows.iter().rfind(|window| window.from <= violation.at);
    last.map_or("before any fault".to_owned(), |window| {
        let since = |at: u64| violation.at.saturating_sub(at) as f64 / 1e6;
        let target = window.process.unwrap_or("all");
        format!(
            "{:.0} ms after {} ({target}) began, {:.0} ms after it ended",
            since(window.from),
            window.kind,
            since(window.to)
        )
    })
}
