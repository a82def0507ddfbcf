//! `cargo xtask public-api`: the public API of the library as text, in docs/public-api.txt. A change of the API thereby
//! shows in the diff of a commit. The text covers all features.
//!
//! The list is derived from the JSON output of rustdoc, which is unstable: each version of the crate public-api reads the
//! output of a few Rust releases. So the Rust release that writes and checks the list is fixed.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cargo::cargo;
use crate::paths;

const LIST: &str = "docs/public-api.txt";
const COMMAND: &str = "cargo xtask public-api";

/// The Rust release whose output the locked version of the crate public-api reads.
const RUST: &str = "1.95";

/// Writes the list, or with `check` compares it.
pub fn run(check: bool) -> Result<(), String> {
    let current = current()?;
    let path = paths::root().join(LIST);
    if !check {
        return fs::write(&path, current).map_err(paths::at(&path));
    }
    let kept = paths::read(&path)?;
    match differences(&kept, &current) {
        changes if changes.is_empty() => Ok(()),
        changes => Err(format!(
            "public-api: {LIST} differs from the public API:\n{changes}If the change is intended, run `{COMMAND}`, and describe \
             the change in CHANGELOG.md"
        )),
    }
}

fn current() -> Result<String, String> {
    check_rust()?;
    let public_api = public_api::Builder::from_rustdoc_json(rustdoc_json()?)
        .omit_blanket_impls(true)
        .build()
        .map_err(|error| format!("public-api: the output of rustdoc could not be read: {error}"))?;
    Ok(public_api.items().fold(String::new(), |mut text, item| {
        let _ = writeln!(text, "{item}");
        text
    }))
}

fn check_rust() -> Result<(), String> {
    let rustdoc = Command::new(real_rustdoc()).arg("--version").output();
    let version = rustdoc.map_err(|error| format!("{}: {error}", real_rustdoc()))?;
    let version = String::from_utf8_lossy(&version.stdout);
    match version.split(' ').nth(1).is_some_and(|number| number.starts_with(&format!("{RUST}."))) {
        true => Ok(()),
        false => Err(format!(
            "public-api: the list is made with Rust {RUST}, but this is {}: run `RUSTUP_TOOLCHAIN={RUST} {COMMAND}`, or move to the \
             new release: update the crate public-api and RUST in xtask/src/public_api.rs, and write {LIST} anew",
            version.trim()
        )),
    }
}

/// Runs rustdoc on the library. Returns the path of its output.
fn rustdoc_json() -> Result<std::path::PathBuf, String> {
    // Only rustdoc itself may see RUSTC_BOOTSTRAP. Build scripts of dependencies watch it, so that cargo would build them anew.
    let wrapper = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rustdoc-unstable.sh");
    let target = paths::target();
    let status = cargo()
        .args(["rustdoc", "--quiet", "--package", "redisson-lock", "--lib", "--all-features", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .env("REDISSON_LOCK_RUSTDOC", real_rustdoc())
        .env("RUSTDOC", wrapper)
        .env_remove("RUSTDOCFLAGS")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(target.join("doc/redisson_lock.json")),
        false => Err("public-api: rustdoc failed (see above)".to_owned()),
    }
}

fn real_rustdoc() -> String {
    env::var("RUSTDOC").unwrap_or_else(|_| "rustdoc".to_owned())
}

/// The lines that only one of the lists has.
fn differences(kept: &str, current: &str) -> String {
    let (old, new): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), current.lines().collect());
    let removed = old.difference(&new).map(|line| format!("- {line}\n"));
    let added = new.difference(&old).map(|line| format!("+ {line}\n"));
    removed.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_lines_of_one_list() {
        assert_eq!(differences("a\nb\n", "a\nb\n"), "");
        assert_eq!(differences("a\nb\n", "b\nc\n"), "- a\n+ c\n");
    }
}
