//! Writes the figures of `docs/reliability.md`. Each block between two marks comes from one run; the rest of the page has no
//! figures. A run that failed, or that ran on a tree with uncommitted changes, writes nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::check::{Judgement, is_certain};
use super::failovers;
use super::history::History;
use super::keys::kind;
use crate::page::Page;

pub const PAGE: Page = Page { path: "docs/reliability.md", command: "cargo xtask chaos --write-docs" };
/// The blocks: the campaign on one server, and the failovers of each topology.
#[cfg(test)]
const BLOCKS: [&str; 3] = ["faults", "sentinel", "cluster"];
/// Units that mark a number in prose as a figure.
#[cfg(test)]
const UNITS: [&str; 9] =
    ["holds", "failovers", "faults", "seeds", "calls", "violations", "%", "times", "per cent"];

/// Describes one run.
pub struct Run<'a> {
    /// The block of the page: `faults`, or the name of a topology.
    pub block: &'static str,
    pub command: &'a str,
    pub lasted_s: u64,
    pub server: String,
    pub redisson: &'a str,
    pub seed: u64,
}

/// Returns the current commit; fails if the tree has changes.
pub fn commit(root: &Path) -> Result<String, String> {
    of_clean_tree(&git(root, &["rev-parse", "HEAD"])?, &git(root, &["status", "--porcelain"])?)
}

fn of_clean_tree(head: &str, changes: &str) -> Result<String, String> {
    match changes.lines().next() {
        None => Ok(head.trim().to_owned()),
        Some(first) => Err(format!(
            "chaos: --write-docs needs a clean tree, but this one has changes (`{}`): commit them first",
            first.trim()
        )),
    }
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Writes the block of a run into the page. `before` is the commit at the start of the run.
pub fn write(
    root: &Path,
    before: &str,
    run: &Run<'_>,
    history: &History,
    judgement: &Judgement,
) -> Result<(), String> {
    if !judgement.passed() {
        return Err(format!("chaos: {} is unchanged, because this run failed", PAGE.path));
    }
    if commit(root)? != before {
        return Err(format!(
            "chaos: {} is unchanged, because the tree's commit changed during the run",
            PAGE.path
        ));
    }
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    let date = String::from_utf8_lossy(&date.map_err(|error| format!("date: {error}"))?.stdout).into_owned();
    let path = root.join(PAGE.path);
    let at = |error| format!("{}: {error}", path.display());
    let page = fs::read_to_string(&path).map_err(at)?;
    let page = PAGE.replace(&page, run.block, &block(before, date.trim(), run, history, judgement))?;
    check_block(&page, run.block)?;
    fs::write(&path, page).map_err(at)
}

/// The product and version that a server reports.
pub fn server(program: &Path) -> Result<String, String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let product = text.split(' ').next().unwrap_or_default();
    let version = text.split(' ').find_map(|word| word.strip_prefix("v="));
    Ok(format!(
        "{product} {}",
        version.ok_or_else(|| format!("cannot parse the server's version: {text:?}"))?
    ))
}

fn block(commit: &str, date: &str, run: &Run<'_>, history: &History, judgement: &Judgement) -> String {
    let mut text = format!(
        "\nOne run of {} min {} s on {date}, at commit `{commit}`, with seed {}, {} and Redisson {}. It broke no rule:\n\n\
         ```sh\n{}\n```\n",
        run.lasted_s / 60,
        run.lasted_s % 60,
        run.seed,
        run.server,
        run.redisson,
        run.command,
    );
    text += &failovers::figures(history)
        .split_once("\n\n")
        .map_or(String::new(), |(summary, times)| format!("\n{summary}\n\n{times}"));
    let mut kinds: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    for hold in &history.holds {
        let java = hold.first == "Java";
        let counts = [true, is_certain(history, hold), !java && hold.is_lost(), java];
        let figures = kinds.entry(kind(hold.key)).or_default();
        figures.iter_mut().zip(counts).for_each(|(figure, counts)| *figure += usize::from(counts));
    }
    let all = kinds.values().fold([0; 4], |mut all, figures| {
        all.iter_mut().zip(figures).for_each(|(all, figure)| *all += figure);
        all
    });
    text +=
        "\n| kind | holds | share | certain | lost | by Java |\n| --- | ---: | ---: | ---: | ---: | ---: |\n";
    for (kind, [holds, certain, lost, java]) in kinds.into_iter().chain([("all", all)]) {
        let share = holds as f64 * 100.0 / all[0].max(1) as f64;
        let _ = writeln!(text, "| {kind} | {holds} | {share:.1} % | {certain} | {lost} | {java} |");
    }
    let mut faults: BTreeMap<&str, usize> = BTreeMap::new();
    history.windows.iter().for_each(|window| *faults.entry(window.kind).or_default() += 1);
    text += "\n| fault | times |\n| --- | ---: |\n";
    for (fault, times) in faults {
        let _ = writeln!(text, "| {fault} | {times} |");
    }
    text += "\n| rule | applied |\n| --- | ---: |\n";
    for (rule, applied, _) in judgement.counts.iter().filter(|(_, applied, _)| *applied > 0) {
        let _ = writeln!(text, "| {rule} | {applied} |");
    }
    text + "\n"
}

