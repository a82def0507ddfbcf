//! The import rule of ARCHITECTURE.md: which module may name which. Read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The layers of `src/`, from the top. A module may name its own layer and the layers below it.
const LAYERS: &[&[&str]] = &[
    &["blocking", "fuzzing", "measuring", "metrics", "redisson_config", "timeline"],
    &["composite"],
    &["client", "codec", "guard", "latch", "lock", "map_entry", "semaphore", "status"],
    &["engine"],
    &["lease"],
    &["kinds"],
    &["connection"],
    &["protocol"],
    &["runtime"],
];

/// The modules that every layer may name, and what they may name themselves.
const SHARED: &[(&str, &[&str])] = &[
    ("error", &["holder"]),
    ("holder", &[]),
    ("observer", &["error"]),
    ("config", &["error", "holder", "observer"]),
    ("owner", &["error", "runtime"]),
    ("stats", &["error", "observer"]),
];

/// Whether `module` may name `other`. A name in capitals is an item of the public API.
fn may_name(module: &str, other: &str) -> bool {
    if module == other {
        return true;
    }
    if let Some((_, named)) = SHARED.iter().find(|(shared, _)| *shared == module) {
        return named.contains(&other);
    }
    let layer = |module| LAYERS.iter().position(|layer| layer.contains(&module));
    let own = layer(module).unwrap_or_else(|| panic!("{module} has no layer"));
    match layer(other) {
        Some(layer) => layer >= own,
        // The tests under `cfg(shuttle)` bring locks, timers and tasks of their own.
        None if other == "shuttled" => module == "runtime",
        None if other.starts_with(char::is_uppercase) => own == 0,
        None => SHARED.iter().any(|(shared, _)| *shared == other),
    }
}

