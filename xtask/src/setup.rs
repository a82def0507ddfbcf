//! Installs what the tests need. If that is impossible, it fails with the commands to run by hand.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{self, Path, PathBuf};
use std::process::Command;

use crate::downloads;
use crate::needs::{
    self, BROWSER, FAKETIME_SETTING, GRAFANA, JAVA, NODE, Needs, POSTGRES, PROMETHEUS, PYTHON,
};
use crate::paths::{at, read, remove, root, target};
use crate::programs;
use crate::server_versions::{self, Unsupported};

/// The versions of Redisson that the tests run against. This is the only such list.
const REDISSON_VERSIONS: [&str; 4] = ["3.3.2", "3.10.1", "3.52.0", "4.7.0"];

/// Debian's `redis-tools` contains the whole server under this name: it is one program, which acts by the name that it is
/// called by. The package `redis-server` only adds a link and a system service, which the tests do not want.
const SERVER_IN_TOOLS: &str = "/usr/bin/redis-check-rdb";

/// The folder of the Java programs.
const PEERS: &str = "REDISSON_LOCK_PEERS";

/// Changes the clock of one program.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";

/// Old versions of Redisson reflect on classes that Java 17 closes.
const OPENED_PACKAGES: [&str; 8] = [
    "java.lang",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
];

/// A Java program that uses Redisson.
pub struct Java {
    /// The folder of its sources, and the folder under `target` of its builds.
    sources: &'static str,
    builds: &'static str,
    class: &'static str,
    options: &'static str,
}

const PEER: Java = Java {
    sources: "tests/redisson/src/main/java",
    builds: "redisson",
    class: "Peer",
    options: "-XX:+UseSerialGC",
};

/// Runs with the default settings of the JVM.
pub const BENCH: Java =
    Java { sources: "benches/redisson", builds: "redisson-bench", class: "Bench", options: "" };

/// The paths and versions that the tests get.
#[derive(Clone)]
pub struct Environment {
    /// The redis-server to run.
    pub server: PathBuf,
    /// Contains a directory for each version of Redisson, with a `java.args` for `java @java.args`.
    pub peers: PathBuf,
    pub versions: Vec<String>,
    /// The library that changes a program's clock, if requested.
    pub faketime: Option<PathBuf>,
    /// Settings that only the tests need, see `downloads`.
    others: Vec<(String, PathBuf)>,
}

impl Environment {
    /// The same environment on another server, and the tests that this server cannot run.
    pub fn on(self, name: &str) -> Result<(Self, Unsupported), String> {
        if name == server_versions::INSTALLED {
            return match server_versions::is_version(&self.server, server_versions::INSTALLED_VERSION_TEXT) {
                true => Ok((self, &[])),
                false => Err(format!("setup: {} is not {name}", self.server.display())),
            };
        }
        let Some(server) = server_versions::FETCHED.iter().find(|server| server.name == name) else {
            let names = server_versions::FETCHED.map(|server| server.name).join(", ");
            return Err(format!(
                "setup: unknown server {name:?}; known are {}, {names}",
                server_versions::INSTALLED
            ));
        };
        let setting = server.setting();
        let program = self.others.iter().find(|(other, _)| *other == setting).map(|(_, path)| path.clone());
        let program = program.ok_or_else(|| format!("setup: {name} was not fetched"))?;
        Ok((Self { server: program, ..self }, server.unsupported))
    }

    /// Passes these settings to `command`, and removes all others.
    pub fn apply_to(&self, command: &mut Command) {
        for setting in needs::all() {
            command.env_remove(setting);
        }
        command.env_remove(PEERS);
        if !self.versions.is_empty() {
            command.env(JAVA, self.versions.join(",")).env(PEERS, &self.peers);
        }
        command
            .env("REDISSON_LOCK_SERVER", &self.server)
            .envs(self.faketime.iter().map(|library| (FAKETIME_SETTING, library)))
            .envs(self.others.iter().map(|(setting, path)| (setting, path)));
    }
}

/// Whether libfaketime is needed.
#[derive(Clone, Copy, PartialEq)]
pub enum Clock {
    Shifted,
    Real,
}

pub fn default_versions() -> Vec<String> {
    REDISSON_VERSIONS.map(str::to_owned).to_vec()
}

/// Installs everything that the tests need.
pub fn for_tests(versions: &[String]) -> Result<Environment, String> {
    for_needs(versions, &needs::all())
}

/// Installs a redis-server and whatever `needs` lists.
pub fn for_needs(versions: &[String], needs: &Needs) -> Result<Environment, String> {
    let versions = if needs.contains(JAVA) { versions } else { &[] };
    let clock = if needs.contains(FAKETIME_SETTING) { Clock::Shifted } else { Clock::Real };
    let environment = run(versions, clock)?;
    install_missing(|| Ok(missing_for_others(needs)))?;
    Ok(Environment { others: downloads::run(needs)?, ..environment })
}