/// Checks that a block is complete and names its run. Returns its commit.
fn check_block(page: &str, block: &str) -> Result<String, String> {
    let (_, text, _) = PAGE.parts(page, block)?;
    let wrong = |what: &str| format!("{}: {block}: {what}", PAGE.path);
    let commit = text.split_once("at commit `").and_then(|(_, rest)| rest.split('`').next());
    let commit = commit.filter(|commit| commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()));
    for word in ["with seed ", "Redisson ", "cargo xtask chaos ", "| kind | ", "| fault | ", "| rule | "] {
        if !text.contains(word) {
            return Err(wrong(&format!("no `{}`", word.trim())));
        }
    }
    if block != "faults" && !text.contains("| median |") {
        return Err(wrong("no median column"));
    }
    rows(text).map_err(|row| wrong(&format!("a table row of different width: {row:?}")))?;
    Ok(commit.ok_or_else(|| wrong("no commit"))?.to_owned())
}

/// Checks that every block is complete and that no figure is outside of the blocks. Returns the commits.
#[cfg(test)]
fn check(page: &str) -> Result<Vec<String>, String> {
    let commits = BLOCKS.iter().map(|block| check_block(page, block)).collect::<Result<_, _>>()?;
    let mut outside = page.to_owned();
    for block in BLOCKS {
        let (before, _, after) = PAGE.parts(&outside, block)?;
        outside = format!("{before}{after}");
    }
    match figure(&outside) {
        Some(figure) => Err(format!("{}: a figure outside of the generated blocks: {figure:?}", PAGE.path)),
        None => Ok(commits),
    }
}

/// Checks that all rows of each table have the same number of cells. Returns a row that differs.
fn rows(text: &str) -> Result<(), String> {
    let mut width = None;
    for line in text.lines() {
        let cells = line.starts_with('|').then(|| line.matches('|').count());
        if let (Some(above), Some(cells)) = (width, cells)
            && above != cells
        {
            return Err(line.to_owned());
        }
        width = cells;
    }
    Ok(())
}

