//! The processes of a campaign: Rust clients, the fault proxy, a Java peer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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
    /// The library that moves a process's wall clock, and the file that says by how much.
    pub clock: Option<(PathBuf, PathBuf)>,
}

impl Recipe {
    /// `number` is never used again. The first client is the one whose wall clock can be moved.
    pub fn client(&self, index: usize, number: u64, port: u16) -> Result<Process, String> {
        let mut command = Command::new(&self.program);
        command.arg("client").arg(format!("redis://torture:{PASSWORD}@127.0.0.1:{port}")).arg(&self.folder);
        command.args([index as u64, number, self.seed, self.lease_ms].map(|number| number.to_string()));
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

/// Threads of a real Redisson.
pub const JAVA_THREADS: u64 = 2;

pub fn java(peer: &Path, folder: &Path, port: u16, seed: u64, lease_ms: u64) -> Result<Process, String> {
    let mut command = Command::new("java");
    command.arg(format!("@{}", peer.join("java.args").display()));
    let mut java = Process::start("java", &mut command)?;
    // Where the watchdog's lease is always 30 s, fixed ones are used.
    let mut fixed = 0;
    java.say(&format!("c java 0 connect 127.0.0.1:{port} {lease_ms}"))?;
    java.hear("c at ", PATIENCE)?;
    if java.hear("c ", PATIENCE)?.starts_with("err") {
        fixed = lease_ms;
        java.say(&format!("c java 0 connect 127.0.0.1:{port} 0"))?;
        java.hear("c ok", PATIENCE)?;
    }
    for thread in 0..JAVA_THREADS {
        let number = 200 + thread;
        let folder = folder.display();
        java.say(&format!("t{thread} java {thread} contend {folder} {number} {} {fixed}", seed ^ number))?;
    }
    Ok(java)
}

/// Ends the threads, each after the hold it has or waits for.
pub fn stop_java(java: &mut Process) -> Result<(), String> {
    java.say("s java stop stopContending")?;
    let mut ended = 0;
    while ended < JAVA_THREADS {
        let line = java.hear("t", PATIENCE * 3)?;
        match line.split(' ').nth(1) {
            Some("ok") => ended += 1,
            Some("err") => return Err(format!("java: {line}")),
            _ => {}
        }
    }
    Ok(())
}
