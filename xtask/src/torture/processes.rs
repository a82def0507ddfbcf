//! The processes of a campaign: Rust clients, the fault proxy, a Java peer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::keys::{self, FAIR_WAIT_MS};
use crate::process::Process;

/// How long anything that must be said may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// What every client is started with.
pub struct Recipe {
    /// The program `tests/torture`.
    pub program: PathBuf,
    pub folder: PathBuf,
    pub seed: u64,
    pub lease_ms: u64,
    pub kinds: Vec<&'static str>,
    /// Whether acquires count only once replicas have them, where there are any.
    pub replicated: bool,
    /// The library that moves a process's wall clock, and the file that says by how much.
    pub clock: Option<(PathBuf, PathBuf)>,
}

impl Recipe {
    /// `number` is never used again. The first client is the one whose wall clock can be moved.
    pub fn client(&self, index: usize, number: u64, url: &str) -> Result<Process, String> {
        let mut command = Command::new(&self.program);
        command.arg("client").arg(url).arg(&self.folder);
        command.args([index as u64, number, self.seed, self.lease_ms].map(|number| number.to_string()));
        command.arg(self.kinds.join(",")).arg(if self.replicated { "any" } else { "none" });
        if let (0, Some((library, file))) = (index, &self.clock) {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", file)
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        Process::start(&format!("rust{index}"), &mut command)
    }

    /// The proxy and its ports, one for each of `count`.
    pub fn proxy(&self, server: u16, count: usize) -> Result<(Process, Vec<u16>), String> {
        let mut command = Command::new(&self.program);
        command.args(["proxy", &server.to_string(), &count.to_string()]);
        let mut proxy = Process::start("proxy", &mut command)?;
        let ports = proxy.hear("", PATIENCE)?;
        let ports: Vec<u16> = ports.split(' ').filter_map(|port| port.parse().ok()).collect();
        if ports.len() == count { Ok((proxy, ports)) } else { Err(format!("the proxy says {ports:?}")) }
    }
}

/// Of the user that the clients are.
pub const PASSWORD: &str = "first";

/// Threads of a real Redisson: for the hot keys, and for those of all other kinds.
const HOT_THREADS: u64 = 2;
const OTHER_THREADS: u64 = 3;

/// A Redisson that contends.
pub struct Java {
    process: Process,
    /// By which its owners begin.
    pub id: String,
    threads: u64,
}

/// `kinds` are those that this version has.
pub fn java(peer: &Path, recipe: &Recipe, address: &str, kinds: &[&'static str]) -> Result<Java, String> {
    let Recipe { folder, seed, lease_ms, .. } = recipe;
    let mut command = Command::new("java");
    command.arg(format!("@{}", peer.join("java.args").display()));
    let mut java = Process::start("java", &mut command)?;
    // Where the watchdog's lease is always 30 s, fixed ones are used.
    let mut fixed = 0;
    let settings = format!("fairLockWaitTimeout={FAIR_WAIT_MS} codec=StringCodec");
    let settings = if kinds == ["reentrant"] { String::new() } else { format!(" {settings}") };
    java.say(&format!("c java 0 connect {address} {lease_ms}{settings}"))?;
    java.hear("c at ", PATIENCE)?;
    let mut answer = java.hear("c ", PATIENCE)?;
    if answer.starts_with("err") {
        fixed = *lease_ms;
        java.say(&format!("c java 0 connect {address} 0"))?;
        java.hear("c at ", PATIENCE)?;
        answer = java.hear("c ", PATIENCE)?;
    }
    let (true, Some(id)) = (answer.starts_with("ok"), answer.split(' ').nth(2)) else {
        return Err(format!("java: {answer}"));
    };
    let id = id.to_owned();
    let mut threads = 0;
    let word = |kind: &str| format!("{kind}={}", keys::cell(kind, 0));
    let others: Vec<_> = kinds.iter().filter(|kind| **kind != "reentrant").map(|kind| word(kind)).collect();
    let hot = kinds.iter().filter(|kind| **kind == "reentrant").map(|kind| word(kind)).collect();
    for (some, of_those) in [(hot, HOT_THREADS), (others, OTHER_THREADS)] {
        for _ in 0..if some.is_empty() { 0 } else { of_those } {
            let number = 200 + threads;
            let (folder, kinds) = (folder.display(), some.join(","));
            java.say(&format!(
                "t{threads} java {threads} contend {folder} {number} {} {fixed} {kinds}",
                seed ^ number
            ))?;
            threads += 1;
        }
    }
    Ok(Java { process: java, id, threads })
}

impl Java {
    /// Ends the threads, each after the hold it has or waits for.
    pub fn stop(&mut self) -> Result<(), String> {
        self.process.say("s java stop stopContending")?;
        let mut ended = 0;
        while ended < self.threads {
            let line = self.process.hear("t", PATIENCE * 3)?;
            match line.split(' ').nth(1) {
                Some("ok") => ended += 1,
                Some("err") => return Err(format!("java: {line}")),
                _ => {}
            }
        }
        Ok(())
    }
}
