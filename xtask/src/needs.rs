//! Finds out what each test of `tests/it` needs besides a redis-server, from the sources of the tests. A function needs the
//! settings that it names (`"REDISSON_LOCK_..."`) and those of the functions that it calls.
//!
//! Calls are matched by name, without types, so a test may get more than it uses. A test that asks for a setting that was
//! not found here fails (see `setting` in `tests/it/support`); it is never skipped silently.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::paths::{at, root};
use crate::server_versions;

/// Lists the versions of Redisson. All tests that need Java read it.
pub const JAVA: &str = "REDISSON_LOCK_VERSIONS";
/// The library that changes a program's clock.
pub const FAKETIME_SETTING: &str = "REDISSON_LOCK_FAKETIME";
/// The folders of the libraries that `tests/peers` uses.
pub const PYTHON: &str = "REDISSON_LOCK_PYTHON_PEER";
pub const NODE: &str = "REDISSON_LOCK_NODE_PEER";

/// The folder of PostgreSQL's programs, and that of the built programs of `examples/programs`.
pub const POSTGRES: &str = "REDISSON_LOCK_POSTGRES";
pub const WHOLE_PROGRAMS: &str = "REDISSON_LOCK_PROGRAMS";
/// The folder of Prometheus and its tools, and that of Grafana's library for dashboards.
pub const PROMETHEUS: &str = "REDISSON_LOCK_PROMETHEUS";
pub const GRAFANA: &str = "REDISSON_LOCK_GRAFANA";
/// A browser of the Chromium family.
pub const BROWSER: &str = "REDISSON_LOCK_BROWSER";
/// The built program `redisson-lock`.
pub const CLI: &str = "REDISSON_LOCK_CLI";

/// Names of settings, or [`PROGRAMS`].
pub type Needs = BTreeSet<String>;

/// The examples, which are programs that tests start.
pub const PROGRAMS: &str = "the examples";
/// The function of `tests/it/support` that returns the path of an example.
const TO_PROGRAMS: &str = "program";

/// Everything that any test may need.
pub fn all() -> Needs {
    let servers = server_versions::FETCHED.iter().map(server_versions::Server::setting);
    let others = [
        JAVA,
        FAKETIME_SETTING,
        PYTHON,
        NODE,
        POSTGRES,
        WHOLE_PROGRAMS,
        PROMETHEUS,
        GRAFANA,
        BROWSER,
        CLI,
        PROGRAMS,
    ];
    servers.chain(others.map(str::to_owned)).collect()
}

/// The needs of each test of `tests/it`, by its full name.
pub fn of_tests() -> Result<BTreeMap<String, Needs>, String> {
    let mut files = Vec::new();
    read_folder(&root().join("tests/it"), &[], &mut files)?;
    Ok(scan(&files))
}

/// The path of a module, and its source.
type File = (Vec<String>, String);