/// Without versions, Java is not installed.
pub fn run(versions: &[String], clock: Clock) -> Result<Environment, String> {
    install_missing(|| missing(!versions.is_empty(), clock))?;
    let server = find_server()?.ok_or("setup: the redis-server disappeared during the set-up")?;
    println!("setup: server {}", server.display());
    let peers = match chosen_peers(versions)? {
        Some(chosen) => {
            println!("setup: REDISSON_LOCK_PEERS {}", chosen.display());
            chosen
        }
        None => {
            for version in versions {
                build_java(&PEER, version)?;
            }
            target().join(PEER.builds)
        }
    };
    Ok(Environment {
        server,
        peers,
        versions: versions.to_vec(),
        faketime: find_faketime().filter(|_| clock == Clock::Shifted),
        others: Vec::new(),
    })
}

struct Need {
    what: &'static str,
    package: &'static str,
    present: bool,
}

fn missing(with_java: bool, clock: Clock) -> Result<Vec<Need>, String> {
    let server = Need { what: "a redis-server", package: "redis-tools", present: find_server()?.is_some() };
    let mut needs = vec![server];
    if with_java {
        let java = major_version("java").min(major_version("javac"));
        needs.push(Need {
            what: "a JDK, version 17 or newer (java and javac)",
            package: "openjdk-17-jdk-headless",
            present: java >= Some(17),
        });
        needs.push(Need { what: "Maven (mvn)", package: "maven", present: on_path("mvn").is_some() });
    }
    if clock == Clock::Shifted {
        needs.push(Need { what: "libfaketime", package: "libfaketime", present: find_faketime().is_some() });
    }
    needs.retain(|need| !need.present);
    Ok(needs)
}

/// PostgreSQL, Prometheus, a browser, and the tools that fetch servers and the libraries of other languages.
fn missing_for_others(needs: &Needs) -> Vec<Need> {
    let mut missing = Vec::new();
    if needs.contains(PYTHON)
        || needs.contains(GRAFANA)
        || server_versions::FETCHED.iter().any(|server| needs.contains(&server.setting()))
    {
        let pip = Command::new("python3").args(["-m", "pip", "--version"]).output();
        let present = pip.is_ok_and(|output| output.status.success());
        missing.push(Need { what: "Python's pip (python3 -m pip)", package: "python3-pip", present });
    }
    if needs.contains(NODE) {
        let node = on_path("node").is_some();
        missing.push(Need { what: "Node.js (node)", package: "nodejs", present: node });
        missing.push(Need { what: "npm", package: "npm", present: on_path("npm").is_some() });
    }
    if needs.contains(POSTGRES) && env::var_os(POSTGRES).is_none() {
        let present = programs::find_postgres().is_some();
        missing.push(Need { what: "PostgreSQL (initdb, pg_ctl and psql)", package: "postgresql", present });
    }
    if needs.contains(PROMETHEUS) && env::var_os(PROMETHEUS).is_none() {
        let present = programs::find_prometheus().is_some();
        missing.push(Need { what: "Prometheus (prometheus and promtool)", package: "prometheus", present });
    }
    if needs.contains(BROWSER) && env::var_os(BROWSER).is_none() {
        let present = programs::find_browser().is_some();
        missing.push(Need { what: "Chromium or Chrome", package: "chromium", present });
    }
    missing.retain(|need| !need.present);
    missing
}

fn install_missing(missing: impl Fn() -> Result<Vec<Need>, String>) -> Result<(), String> {
    let needs = missing()?;
    if needs.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = needs.iter().map(|need| need.package).collect();
    let install = [["install", "--yes", "--no-install-recommends"].as_slice(), &packages].concat();
    let steps = [vec!["update"], install];
    if !is_root() || on_path("apt-get").is_none() {
        return Err(by_hand(&needs, &steps));
    }
    for step in &steps {
        println!("setup: apt-get {}", step.join(" "));
        let status = Command::new("apt-get")
            .args(step)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .map_err(|error| format!("apt-get: {error}"))?;
        if !status.success() {
            return Err(by_hand(&needs, &steps));
        }
    }
    // For example, an older Java comes first on the PATH.
    let needs = missing()?;
    if needs.is_empty() { Ok(()) } else { Err(by_hand(&needs, &steps)) }
}

fn by_hand(missing: &[Need], steps: &[Vec<&str>]) -> String {
    let missing: Vec<&str> = missing.iter().map(|need| need.what).collect();
    let steps: Vec<String> = steps.iter().map(|step| step.join(" ")).collect();
    format!(
        "setup: missing, or not found on the PATH:\n  {}\n\
         install them, on Debian and Ubuntu with\n  sudo apt-get {}\nand run this command again",
        missing.join("\n  "),
        steps.join("\n  sudo apt-get "),
    )
}

/// The server named by the user, else the one on the PATH, else the one inside `redis-tools`.
fn find_server() -> Result<Option<PathBuf>, String> {
    if let Some(chosen) = env::var_os("REDISSON_LOCK_SERVER") {
        // Not `canonicalize`, because the name of the link decides how the program acts.
        let chosen = path::absolute(chosen).map_err(|error| format!("setup: {error}"))?;
        if !chosen.is_file() {
            return Err(format!("setup: REDISSON_LOCK_SERVER is {}, which is not a file", chosen.display()));
        }
        return Ok(Some(chosen));
    }
    if let Some(installed) = on_path("redis-server") {
        return Ok(Some(installed));
    }
    if !Path::new(SERVER_IN_TOOLS).exists() {
        return Ok(None);
    }
    let link = target().join("servers/bin/redis-server");
    if !link.exists() {
        fs::create_dir_all(link.parent().expect("the path above has one")).map_err(at(&link))?;
        match symlink(SERVER_IN_TOOLS, &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(at(&link)(error));
            }
            _ => {}
        }
    }
    Ok(Some(link))
}

