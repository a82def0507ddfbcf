//! Reads the headers of the patches. The lines before the first `---` describe the bug, and name the checks that must catch
//! it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::verdict::Symptom;

pub struct Mutant {
    pub name: String,
    pub patch: PathBuf,
    /// The error in the code, in words.
    pub description: String,
    pub checks: BTreeSet<Check>,
}

/// A test, or a rule of a campaign, that must catch the mutant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check {
    pub harness: Harness,
    /// The full name of the test or rule.
    pub name: String,
    pub symptom: Symptom,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harness {
    /// `tests/it`.
    Suite,
    /// `tests/shuttle`.
    Schedules,
    /// `cli/tests`.
    CommandLine,
    /// A campaign of one minute, `cargo xtask chaos` with these arguments.
    Campaign(Vec<String>),
}

impl Harness {
    pub fn name(&self) -> String {
        match self {
            Self::Suite => "suite".to_owned(),
            Self::Schedules => "schedules".to_owned(),
            Self::CommandLine => "command line".to_owned(),
            Self::Campaign(arguments) => format!("campaign {}", arguments.join(" ")),
        }
    }
}

/// The patches of a folder and of its subfolder `kinds`.
pub fn all(folder: &Path) -> Result<Vec<Mutant>, String> {
    let mut patches = Vec::new();
    for folder in [folder, &folder.join("kinds")] {
        let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut found: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
        found.sort();
        patches.extend(found);
    }
    patches.into_iter().map(read).collect()
}

fn read(patch: PathBuf) -> Result<Mutant, String> {
    let text = fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    let (description, checks) =
        parse_header(&text).map_err(|problem| format!("{}: {problem}", patch.display()))?;
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Mutant { name, description, checks, patch })
}

/// Returns the description and the checks. Every line that names no check is part of the description.
fn parse_header(text: &str) -> Result<(String, BTreeSet<Check>), String> {
    let (mut description, mut checks) = (Vec::new(), BTreeSet::new());
    for line in text.lines().take_while(|line| !line.starts_with("--- ")) {
        let tests = |harness: &Harness, symptom, names: &str| {
            let check = |name: &str| Check { harness: harness.clone(), name: name.to_owned(), symptom };
            names.split_whitespace().map(check).collect()
        };
        let found = if let Some(names) = line.strip_prefix("Caught by the suite: ") {
            tests(&Harness::Suite, Symptom::Failure, names)
        } else if let Some(names) = line.strip_prefix("Caught by the schedules: ") {
            tests(&Harness::Schedules, Symptom::Failure, names)
        } else if let Some(names) = line.strip_prefix("Hangs in the suite: ") {
            tests(&Harness::Suite, Symptom::Hang, names)
        } else if let Some(names) = line.strip_prefix("Hangs in the schedules: ") {
            tests(&Harness::Schedules, Symptom::Hang, names)
        } else if let Some(names) = line.strip_prefix("Caught by the command line: ") {
            tests(&Harness::CommandLine, Symptom::Failure, names)
        } else if let Some(names) = line.strip_prefix("Hangs in the command line: ") {
            tests(&Harness::CommandLine, Symptom::Hang, names)
        } else if let Some(campaign) = line.strip_prefix("Caught by the campaign: ") {
            let (rule, arguments) =
                campaign.split_once(": ").ok_or("expected `Caught by the campaign: <rule>: <arguments>`")?;
            let harness = Harness::Campaign(arguments.split_whitespace().map(str::to_owned).collect());
            vec![Check { harness, name: rule.to_owned(), symptom: Symptom::Failure }]
        } else {
            description.push(line);
            Vec::new()
        };
        checks.extend(found);
    }
    if checks.is_empty() {
        return Err("the header names no test or rule that catches the mutant".to_owned());
    }
    Ok((description.join(" ").trim().to_owned(), checks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_describes_the_bug_and_names_each_check() {
        let text = "A bug\nof two lines.\nCaught by the suite: a::b c::d\nHangs in the schedules: e::f\n\
                    Caught by the command line: g::h\n\
                    Caught by the campaign: fencing tokens increase: --seed 1\n--- a/x\n+++ b/x\n";
        let (description, checks) = parse_header(text).unwrap();
        assert_eq!(description, "A bug of two lines.");
        let campaign = Harness::Campaign(vec!["--seed".to_owned(), "1".to_owned()]);
        let expected = [
            (Harness::Suite, "a::b", Symptom::Failure),
            (Harness::Suite, "c::d", Symptom::Failure),
            (Harness::Schedules, "e::f", Symptom::Hang),
            (Harness::CommandLine, "g::h", Symptom::Failure),
            (campaign, "fencing tokens increase", Symptom::Failure),
        ];
        let expected =
            expected.map(|(harness, name, symptom)| Check { harness, name: name.to_owned(), symptom });
        assert_eq!(checks, BTreeSet::from(expected));
    }

    #[test]
    fn a_header_without_a_check_or_a_campaign_without_a_rule_is_an_error() {
        parse_header("A bug.\n--- a/x\n").unwrap_err();
        parse_header("A bug.\nCaught by the campaign: --seed 1\n--- a/x\n").unwrap_err();
    }
}