fn read_folder(folder: &Path, module: &[String], files: &mut Vec<File>) -> Result<(), String> {
    for entry in fs::read_dir(folder).map_err(at(folder))? {
        let path = entry.map_err(at(folder))?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let inside = match name.as_str() {
            "main" | "mod" => module.to_vec(),
            _ => [module, &[name]].concat(),
        };
        if path.is_dir() {
            read_folder(&path, &inside, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push((inside, fs::read_to_string(&path).map_err(at(&path))?));
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Function {
    module: Vec<String>,
    /// The type whose method it is.
    of: Option<String>,
    name: String,
    is_test: bool,
    /// The source, from the name on.
    body: String,
}

impl Function {
    fn has_receiver(&self) -> bool {
        let head = self.body.split('{').next().unwrap_or_default();
        words(head).any(|(_, word)| word == "self")
    }
}

fn scan(files: &[File]) -> BTreeMap<String, Needs> {
    let all = all();
    let functions: Vec<Function> =
        files.iter().flat_map(|(module, text)| functions_of(module, text)).collect();
    let imported: BTreeMap<&[String], BTreeSet<&str>> =
        files.iter().map(|(module, text)| (module.as_slice(), imports(text))).collect();
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, function) in functions.iter().enumerate() {
        by_name.entry(&function.name).or_default().push(at);
    }
    // A set of needs is a bit mask over `all`.
    let settings: Vec<String> = all.iter().map(|setting| format!("\"{setting}\"")).collect();
    let programs = all.iter().position(|need| need == PROGRAMS).map_or(0, |at| 1 << at);
    let (mut needs, mut calls): (Vec<u32>, Vec<BTreeSet<usize>>) = (Vec::new(), Vec::new());
    for function in &functions {
        let named =
            settings.iter().enumerate().filter(|(_, setting)| function.body.contains(setting.as_str()));
        let leads_to_programs = function.of.is_none() && function.name == TO_PROGRAMS;
        let own = if leads_to_programs { programs } else { 0 };
        needs.push(named.fold(own, |needs, (at, _)| needs | 1 << at));
        let mut called = BTreeSet::new();
        for (before, word) in words(&function.body) {
            for other in by_name.get(word).into_iter().flatten() {
                if may_call(function, before, &functions[*other], &imported[function.module.as_slice()]) {
                    called.insert(*other);
                }
            }
        }
        calls.push(called);
    }
    // Repeats until nothing is added, because functions may call each other in cycles.
    let mut grows = true;
    while grows {
        grows = false;
        for at in 0..functions.len() {
            let more = calls[at].iter().fold(needs[at], |more, other| more | needs[*other]);
            grows |= more != needs[at];
            needs[at] = more;
        }
    }
    let tests = functions.iter().zip(needs).filter(|(function, _)| function.is_test);
    tests
        .map(|(function, needs)| {
            let of = all.iter().enumerate().filter(|(at, _)| needs & (1 << at) != 0);
            (full_name(function), of.map(|(_, need)| need.clone()).collect())
        })
        .collect()
}

fn full_name(function: &Function) -> String {
    let mut name = function.module.join("::");
    name += if name.is_empty() { "" } else { "::" };
    name + &function.name
}

/// Whether a word in the body of `caller`, preceded by `before`, may call `other`.
fn may_call(caller: &Function, before: &str, other: &Function, imported: &BTreeSet<&str>) -> bool {
    let is_near = || caller.module == other.module || caller.module.starts_with(&other.module);
    let is_support = || other.module.first().is_some_and(|module| module == "support");
    if let Some(path) = before.strip_suffix("::") {
        let within = path.rsplit(|sign: char| !is_part(sign)).next().unwrap_or_default();
        return match &other.of {
            Some(of) => of == within || (within == "Self" && caller.of.as_ref() == Some(of)),
            None => {
                ["super", "self", "crate"].contains(&within)
                    || other.module.last().is_some_and(|module| module == within)
            }
        };
    }
    if before.ends_with('.') {
        return other.has_receiver() && (is_near() || is_support());
    }
    other.of.is_none() && (caller.module == other.module || imported.contains(other.name.as_str()))
}

/// The functions of a formatted file. A function ends with a brace at its own indentation.
fn functions_of(module: &[String], text: &str) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    // The indentation of the open function, the open `impl`, and whether a test attribute was seen.
    let (mut open, mut of, mut is_test): (Option<usize>, Option<String>, bool) = (None, None, false);
    for line in text.lines().map(without_comment) {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if let (Some(margin), Some(function)) = (open, found.last_mut()) {
            function.body += line;
            function.body.push('\n');
            if indent == margin && code.starts_with('}') {
                open = None;
            }
            continue;
        }
        if indent == 0 && code.starts_with("impl") {
            of = Some(type_of(code));
        } else if indent == 0 && code.starts_with('}') {
            of = None;
        } else if code.starts_with("#[") {
            is_test |= code.starts_with("#[test]") || code.starts_with("#[tokio::test");
        } else if let Some(name) = function_name(code) {
            let (of, body) = (of.clone(), format!("{code}\n"));
            found.push(Function { module: module.to_vec(), of, name: name.to_owned(), is_test, body });
            let is_whole = code.ends_with('}') || code.ends_with(';');
            (open, is_test) = ((!is_whole).then_some(indent), false);
        }
    }
    found
}

/// The name in `pub async fn name(..`.
fn function_name(code: &str) -> Option<&str> {
    let (before, rest) = code.split_once("fn ")?;
    let is_head = before
        .split_whitespace()
        .all(|word| ["const", "async"].contains(&word) || word.starts_with("pub") || word.starts_with("in "));
    let end = rest.find(|sign: char| !is_part(sign))?;
    (is_head && end > 0).then(|| &rest[..end])
}

/// The `Type` of `impl<T> Trait for Type<T> {`.
fn type_of(code: &str) -> String {
    let of = match code.split_once(" for ") {
        Some((_, of)) => of,
        None => code.split_once(' ').map_or("", |(_, of)| of),
    };
    of.chars().take_while(|sign| is_part(*sign)).collect()
}

/// The names that a file imports.
fn imports(text: &str) -> BTreeSet<&str> {
    let uses = text.split("\nuse ").skip(1).filter_map(|rest| rest.split_once(';'));
    uses.flat_map(|(paths, _)| words(paths).map(|(_, word)| word)).collect()
}

/// The words of a text, each with all text before it.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_part)?;
        at = text[start..].find(|sign| !is_part(sign)).map_or(text.len(), |end| start + end);
        Some((&text[..start], &text[start..at]))
    })
}