/// The library named by the user, else the one that is installed for this architecture.
fn find_faketime() -> Option<PathBuf> {
    if let Some(chosen) = env::var_os("REDISSON_LOCK_FAKETIME") {
        return Some(chosen.into());
    }
    let mut folders: Vec<_> =
        fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.extend(["/usr/lib", "/usr/lib64"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(FAKETIME)).find(|library| library.exists())
}

/// The folder named by the user. It must have every version.
fn chosen_peers(versions: &[String]) -> Result<Option<PathBuf>, String> {
    let Some(chosen) = env::var_os("REDISSON_LOCK_PEERS") else { return Ok(None) };
    let chosen = path::absolute(chosen).map_err(|error| format!("setup: {error}"))?;
    match versions.iter().find(|version| !chosen.join(version).join("java.args").is_file()) {
        None => Ok(Some(chosen)),
        Some(version) => Err(format!(
            "setup: REDISSON_LOCK_PEERS is {}, which has no peer for Redisson {version}",
            chosen.display()
        )),
    }
}

/// Builds a Java program for one version of Redisson. Returns a file for `java @file`.
pub fn build_java(program: &Java, version: &str) -> Result<PathBuf, String> {
    // The version becomes the name of a directory and part of an argument.
    if !version.starts_with(|c: char| c.is_ascii_digit())
        || !version.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
    {
        return Err(format!("setup: {version:?} is not a version of Redisson"));
    }
    let project = root().join("tests/redisson");
    let sources = root().join(program.sources);
    let directory = target().join(program.builds).join(version);
    let arguments = directory.join("java.args");
    let mark = format!("# built from {:016x}", fingerprint(&project, &sources)?);
    if is_up_to_date(&directory, &mark) {
        println!("setup: Redisson {version} is up to date");
        return Ok(arguments);
    }

    println!("setup: building for Redisson {version}");
    // Written last, so that an interrupted build does not count.
    remove(fs::remove_file(&arguments)).map_err(at(&arguments))?;
    let classes = directory.join("classes");
    remove(fs::remove_dir_all(&classes)).map_err(at(&classes))?;
    let maven = Command::new("mvn")
        .args(["--quiet", "--batch-mode", "-Dstyle.color=never"])
        .arg(format!("-Dredisson.version={version}"))
        .arg(format!("-Dpeer.directory={}", directory.display()))
        .arg(format!("-Dpeer.sources={}", sources.display()))
        // Runs two goals instead of a phase, because each plugin of a phase is a download that does nothing here.
        .args(["compiler:compile", "dependency:build-classpath"])
        .current_dir(&project)
        .output()
        .map_err(|error| format!("mvn: {error}"))?;
    if !maven.status.success() {
        return Err(format!(
            "{}{}setup: the build of {} for Redisson {version} failed",
            String::from_utf8_lossy(&maven.stdout),
            String::from_utf8_lossy(&maven.stderr),
            program.sources,
        ));
    }
    let jars = read(&directory.join("classpath"))?;
    let opens =
        OPENED_PACKAGES.map(|package| format!("--add-opens java.base/{package}=ALL-UNNAMED")).join("\n");
    let class_path =
        format!("{}:{}", classes.display(), jars.trim()).replace('\\', r"\\").replace('"', "\\\"");
    let text = format!("{mark}\n{opens}\n{}\n-cp \"{class_path}\"\n{}\n", program.options, program.class);
    fs::write(&arguments, text).map_err(at(&arguments))?;
    Ok(arguments)
}

/// Whether it was built from these sources, and Maven's jars still exist.
fn is_up_to_date(directory: &Path, mark: &str) -> bool {
    let built = fs::read_to_string(directory.join("java.args")).unwrap_or_default();
    let jars = fs::read_to_string(directory.join("classpath")).unwrap_or_default();
    built.lines().next() == Some(mark) && jars.trim().split(':').all(|jar| Path::new(jar).exists())
}

fn fingerprint(project: &Path, sources: &Path) -> Result<u64, String> {
    let mut files = vec![project.join("pom.xml")];
    for entry in fs::read_dir(sources).map_err(at(sources))? {
        files.push(entry.map_err(at(sources))?.path());
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    // The other contents of `java.args`.
    OPENED_PACKAGES.hash(&mut hasher);
    // The class path is absolute.
    project.hash(&mut hasher);
    for file in files {
        file.hash(&mut hasher);
        read(&file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The 17 of `openjdk 17.0.15 2025-04-15`. Java 8 does not know `--version` and counts as missing.
fn major_version(tool: &str) -> Option<u32> {
    let output = Command::new(tool).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
