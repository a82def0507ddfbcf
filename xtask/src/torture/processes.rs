//! The processes of a campaign: Rust clients, the fault proxy, a Java peer. Each ends when its stdin does.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::history::{Word, kept};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything that must be said may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Process {
    pub label: Word,
    child: Child,
    lines: Receiver<String>,
    /// The last `beat` line.
    beat: Arc<Mutex<String>>,
}

impl Process {
    pub fn start(label: &str, command: &mut Command) -> Result<Self, String> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{label}: {error}"))?;
        let (tell, lines) = channel();
        let beat = Arc::new(Mutex::default());
        let stdout = child.stdout.take().expect("it is piped");
        thread::spawn({
            let beat = Arc::clone(&beat);
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if line.starts_with("beat ") {
                        *beat.lock().unwrap_or_else(PoisonError::into_inner) = line;
                    } else if tell.send(line).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { label: kept(label), child, lines, beat })
    }

    pub fn say(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.child.stdin.as_mut().expect("it is piped, and open until the end");
        stdin.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("{}: {error}", self.label))
    }

    /// The next line that begins with `mark`, without it.
    pub fn hear(&mut self, mark: &str, patience: Duration) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(patience) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(mark) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{} does not say {mark:?}", self.label));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{} has ended", self.label)),
            }
        }
    }

    /// A number of the last beat, counted from 0.
    pub fn beat(&self, at: usize) -> u64 {
        let beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        beat.split(' ').nth(at + 1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no pid")?;
        kill_process(process, signal).map_err(|error| format!("{}: {error}", self.label))
    }

    /// `SIGKILL`; it is gone when this returns.
    pub fn kill(&mut self) -> Result<(), String> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map_err(|error| format!("{}: {error}", self.label))?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