#[test]
fn modules_import_only_what_they_may() {
    let mut wrong = Vec::new();
    for (module, file, text) in sources() {
        if module == "lib" {
            continue;
        }
        for (line, code) in code_lines(&text) {
            for (at, _) in code.match_indices("crate::") {
                let named: String =
                    code[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if !may_name(&module, &named) {
                    wrong.push(format!("{file}:{line}: {module} names {named}"));
                }
            }
            // The names of spans and of metrics are no keys.
            let names = ["protocol/keys.rs", "lease/spans.rs", "metrics.rs"];
            if !names.contains(&file.as_str()) && code.contains("\"redisson_") {
                wrong.push(format!("{file}:{line}: builds a name"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn only_connection_names_the_redis_crate() {
    let sources = sources();
    let others = sources.iter().filter(|(module, ..)| module != "connection" && module != "lib");
    let wrong: Vec<_> = others
        .flat_map(|(_, file, text)| code_lines(text).map(move |(line, code)| (file, line, code)))
        .filter(|(.., code)| names_redis(code))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(names_redis("use redis as r;") && names_redis("fn f(value: &redis::Value) {"));
    assert!(!names_redis(r#"let url = "redis://host";"#) && !names_redis("mod redisson_config;"));
}

/// Whether a line of code has the word `redis` outside a string.
fn names_redis(code: &str) -> bool {
    let is_word =
        |text: &str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "redis");
    code.split('"').step_by(2).any(is_word)
}

#[test]
fn a_layer_names_no_layer_above_it() {
    assert!(may_name("client", "engine") && may_name("client", "lock") && may_name("runtime", "shuttled"));
    assert!(may_name("blocking", "Client") && may_name("kinds", "owner") && may_name("owner", "runtime"));
    for (module, other) in
        [("engine", "client"), ("owner", "engine"), ("lock", "Client"), ("engine", "shuttled")]
    {
        assert!(!may_name(module, other), "{module} may name {other}");
    }
}

/// A file that is read before the files that it names needs no knowledge of them. So the files can be read from the bottom up.
#[test]
fn no_files_name_each_other_in_a_circle() {
    let sources = sources();
    let names: BTreeMap<String, BTreeSet<String>> = sources
        .iter()
        .filter(|(module, ..)| module != "lib")
        .map(|(_, file, text)| (path_of(file), named_files(file, text, &sources)))
        .collect();
    let circles: Vec<_> = names.keys().filter(|file| reaches(&names, file, file)).collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_of_files_is_found() {
    let source = |file: &str, text: &str| (String::new(), file.to_owned(), text.to_owned());
    let sources = [
        source("a/mod.rs", ""),
        source("a/b.rs", "use crate::{c::{D, E}};"),
        source("c.rs", "use crate::a::b::F;"),
    ];
    let named = |at: usize| named_files(&sources[at].1, &sources[at].2, &sources);
    assert_eq!(named(1), BTreeSet::from(["c".to_owned()]));
    assert_eq!(named(2), BTreeSet::from(["a::b".to_owned()]));
    let names = BTreeMap::from([("a::b".to_owned(), named(1)), ("c".to_owned(), named(2))]);
    assert!(reaches(&names, "c", "c") && reaches(&names, "a::b", "a::b") && !reaches(&names, "a", "a"));
}

/// ARCHITECTURE.md lists the files of the engine, and each of them names only files further down.
#[test]
fn an_engine_file_names_only_files_below_it_in_the_table() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let (_, engine) = document.split_once("### The engine").unwrap();
    let rows =
        engine.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let files = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let listed: Vec<_> = files.map(|file| path_of(&format!("engine/{file}"))).collect();
    let sources = sources();
    let exist = listed.iter().all(|listed| sources.iter().any(|(_, file, _)| path_of(file) == *listed));
    assert!(exist, "the table has a file that does not exist: {listed:?}");
    let mut wrong = Vec::new();
    for (_, file, text) in sources.iter().filter(|(module, ..)| module == "engine") {
        let Some(at) = listed.iter().position(|listed| *listed == path_of(file)) else {
            assert_eq!(file, "engine/mod.rs", "the table lacks a file");
            continue;
        };
        let above =
            named_files(file, text, &sources).into_iter().filter(|named| listed[..at].contains(named));
        wrong.extend(above.map(|above| format!("{file} names {above}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The path of the module in `file`, without `crate`.
fn path_of(file: &str) -> String {
    file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::")
}

/// The modules with files of their own that `file` names.
fn named_files(file: &str, text: &str, sources: &[(String, String, String)]) -> BTreeSet<String> {
    let own = path_of(file);
    let folder = own.rsplit_once("::").map_or("", |(folder, _)| folder);
    let code: String = code_lines(text).map(|(_, code)| code).collect();
    let code = code.replace("super::", &format!("crate::{folder}::").replace("::::", "::"));
    let paths: BTreeSet<String> = sources.iter().map(|(_, other, _)| path_of(other)).collect();
    let imports = code.split("crate::").skip(1).flat_map(imported);
    // The longest part of an import that is a file.
    let file_of = |import: String| {
        let mut ends: Vec<_> = import.match_indices("::").map(|(at, _)| at).chain([import.len()]).collect();
        ends.reverse();
        ends.into_iter().map(|end| import[..end].to_owned()).find(|path| paths.contains(path))
    };
    imports.filter_map(file_of).filter(|path| *path != own).collect()
}

/// The paths in an import that goes on with `rest`: one, or those of a list.
fn imported(rest: &str) -> Vec<String> {
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
    let (path, rest) = rest.split_at(end);
    match rest.strip_prefix('{') {
        Some(list) if path.is_empty() || path.ends_with("::") => {
            let list = list.split(';').next().unwrap();
            let names = list.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            names.filter(|name| !name.is_empty()).map(|name| format!("{path}{name}")).collect()
        }
        _ => vec![path.trim_end_matches(':').to_owned()],
    }
}

/// Whether `from` names `to`, directly or through other files.
fn reaches(names: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in names.get(file).into_iter().flatten() {
            if next == to {
                return true;
            }
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// Deadlines and the validity of a red lock go by a clock that cannot be set. Only the description of a client has a time of day.
#[test]
fn no_module_reads_the_wall_clock() {
    for (_, file, text) in sources().into_iter().filter(|(_, file, _)| file != "holder.rs") {
        let named =
            code_lines(&text).find(|(_, code)| ["SystemTime", "Realtime"].iter().any(|it| code.contains(it)));
        assert!(named.is_none(), "{file}: {named:?}");
    }
}

/// Text from servers is escaped in one place, so it is taken out of errors only there.
#[test]
fn server_text_enters_in_one_place() {
    for (_, file, text) in sources() {
        let named =
            code_lines(&text).find(|(_, code)| code.contains(".detail()") || code.contains(".details()"));
        assert!(named.is_none() || file.ends_with("server_text.rs"), "{file}: {named:?}");
    }
}

/// A guarantee without a test is no guarantee.
#[test]
fn every_test_named_in_docs_reliability_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/reliability.md")).unwrap();
    // A path that begins with an upper-case letter names an item of the library.
    let names_a_test = |word: &&str| word.contains("::") && word.starts_with(char::is_lowercase);
    let named: Vec<_> = text.split('`').filter(names_a_test).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(is_test("tests/it", name), "test {name} does not exist");
    }
}

/// A mutant that does not apply, or whose test does not exist, shows nothing.
#[test]
fn every_mutant_applies_and_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries =
        ["tests/mutants", "tests/mutants/kinds"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    let patches: Vec<_> = paths.filter(|path| path.is_file()).collect();
    assert!(patches.len() > 100, "{patches:?}");
    for patch in patches {
        let applies = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).status();
        assert!(applies.unwrap().success(), "{patch:?} does not apply");
        let text = fs::read_to_string(&patch).unwrap();
        let in_suite = text.lines().filter_map(|line| line.split_once(" the suite: "));
        for name in in_suite.flat_map(|(_, names)| names.split_whitespace()) {
            assert!(is_test("tests/it", name), "{patch:?} names {name:?}, which is not a test of the suite");
        }
        let of_program = text.lines().filter_map(|line| line.split_once(" the command line: "));
        for name in of_program.flat_map(|(_, names)| names.split_whitespace()) {
            assert!(
                is_test("cli/tests/cli", name),
                "{patch:?} names {name:?}, which cli/tests does not have"
            );
        }
    }
}

/// Whether the folder has a test with this full name.
fn is_test(folder: &str, name: &str) -> bool {
    let Some((module, test)) = name.rsplit_once("::") else { return false };
    let file = format!("{folder}/{}.rs", module.replace("::", "/"));
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap_or_default();
    let has_attribute =
        |at: usize| source[..at].trim_end_matches(['a', 's', 'y', 'n', 'c', ' ']).ends_with("]\n");
    source.match_indices(&format!("fn {test}()")).any(|(at, _)| has_attribute(at))
}

#[test]
fn every_helper_named_in_contributing_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let (_, section) = text.split_once("## Helpers in `tests/it/support`").unwrap();
    let table = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let names: Vec<_> =
        table.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 20, "{names:?}");
    let support: String = fs::read_dir(root.join("tests/it/support"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // A name may end in several, as `any_lock::{ClientSet, AnyLock}` does.
    let ends = |name| str::rsplit(name, "::").next().unwrap().trim_matches(['{', '}']).split(", ");
    for name in names.into_iter().flat_map(ends) {
        let defined = ["struct", "enum", "fn", "mod", "trait", "const"].iter().any(|keyword| {
            let item = format!("{keyword} {name}");
            let rest = |(at, _): (usize, &str)| support[at + item.len()..].chars().next();
            support.match_indices(&item).map(rest).any(|next| !next.is_some_and(is_word))
        });
        assert!(defined, "the helper {name} does not exist");
    }
}

/// Newcomers look for an example on the page of the type that they need.
#[test]
fn every_public_type_has_an_example() {
    let mut types = 0;
    for (_, file, text) in
        sources().into_iter().filter(|(module, ..)| module != "fuzzing" && module != "measuring")
    {
        let mut documented = false;
        for line in text.lines() {
            let is_type =
                ["struct", "enum", "trait", "type"].iter().any(|it| line.starts_with(&format!("pub {it} ")));
            if is_type && file != "connection/fuzzing.rs" {
                types += 1;
                assert!(documented, "{file}: no example: {line}");
            }
            documented = match line.starts_with("///") {
                true => documented || line.starts_with("/// ```"),
                false => documented && line.starts_with("#["),
            };
        }
    }
    assert!(types > 40, "{types}");
}

/// README, crate documentation and errors are also read where only the package is.
#[test]
fn every_document_named_by_the_package_is_packaged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let include = manifest.lines().find(|line| line.starts_with("include = ")).unwrap();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let texts =
        sources().into_iter().map(|(_, file, text)| (file, text)).chain([("README.md".to_owned(), readme)]);
    let mut named = 0;
    for (file, text) in texts {
        for (at, _) in text.match_indices("docs/") {
            let rest = &text[at..];
            let end = rest.find(|sign: char| !sign.is_ascii_alphanumeric() && !"/._-".contains(sign));
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if path.ends_with(".md") {
                named += 1;
                assert!(root.join(path).exists(), "{file} names {path}, which does not exist");
                let document = path.trim_start_matches("docs/");
                assert!(
                    include.contains("\"docs/*.md\"") && !document.contains('/'),
                    "{path} is not in the package"
                );
            }
        }
    }
    assert!(named > 2, "{named}");
}

#[test]
fn there_is_one_wait_loop_and_no_file_is_too_long() {
    for (module, file, text) in sources() {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        assert!(code.lines().count() <= 500, "{file} has {} lines", code.lines().count());
        if ["lock", "guard", "client", "blocking"].contains(&module.as_str()) {
            assert!(!text.contains("attempt("), "{file} attempts by itself");
        }
    }
}

/// Code without comments, by line number.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default()))
        .take_while(|(_, code)| !code.contains("mod tests"))
}

/// (module, file, text) of every source file.
fn sources() -> Vec<(String, String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&root).unwrap();
            let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
            found.push((module.to_owned(), inside.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(found.len() > 15, "the sources were not found");
    found
}
