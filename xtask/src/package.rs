//! `cargo xtask check-package`: the package that would be published has the files that it needs and no others, and it builds
//! with its examples. `cargo package` by itself builds only the library.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::paths;

/// The folders and files at the root of the package.
const CONTENTS: [&str; 15] = [
    ".cargo_vcs_info.json",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "Cargo.toml.orig",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "docs",
    "examples",
    "lua",
    "src",
];

/// Folders whose files all belong in the package, except those of packages inside them.
const WHOLE: [&str; 3] = ["src", "lua", "examples"];

/// The registry accepts ten times as much.
const MAX_BYTES: u64 = 1024 * 1024;

pub fn check() -> Result<(), String> {
    let listed = stdout(cargo().args(["package", "--list", "--allow-dirty"]))?;
    let tracked =
        stdout(Command::new("git").args(["ls-files", "--"]).args(WHOLE).current_dir(paths::root()))?;
    let problems = compare(&listed, &tracked);
    if !problems.is_empty() {
        return Err(format!("package: correct `include` in Cargo.toml:\n{}", problems.join("\n")));
    }
    let folder = unpacked()?;
    // The dependencies are those of the workspace, so their builds are shared.
    let status = cargo()
        .args(["check", "--quiet", "--locked", "--lib", "--examples", "--all-features", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(paths::target())
        .status();
    if !status.map_err(|error| format!("cargo: {error}"))?.success() {
        return Err(format!(
            "package: it does not build (see above); it is unpacked in {}",
            folder.display()
        ));
    }
    println!("package: {} files, builds with its examples", listed.lines().count());
    Ok(())
}

/// Packs the library, also with uncommitted changes, and unpacks it. Returns the folder.
pub fn unpacked() -> Result<PathBuf, String> {
    let target = paths::target().join("packed");
    paths::remove(fs::remove_dir_all(&target)).map_err(paths::at(&target))?;
    stdout(
        cargo()
            .args(["package", "--package", "redisson-lock", "--no-verify", "--allow-dirty", "--target-dir"])
            .arg(&target),
    )?;
    let folder = target.join("package");
    let archive = only_archive(&folder)?;
    let bytes = fs::metadata(&archive).map_err(paths::at(&archive))?.len();
    if bytes > MAX_BYTES {
        return Err(format!("package: {} has {bytes} bytes, the limit is {MAX_BYTES}", archive.display()));
    }
    stdout(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&folder))?;
    let unpacked = archive.with_extension("");
    // Otherwise cargo takes it for a member of the workspace around it.
    let manifest = unpacked.join("Cargo.toml");
    let file = OpenOptions::new().append(true).open(&manifest);
    file.and_then(|mut file| file.write_all(b"\n[workspace]\n")).map_err(paths::at(&manifest))?;
    Ok(unpacked)
}

fn only_archive(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(paths::at(folder))?;
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut archives = files.filter(|path| path.extension().is_some_and(|end| end == "crate"));
    archives.next().ok_or_else(|| format!("package: cargo package wrote no archive to {}", folder.display()))
}

/// The problems of a list of packaged files, given the files that git tracks in the folders of [`WHOLE`].
fn compare(listed: &str, tracked: &str) -> Vec<String> {
    let packaged: BTreeSet<&str> = listed.lines().collect();
    let unexpected = packaged
        .iter()
        .filter(|path| !CONTENTS.contains(&path.split('/').next().unwrap_or_default()))
        .map(|path| format!("  {path} is packaged, but nothing in the package needs it"));
    // Cargo leaves out the folders with a manifest of their own.
    let inner: Vec<&str> = tracked.lines().filter_map(|path| path.strip_suffix("Cargo.toml")).collect();
    let missing = tracked
        .lines()
        .filter(|path| !packaged.contains(path) && !inner.iter().any(|folder| path.starts_with(folder)))
        .map(|path| format!("  {path} is not packaged"));
    let required = CONTENTS.iter().filter(|name| {
        // Cargo writes it only in a repository without uncommitted changes.
        **name != ".cargo_vcs_info.json" && !packaged.iter().any(|path| path.split('/').next() == Some(name))
    });
    unexpected.chain(missing).chain(required.map(|name| format!("  {name} is missing"))).collect()
}

/// Runs a command that must succeed, and returns its output.
pub fn stdout(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "ARCHITECTURE.md\nCHANGELOG.md\nCONTRIBUTING.md\nCargo.lock\nCargo.toml\nCargo.toml.orig\nLICENSE-APACHE\n\
                        LICENSE-MIT\nREADME.md\nSECURITY.md\ndocs/interop.md\nexamples/a.rs\nlua/a.lua\nsrc/lib.rs\n";

    #[test]
    fn a_list_is_complete_and_has_nothing_else() {
        let tracked = "examples/a.rs\nlua/a.lua\nsrc/lib.rs\n";
        assert_eq!(compare(REST, tracked), Vec::<String>::new());
        let more = format!("{REST}tests/it/main.rs\n");
        assert_eq!(compare(&more, tracked).len(), 1);
        assert_eq!(compare(REST, &format!("{tracked}src/lock.rs\n")), ["  src/lock.rs is not packaged"]);
        assert_eq!(compare(&REST.replace("LICENSE-MIT\n", ""), tracked), ["  LICENSE-MIT is missing"]);
    }

    #[test]
    fn packages_inside_are_left_out() {
        let tracked = "examples/a.rs\nexamples/service/Cargo.toml\nexamples/service/src/main.rs\n";
        assert_eq!(compare(REST, tracked), Vec::<String>::new());
    }
}
