//! `cargo xtask redisson-api`: writes the tables of Redisson's methods in docs/migrating-from-redisson.md.

mod table;

use std::fmt::Write;
use std::fs;

use self::table::{Here, SECTIONS, Section};
use crate::page::Page;
use crate::paths::root;

const PAGE: Page = Page { path: "docs/migrating-from-redisson.md", command: "cargo xtask redisson-api" };

/// Writes all blocks of the page.
pub fn write() -> Result<(), String> {
    let path = root().join(PAGE.path);
    let at = |error| format!("{}: {error}", path.display());
    let page = fs::read_to_string(&path).map_err(at)?;
    fs::write(&path, current(page)?).map_err(at)
}

/// Returns the page with the blocks of the current table.
fn current(page: String) -> Result<String, String> {
    SECTIONS
        .iter()
        .try_fold(page, |page, section| PAGE.replace(&page, section.interfaces[0], &block(section)))
}

fn block(section: &Section) -> String {
    let mut text = "\n| Redisson | here |\n| --- | --- |\n".to_owned();
    for row in section.rows {
        let mut methods: Vec<_> =
            row.java.iter().map(|method| format!("`{}`", without_types(method))).collect();
        // Methods that differ only in the types of their parameters.
        methods.dedup();
        let here = match row.here {
            Here::Mapped(here) => here.to_owned(),
            Here::LeftOut(reason) => format!("none: {reason}"),
        };
        let _ = writeln!(text, "| {} | {here} |", methods.join(", "));
    }
    text + "\n"
}

/// A method with the names of its parameters: `lock(leaseTime, unit)`.
fn without_types(java: &str) -> String {
    let (name, parameters) = java.trim_end_matches(')').split_once('(').expect("a method has parameters");
    let names = parameters.split(", ").map(|parameter| parameter.split(' ').next_back().unwrap_or_default());
    format!("{name}({})", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_current_table() {
        let page = fs::read_to_string(root().join(PAGE.path)).unwrap();
        assert!(page == current(page.clone()).unwrap(), "{}: outdated: run `{}`", PAGE.path, PAGE.command);
    }

    /// A method that the table names in code must exist.
    #[test]
    fn the_table_names_methods_of_the_library() {
        let files = [
            "guard.rs",
            "latch.rs",
            "lock.rs",
            "lock/read_write.rs",
            "lock/run.rs",
            "semaphore.rs",
            "semaphore/expirable.rs",
            "status.rs",
        ];
        let sources = files.map(|file| fs::read_to_string(root().join("src").join(file)).unwrap()).concat();
        let mut named = 0;
        for row in SECTIONS.iter().flat_map(|section| section.rows) {
            let (Here::Mapped(text) | Here::LeftOut(text)) = row.here;
            let code: String = text.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
            for (end, _) in code.match_indices('(') {
                let name = code[..end].rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                named += 1;
                assert!(sources.contains(&format!(" fn {name}(")), "{text}: no method {name}");
            }
        }
        assert!(named > 50, "{named}");
    }

    #[test]
    fn methods_are_shown_without_types() {
        assert_eq!(without_types("release(List<String> ids, long time)"), "release(ids, time)");
        assert_eq!(without_types("lock()"), "lock()");
    }
}