fn is_part(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

/// Removes a comment, but keeps the `//` of a URL.
fn without_comment(line: &str) -> &str {
    let mut comments = line.match_indices("//").map(|(at, _)| at);
    comments.find(|at| !line[..*at].ends_with(':')).map_or(line, |at| line[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_of(test: &str) -> Vec<String> {
        let all = of_tests().unwrap();
        all.get(test).unwrap_or_else(|| panic!("no test is named {test}")).iter().cloned().collect()
    }

    #[test]
    fn a_test_needs_its_own_settings_and_those_of_its_callees() {
        let none: [&str; 0] = [];
        assert_eq!(needs_of("mutex::join_all_lets_the_branches_in_one_by_one"), none);
        assert_eq!(needs_of("structure::modules_import_only_what_they_may"), none);
        // Through a method of a type, and through an imported function.
        assert_eq!(needs_of("peer_smoke::a_java_lock_matches_its_record"), [JAVA]);
        assert_eq!(needs_of("kinds_interop::readers_of_both_sides_share_and_keep_writers_out"), [JAVA]);
        assert_eq!(needs_of("examples::each_example_prints_its_expected_output"), [PROGRAMS]);
    }

    #[test]
    fn functions_calls_and_imports_are_parsed_from_a_formatted_file() {
        let support = "
            impl Peer {
                fn start(&self, way: &str) -> Self {
                    Self::at(setting(\"REDISSON_LOCK_VERSIONS\"))
                }
            }
            pub fn program() {}
        ";
        let tests = "
            use crate::support::{Peer, program};

            /// Peer::start
            #[tokio::test(flavor = \"multi_thread\")]
            async fn plain() {
                other.start(\"redis://a\"); // Peer::start
            }

            #[test]
            fn with_java() {
                helped();
            }

            fn helped() {
                Peer::start(\"a\")
            }

            #[test]
            fn with_a_program() {
                program();
            }
        ";
        let plain =
            |text: &str| text.lines().map(|line| line.get(12..).unwrap_or("")).collect::<Vec<_>>().join("\n");
        let module = |name: &str| name.split("::").map(str::to_owned).collect::<Vec<_>>();
        let found = scan(&[(module("support::peer"), plain(support)), (module("a::b"), plain(tests))]);
        let of = |name: &str| found[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(of("a::b::with_java"), [JAVA]);
        assert_eq!(of("a::b::with_a_program"), [PROGRAMS]);
        // It may be the method of that type.
        assert_eq!(of("a::b::plain"), [JAVA]);
    }
}