/// Finds a number with its unit.
#[cfg(test)]
fn figure(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || ",.".contains(c))
    };
    let of = |pair: &&[&str]| {
        let unit = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric() && c != '%');
        is_number(pair[0]) && UNITS.contains(&unit)
    };
    let percent = |word: &&&str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_digit() && c != '%');
        word.strip_suffix('%').is_some_and(is_number)
    };
    let pair = words.windows(2).find(of).map(|pair| pair.join(" "));
    pair.or_else(|| words.iter().find(percent).map(|word| (*word).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::check::Violation;
    use super::super::history::{Hold, Window};
    use super::*;
    use crate::paths::root;

    fn run(block: &'static str) -> Run<'static> {
        Run {
            block,
            command: "cargo xtask chaos --minutes 1",
            lasted_s: 61,
            server: "Redis 7.0.15".to_owned(),
            redisson: "4.7.0",
            seed: 7,
        }
    }

    fn made() -> String {
        let hold = |key| Hold { key, process: "rust0", first: "Held", last: "Held", ..Hold::default() };
        let history = History {
            holds: vec![hold("hot:0"), hold("own:1"), hold("fair:hot")],
            windows: vec![Window { kind: "cut", ..Window::default() }],
            ..History::default()
        };
        let counts = vec![("certain holds do not overlap", 3, 0), ("fencing tokens increase", 0, 0)];
        let judgement = Judgement { counts, ..Judgement::default() };
        block(&"a".repeat(40), "2026-01-02", &run("faults"), &history, &judgement)
    }

    fn page() -> String {
        let empty = |block| format!("{}stale\n{}", PAGE.begin(block), PAGE.end(block));
        let page =
            format!("first\n{}{}middle\n{}last\n", empty("faults"), empty("sentinel"), empty("cluster"));
        let times = "\n| | median |\n| --- | ---: |\n| failover | 9 ms |\n";
        let page = PAGE.replace(&page, "faults", &made()).unwrap();
        let page = PAGE.replace(&page, "sentinel", &(made() + times)).unwrap();
        PAGE.replace(&page, "cluster", &(made() + times)).unwrap()
    }

    #[test]
    fn the_page_names_commits_that_exist() {
        let text = fs::read_to_string(root().join(PAGE.path)).unwrap();
        let commits = check(&text).unwrap();
        // A package has no repository, and a shallow clone has no history.
        let shallow = git(&root(), &["rev-parse", "--is-shallow-repository"]);
        for commit in
            commits.iter().filter(|_| shallow.as_ref().is_ok_and(|shallow| shallow.trim() == "false"))
        {
            git(&root(), &["cat-file", "-e", &format!("{commit}^{{commit}}")]).unwrap();
        }
    }

    #[test]
    fn a_run_replaces_its_block_and_nothing_else() {
        let page = page();
        assert!(page.starts_with("first\n<!-- ") && page.ends_with("-->\nlast\n"), "{page}");
        assert!(page.contains("-->\nmiddle\n<!-- ") && !page.contains("stale"), "{page}");
        assert_eq!(check(&page).unwrap(), vec!["a".repeat(40); 3]);
        for row in [
            "at commit `aaaa",
            "| reentrant | 2 | 66.7 % | 2 | 0 | 0 |\n",
            "| all | 3 | 100.0 % | 3 | 0 | 0 |\n",
            "| cut | 1 |\n",
            "| certain holds do not overlap | 3 |\n",
        ] {
            assert!(page.contains(row), "{row}");
        }
        assert!(!page.contains("fencing tokens increase"), "it never applied");
    }

    #[test]
    fn an_incomplete_page_is_rejected() {
        let found = |page: String| check(&page).unwrap_err();
        assert!(found(page().replace(&PAGE.end("faults"), "")).contains("the marks of faults"));
        assert!(found(page() + &PAGE.begin("faults")).contains("the marks of faults"));
        assert!(found(page().replace("at commit `aaaa", "at commit `")).contains("no commit"));
        assert!(found(page().replace("| cut | 1 |", "| cut | 1 | 2 |")).contains("different width"));
        assert!(found(page().replace("| median |", "| max |")).contains("no median column"));
        assert!(found(page().replace("with seed 7, ", "")).contains("with seed"));
        for figure in ["1,204 holds", "30 failovers,", "(64%)", "12.5 %"] {
            assert!(found(page() + figure).contains("a figure outside"), "{figure}");
        }
    }

    #[test]
    fn a_failed_run_or_a_changed_tree_writes_nothing() {
        assert_eq!(of_clean_tree("abc\n", "").unwrap(), "abc");
        assert!(of_clean_tree("abc\n", " M src/lib.rs\n?? new\n").unwrap_err().contains("`M src/lib.rs`"));
        let text = fs::read_to_string(root().join(PAGE.path)).unwrap();
        let violations = vec![Violation { rule: "a rule", at: 0, text: String::new() }];
        for judgement in [
            Judgement { violations, ..Judgement::default() },
            Judgement { unexercised: vec!["a rule"], ..Judgement::default() },
        ] {
            let written = write(&root(), "abc", &run("faults"), &History::default(), &judgement);
            assert!(written.unwrap_err().contains("this run failed"));
        }
        assert_eq!(fs::read_to_string(root().join(PAGE.path)).unwrap(), text);
    }
}
