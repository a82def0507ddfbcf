//! The server and the contenders. They live through all scenarios, because a JVM needs time to become fast.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::sample::Sample;
use crate::cargo;
use crate::cluster;
use crate::paths;
use crate::process::Process;
use crate::server::Server;

const TIMEOUT: Duration = Duration::from_secs(300);
/// How long a client may take to unsubscribe after a measurement.
const SILENT_WITHIN: Duration = Duration::from_secs(10);

/// Redisson with a connection for each worker of the largest scenario, and only as many threads as the processors can use.
/// By default it has 64 connections, of which it opens 24 at first, and 32 threads.
pub const TUNED: &str = "Redisson, tuned";
pub const TUNED_POOL: usize = 256;

pub fn tuned_threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, usize::from)
}

/// A user without RESTORE and MULTI, so that this library uses only scripts.
const ONLY_SCRIPTS: &str = "scripts";

pub struct Testbed {
    program: PathBuf,
    pub server: Server,
    clusters: Vec<Server>,
    /// The arguments of the contenders that do not use the single server.
    elsewhere: BTreeMap<&'static str, [String; 2]>,
    contenders: PathBuf,
    java: PathBuf,
    processes: BTreeMap<String, Process>,
}

/// This library without its counters.
pub const UNCOUNTED: &str = "ours, uncounted";

/// Builds `benches/contenders`, and returns its program.
pub fn build() -> Result<PathBuf, String> {
    println!("bench: building benches/contenders");
    built(cargo("contenders", "build", "contenders"))
}

/// Builds it with the library's counters left out.
fn build_uncounted() -> Result<PathBuf, String> {
    println!("bench: building benches/contenders without counters");
    let (mut cargo, target) = cargo("contenders", "build", "contenders-uncounted");
    cargo.env("RUSTFLAGS", "--cfg uncounted");
    built((cargo, target))
}

fn built((mut cargo, target): (Command, PathBuf)) -> Result<PathBuf, String> {
    let status = cargo.status().map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("bench: the build of benches/contenders failed".to_owned());
    }
    Ok(target.join("release/contenders"))
}

/// Runs `benches/local`, and returns its output.
pub fn local() -> Result<String, String> {
    let (mut cargo, _) = cargo("local", "run", "local");
    let output = cargo
        .args(["--", "--bench"])
        .env("RUSTFLAGS", "--cfg measuring")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("bench: benches/local failed".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(|line| format!("{}\n", line.trim_end())).collect())
}

/// Runs cargo in a folder of `benches`, with this folder for what it builds. Each folder is its own workspace.
fn cargo(folder: &str, what: &str, target: &str) -> (Command, PathBuf) {
    let target = paths::target().join(target);
    let mut cargo = cargo::cargo();
    cargo
        .args([what, "--quiet", "--release", "--locked", "--target-dir"])
        .arg(&target)
        .current_dir(paths::root().join("benches").join(folder));
    (cargo, target)
}

impl Testbed {
    pub fn start(server: &Path, contenders: PathBuf, java: PathBuf) -> Result<Self, String> {
        let program = server.to_owned();
        let server = Server::start(server, &["--slowlog-log-slower-than", "1000", "--maxclients", "20000"])?;
        let testbed = Self {
            program,
            server,
            contenders,
            java,
            processes: BTreeMap::new(),
            clusters: Vec::new(),
            elsewhere: BTreeMap::new(),
        };
        testbed.call(&[
            "ACL",
            "SETUSER",
            ONLY_SCRIPTS,
            "on",
            ">pw",
            "~*",
            "&*",
            "+@all",
            "-restore",
            "-multi",
        ])?;
        Ok(testbed)
    }

    pub fn call(&self, words: &[&str]) -> Result<Vec<String>, String> {
        self.server.call(words, TIMEOUT)
    }

