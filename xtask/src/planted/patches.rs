//! Reads the patches: the lines before the first `---` say what the bug is, and which checks must catch it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::verdict::Symptom;

pub struct Planted {
    pub name: String,
    pub patch: PathBuf,
    /// What the bug is.
    pub bug: String,
    pub checks: BTreeSet<Check>,
}

/// One test, or one rule of a campaign, which must catch the bug.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Check {
    pub place: Place,
    /// The full name of the test or rule.
    pub name: String,
    pub symptom: Symptom,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `tests/it`.
    Suite,
    /// `tests/shuttle`.
    Schedules,
    /// A minute of `cargo xtask torture` with these arguments.
    Campaign(Vec<String>),
}

impl Place {
    pub fn name(&self) -> String {
        match self {
            Self::Suite => "suite".to_owned(),
            Self::Schedules => "schedules".to_owned(),
            Self::Campaign(arguments) => format!("campaign {}", arguments.join(" ")),
        }
    }
}

/// The patches of a folder, and those of its folder `kinds`.
pub fn all(folder: &Path) -> Result<Vec<Planted>, String> {
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

fn read(patch: PathBuf) -> Result<Planted, String> {
    let text = fs::read_to_string(&patch).map_err(|error| format!("{}: {error}", patch.display()))?;
    let (bug, checks) = head(&text).map_err(|problem| format!("{}: {problem}", patch.display()))?;
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Planted { name, bug, checks, patch })
}

/// The bug and its checks. Any line that names no check describes the bug.
fn head(text: &str) -> Result<(String, BTreeSet<Check>), String> {
    let (mut bug, mut checks) = (Vec::new(), BTreeSet::new());
    for line in text.lines().take_while(|line| !line.starts_with("--- ")) {
        let tests = |place: &Place, symptom, names: &str| {
            let check = |name: &str| Check { place: place.clone(), name: name.to_owned(), symptom };
            names.split_whitespace().map(check).collect()
        };
        let found = if let Some(names) = line.strip_prefix("Caught by the suite: ") {
            tests(&Place::Suite, Symptom::Failure, names)
        } else if let Some(names) = line.strip_prefix("Caught by the schedules: ") {
            tests(&Place::Schedules, Symptom::Failure, names)
        } else if let Some(names) = line.strip_prefix("Hangs in the suite: ") {
            tests(&Place::Suite, Symptom::Hang, names)
        } else if let Some(names) = line.strip_prefix("Hangs in the schedules: ") {
            tests(&Place::Schedules, Symptom::Hang, names)
        } else if let Some(campaign) = line.strip_prefix("Caught by the campaign: ") {
            let (rule, arguments) = campaign
                .split_once(": ")
                .ok_or("a campaign is named by a rule, a colon and the arguments")?;
            let place = Place::Campaign(arguments.split_whitespace().map(str::to_owned).collect());
            vec![Check { place, name: rule.to_owned(), symptom: Symptom::Failure }]
        } else {
            bug.push(line);
            Vec::new()
        };
        checks.extend(found);
    }
    if checks.is_empty() {
        return Err("no line names a test or rule that catches it".to_owned());
    }
    Ok((bug.join(" ").trim().to_owned(), checks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_names_the_bug_and_each_check() {
        let text = "A bug\nof two lines.\nCaught by the suite: a::b c::d\nHangs in the schedules: e::f\n\
                    Caught by the campaign: tokens rise: --seed 1\n--- a/x\n+++ b/x\n";
        let (bug, checks) = head(text).unwrap();
        assert_eq!(bug, "A bug of two lines.");
        let campaign = Place::Campaign(vec!["--seed".to_owned(), "1".to_owned()]);
        let expected = [
            (Place::Suite, "a::b", Symptom::Failure),
            (Place::Suite, "c::d", Symptom::Failure),
            (Place::Schedules, "e::f", Symptom::Hang),
            (campaign, "tokens rise", Symptom::Failure),
        ];
        let expected = expected.map(|(place, name, symptom)| Check { place, name: name.to_owned(), symptom });
        assert_eq!(checks, BTreeSet::from(expected));
    }

    #[test]
    fn a_patch_without_a_check_and_a_campaign_without_a_rule_are_errors() {
        head("A bug.\n--- a/x\n").unwrap_err();
        head("A bug.\nCaught by the campaign: --seed 1\n--- a/x\n").unwrap_err();
    }
}
