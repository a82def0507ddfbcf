//! Fetches what tests need besides a server and Java: other servers, the locks of other languages, and a viewer of traces, which
//! are stored under `target/others`. Also finds PostgreSQL, Prometheus and a browser, and builds whole programs. An environment
//! variable may name an existing one of each.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{cached_folder, pip, run_checked};
use crate::needs::{BROWSER, CLI, GRAFANA, NODE, Needs, POSTGRES, PROMETHEUS, PYTHON, WHOLE_PROGRAMS};
use crate::paths::{at, root};
use crate::programs;
use crate::server_versions;

/// Fetches what `needs` lists. Returns the settings with their paths.
pub fn run(needs: &Needs) -> Result<Vec<(String, PathBuf)>, String> {
    let mut all = Vec::new();
    for server in &server_versions::FETCHED {
        let setting = server.setting();
        if needs.contains(&setting) {
            let program = chosen_or(&setting, || server.fetch())?;
            all.push((setting, program));
        }
    }
    let others = [
        (PYTHON, fetch_python as fn() -> _),
        (NODE, fetch_node),
        (POSTGRES, programs::installed_postgres),
        (WHOLE_PROGRAMS, programs::build),
        (PROMETHEUS, programs::installed_prometheus),
        (GRAFANA, fetch_grafana),
        (CLI, programs::build_cli),
        (BROWSER, programs::installed_browser),
    ];
    for (setting, fetch) in others {
        if needs.contains(setting) {
            all.push((setting.to_owned(), chosen_or(setting, fetch)?));
        }
    }
    for (setting, path) in &all {
        println!("setup: {setting} {}", path.display());
    }
    Ok(all)
}

fn chosen_or(setting: &str, fetch: impl FnOnce() -> Result<PathBuf, String>) -> Result<PathBuf, String> {
    match env::var_os(setting) {
        Some(chosen) if Path::new(&chosen).exists() => Ok(chosen.into()),
        Some(chosen) => {
            Err(format!("setup: {setting} is {}, which does not exist", Path::new(&chosen).display()))
        }
        None => fetch().map_err(|error| {
            format!("{error}\nsetup: to use your own, set {setting} to its path and run this command again")
        }),
    }
}

fn fetch_python() -> Result<PathBuf, String> {
    fetch_by_pip("python", "tests/peers/requirements.txt")
}

/// Grafana's own library for dashboards.
fn fetch_grafana() -> Result<PathBuf, String> {
    fetch_by_pip("grafana", "tests/dashboard/requirements.txt")
}

/// pip follows the requirements, which have a hash for each package.
fn fetch_by_pip(name: &str, requirements: &str) -> Result<PathBuf, String> {
    let requirements = root().join(requirements);
    let made_of = fs::read_to_string(&requirements).map_err(at(&requirements))?;
    cached_folder(name, &made_of, |folder| {
        let mut install = pip("install");
        install.args(["--require-hashes", "--no-deps", "--only-binary=:all:", "--target"]).arg(folder);
        run_checked(install.arg("-r").arg(&requirements))
    })
}

/// npm follows the lock file, which has a hash for each package. No package may run its own scripts.
fn fetch_node() -> Result<PathBuf, String> {
    let files = ["package.json", "package-lock.json"];
    let sources = files.map(|file| root().join("tests/peers").join(file));
    let mut made_of = String::new();
    for source in &sources {
        made_of += &fs::read_to_string(source).map_err(at(source))?;
    }
    let folder = cached_folder("node", &made_of, |folder| {
        for (file, source) in files.iter().zip(&sources) {
            fs::copy(source, folder.join(file)).map_err(at(source))?;
        }
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        run_checked(Command::new("npm").args(options).current_dir(folder))
    })?;
    Ok(folder.join("node_modules"))
}