    /// Waits until nobody subscribes to anything. Otherwise the next library would share its lock with that client, or pay for its messages.
    pub fn wait_for_silence(&self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let channels = self.call(&["PUBSUB", "CHANNELS", "*"])?;
            if channels.is_empty() {
                return Ok(());
            }
            if began.elapsed() > SILENT_WITHIN {
                return Err(format!("clients of an earlier measurement still subscribe to {channels:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process of that name: a library, with `/` and a suffix where it has several.
    pub fn process(&mut self, name: &str) -> Result<&mut Process, String> {
        if !self.processes.contains_key(name) {
            let process = self.spawn(name)?;
            self.processes.insert(name.to_owned(), process);
        }
        Ok(self.processes.get_mut(name).expect("it was just inserted"))
    }

    /// Starts a cluster, and registers a contender with sharded and one with plain messages.
    pub fn add_cluster(&mut self, masters: usize, names: [&'static str; 2]) -> Result<(), String> {
        let started: Vec<Server> = (0..masters)
            .map(|_| Server::start(&self.program, &["--cluster-enabled", "yes"]))
            .collect::<Result<_, _>>()?;
        cluster::join(&started.iter().collect::<Vec<_>>(), &[])?;
        let hosts: Vec<_> = started.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        let url = format!("redis-cluster://{}", hosts.join(","));
        for (name, library) in names.into_iter().zip(["sharded", "unsharded"]) {
            self.elsewhere.insert(name, [library.to_owned(), url.clone()]);
        }
        self.clusters.extend(started);
        Ok(())
    }

    pub fn remove_clusters(&mut self) {
        for (name, _) in std::mem::take(&mut self.elsewhere) {
            self.stop(name);
        }
        self.clusters.clear();
    }

    fn spawn(&self, name: &str) -> Result<Process, String> {
        let port = self.server.port;
        let library = name.split('/').next().unwrap_or(name);
        let mut command = match library {
            "Redisson" | TUNED => {
                let mut command = Command::new("java");
                command.arg(format!("@{}", self.java.display())).arg(format!("redis://127.0.0.1:{port}"));
                if library == TUNED {
                    command.args([TUNED_POOL, tuned_threads()].map(|number| number.to_string()));
                }
                command
            }
            _ => {
                let mut command = match library {
                    UNCOUNTED => Command::new(build_uncounted()?),
                    _ => Command::new(&self.contenders),
                };
                match library {
                    elsewhere if self.elsewhere.contains_key(elsewhere) => {
                        command.args(&self.elsewhere[elsewhere])
                    }
                    "ours, scripts" => {
                        command.args(["ours", &format!("redis://{ONLY_SCRIPTS}:pw@127.0.0.1:{port}")])
                    }
                    UNCOUNTED => command.args(["ours", &format!("redis://127.0.0.1:{port}")]),
                    "ours, observed" => command.args(["observed", &format!("redis://127.0.0.1:{port}")]),
                    "ours, metrics" => command.args(["metrics", &format!("redis://127.0.0.1:{port}")]),
                    "ours, pipelined" => command.args(["pipelined", &format!("redis://127.0.0.1:{port}")]),
                    "raw, no Lua" => command.args(["native", &format!("redis://127.0.0.1:{port}")]),
                    _ => command.args([library, &format!("redis://127.0.0.1:{port}")]),
                };
                command
            }
        };
        let mut process = Process::start(name, &mut command)?;
        process.wait_for("ready", TIMEOUT)?;
        Ok(process)
    }

    pub fn stop(&mut self, name: &str) {
        self.processes.remove(name);
    }

    pub fn send(&mut self, name: &str, command: &str) -> Result<(), String> {
        self.process(name)?.send(command)
    }

    pub fn wait_for(&mut self, name: &str, word: &str) -> Result<String, String> {
        self.process(name)?.wait_for(word, TIMEOUT)
    }

    /// Runs `command` on `name`. Returns the reported figures and the server's usage.
    pub fn measure(&mut self, name: &str, command: &str) -> Result<Sample, String> {
        self.send(name, command)?;
        self.wait_for(name, "begin")?;
        let before = self.spent()?;
        let mut sample = Sample::read(&self.wait_for(name, "end")?);
        self.spent()?.into_iter().for_each(|(key, value)| {
            sample.set(&key, value - before.get(&key).copied().unwrap_or_default());
        });
        self.wait_for(name, "done")?;
        Ok(sample)
    }

    /// The CPU time of all servers in seconds, the calls of each command, and the number of reads from clients. A client that sends
    /// one request at a time causes one read for each request.
    pub fn spent(&self) -> Result<BTreeMap<String, f64>, String> {
        let mut spent = BTreeMap::new();
        let servers = || [&self.server].into_iter().chain(&self.clusters);
        let sections = ["cpu", "commandstats", "stats"];
        for (server, section) in servers().flat_map(|server| sections.map(|section| (server, section))) {
            let text = server.call(&["INFO", section], TIMEOUT)?.concat();
            for line in text.lines() {
                let Some((name, value)) = line.split_once(':') else { continue };
                match name.strip_prefix("cmdstat_") {
                    Some(command) => {
                        let calls = value.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
                        *spent.entry(format!("server.{command}")).or_default() +=
                            parsed(calls.unwrap_or_default());
                    }
                    None if name == "used_cpu_user" || name == "used_cpu_sys" => {
                        *spent.entry("server.cpu".to_owned()).or_default() += parsed(value);
                    }
                    None if name == "total_reads_processed" => {
                        *spent.entry("server.reads".to_owned()).or_default() += parsed(value);
                    }
                    None => {}
                }
            }
        }
        Ok(spent)
    }
}

fn parsed(text: &str) -> f64 {
    text.trim().parse().unwrap_or_default()
}
