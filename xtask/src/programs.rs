//! Programs that tests run: those of `examples/programs`, which are built here, PostgreSQL, Prometheus, and a browser.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::cargo;
use crate::fetch::run_checked;
use crate::paths::{root, target};

/// Where Debian's packages have the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Browsers that speak the DevTools protocol over pipes, by the names of their packages' programs.
const BROWSERS: [&str; 4] = ["chromium", "google-chrome", "google-chrome-stable", "chromium-browser"];

/// Builds `examples/programs`, and returns the folder of its programs. Cargo reuses the crates that the library's own build has compiled
/// with the same features.
pub fn build() -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo.args(["build", "--locked", "--manifest-path"]).arg(root().join("examples/programs/Cargo.toml"));
    run_checked(cargo.arg("--target-dir").arg(target()))?;
    Ok(target().join("debug"))
}

/// Builds the command line, and returns its path. A run of all tests has built it, because it is built like them.
pub fn build_cli() -> Result<PathBuf, String> {
    let mut cargo = cargo();
    run_checked(cargo.args([
        "build",
        "--locked",
        "--workspace",
        "--all-features",
        "--bin",
        "redisson-lock",
    ]))?;
    Ok(target().join("debug/redisson-lock"))
}

pub fn installed_postgres() -> Result<PathBuf, String> {
    find_postgres().ok_or_else(|| format!("setup: no PostgreSQL in {VERSIONS} or on the PATH"))
}

/// The folder of the newest installed version, else one on the PATH.
pub fn find_postgres() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(VERSIONS).into_iter().flatten().flatten() {
        if let Some(version) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            versions.push((version, entry.path().join("bin")));
        }
    }
    versions.sort();
    let path = env::var_os("PATH").unwrap_or_default();
    versions
        .into_iter()
        .rev()
        .map(|(_, folder)| folder)
        .chain(env::split_paths(&path))
        .find(|folder| is_whole(folder))
}

pub fn installed_prometheus() -> Result<PathBuf, String> {
    find_prometheus().ok_or_else(|| "setup: no prometheus and promtool on the PATH".to_owned())
}

/// A folder on the PATH with Prometheus and promtool.
pub fn find_prometheus() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .find(|folder| ["prometheus", "promtool"].iter().all(|it| folder.join(it).is_file()))
}

pub fn installed_browser() -> Result<PathBuf, String> {
    find_browser().ok_or_else(|| format!("setup: none of {} is on the PATH", BROWSERS.join(", ")))
}

pub fn find_browser() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut programs =
        BROWSERS.iter().flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name)));
    programs.find(|program| program.is_file())
}

fn is_whole(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "psql"].iter().all(|program| folder.join(program).is_file())
}
