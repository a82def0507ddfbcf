//! Starts the processes of a campaign: the Rust clients, the fault proxy, and a Java peer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::keys::{self, FAIR_WAIT_MS};
use crate::process::Process;

/// How long a process may take to answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The settings that all clients are started with.
pub struct Recipe {
    /// The program of `tests/chaos`.
    pub program: PathBuf,
    pub folder: PathBuf,
    pub seed: u64,
    pub lease_ms: u64,
    pub kinds: Vec<&'static str>,
    /// Whether an acquire counts only once replicas have it, where there are any.
    pub replicated: bool,
    /// The library that moves a process's wall clock, and the file with the offset.
    pub clock: Option<(PathBuf, PathBuf)>,
}

impl Recipe {
    /// `number` is never reused. Only the first client's wall clock can be moved.
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

    /// Starts the proxy, and returns its ports, one for each of `count` clients.
    pub fn proxy(&self, server: u16, count: usize) -> Result<(Process, Vec<u16>), String> {
        let mut command = Command::new(&self.program);
        command.args(["proxy", &server.to_string(), &count.to_string()]);
        let mut proxy = Process::start("proxy", &mut command)?;
        let ports = proxy.wait_for("", TIMEOUT)?;
        let ports: Vec<u16> = ports.split(' ').filter_map(|port| port.parse().ok()).collect();
        if ports.len() == count {
            Ok((proxy, ports))
        } else {
            Err(format!("expected {count} ports from the proxy, got {ports:?}"))
        }
    }
}

/// The password of the clients' user.
pub const PASSWORD: &str = "first";

/// Java threads for the hot keys, and for the keys of all other kinds.
const HOT_THREADS: u64 = 2;
const OTHER_THREADS: u64 = 3;

/// A real Redisson that takes part in the campaign.
pub struct Java {
    process: Process,
    /// The prefix of its owner ids.
    pub id: String,
    threads: u64,
}

/// `kinds` are the kinds that this version supports.
pub fn java(peer: &Path, recipe: &Recipe, address: &str, kinds: &[&'static str]) -> Result<Java, String> {
    let Recipe { folder, seed, lease_ms, .. } = recipe;
    let mut command = Command::new("java");
    command.arg(format!("@{}", peer.join("java.args").display()));
    let mut java = Process::start("java", &mut command)?;
    // Versions whose watchdog lease is always 30 s use fixed leases.
    let mut fixed = 0;
    let settings = format!("fairLockWaitTimeout={FAIR_WAIT_MS} codec=StringCodec");
    let settings = if kinds == ["reentrant"] { String::new() } else { format!(" {settings}") };
    java.send(&format!("c java 0 connect {address} {lease_ms}{settings}"))?;
    java.wait_for("c at ", TIMEOUT)?;
    let mut answer = java.wait_for("c ", TIMEOUT)?;
    if answer.starts_with("err") {
        fixed = *lease_ms;
        java.send(&format!("c java 0 connect {address} 0"))?;
        java.wait_for("c at ", TIMEOUT)?;
        answer = java.wait_for("c ", TIMEOUT)?;
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
            java.send(&format!(
                "t{threads} java {threads} contend {folder} {number} {} {fixed} {kinds}",
                seed ^ number
            ))?;
            threads += 1;
        }
    }
    Ok(Java { process: java, id, threads })
}

impl Java {
    /// Stops the threads. Each one first ends its hold, or the hold that it waits for.
    pub fn stop(&mut self) -> Result<(), String> {
        self.process.send("s java stop stopContending")?;
        let mut ended = 0;
        while ended < self.threads {
            let line = self.process.wait_for("t", TIMEOUT * 3)?;
            match line.split(' ').nth(1) {
                Some("ok") => ended += 1,
                Some("err") => return Err(format!("java: {line}")),
                _ => {}
            }
        }
        Ok(())
    }
}
