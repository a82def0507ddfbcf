//! The contending processes, and the protocols of their pipes.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::{COUNTER, COUNTER64, Event, LEASE, LOCK, LOCK64, Message, Step, THREADS, TIMEOUT, contender};
use crate::server::Server;

/// A process with contenders. It exits when its stdin closes, so it also exits when the demo is killed.
pub struct Process {
    label: String,
    pub language: Language,
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    /// The owner ids of its threads, where they are known from the start.
    pub owners: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Language {
    Java,
    Rust,
}

impl Process {
    pub fn java(peer: &Path, server: &Server) -> Result<Self, String> {
        let mut java = Command::new("java");
        java.arg(format!("@{}", peer.join("java.args").display()));
        let mut process = Self::start("java".to_owned(), Language::Java, &mut java)?;
        let connect = format!("connect 127.0.0.1:{}", server.port);
        let uuid = match process.request_java(0, &format!("{connect} {}", LEASE.as_millis())) {
            Err(error) if error.contains("no setLockWatchdogTimeout") => {
                println!("demo: this version always uses leases of 30 s, so no renewals will be shown");
                process.request_java(0, &format!("{connect} 0"))?
            }
            outcome => outcome?,
        };
        process.request_java(0, "events on")?;
        for thread in 0..THREADS {
            let id = process.request_java(thread, "owner")?;
            process.owners.push(format!("{uuid}:{id}"));
        }
        Ok(process)
    }

    pub fn rust(number: usize, server: &Server) -> Result<Self, String> {
        let mut rust = contender("run");
        rust.args(["--", &format!("redis://127.0.0.1:{}", server.port), LOCK, COUNTER]);
        rust.arg(LEASE.as_millis().to_string());
        let mut process = Self::start(format!("rust/{number}"), Language::Rust, &mut rust)?;
        match process.line()?.as_str() {
            "ready" => Ok(process),
            line => Err(format!("{}: {line}", process.label)),
        }
    }

    fn start(label: String, language: Language, command: &mut Command) -> Result<Self, String> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{label}: {error}"))?;
        let lines = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        Ok(Self { label, language, child, lines, owners: Vec::new() })
    }

    pub fn label_of(&self, thread: usize) -> String {
        let kind = if self.language == Language::Java { "thread" } else { "task" };
        format!("{}/{kind}-{}", self.label, thread + 1)
    }

    /// Sends a request that does not wait for a lock, and returns the reply.
    fn request_java(&mut self, thread: usize, command: &str) -> Result<String, String> {
        self.send(&format!("- java {thread} {command}"))?;
        loop {
            let line = self.line()?;
            match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
                [_, "at", ..] => {}
                [_, "ok", _, value] => return Ok(value.to_owned()),
                _ => return Err(format!("{}: {line}", self.label)),
            }
        }
    }

    /// The first and the last request of a turn have ids of their own: see [`parse_java`].
    pub fn take_turn(&mut self, thread: usize, count: usize, hold: Duration) -> Result<(), String> {
        let us = hold.as_micros();
        let add = format!("java {thread} loop plain {LOCK64} 1 {COUNTER64} {us}");
        match (self.language, count) {
            (Language::Rust, _) => self.send(&format!("{thread} {count} {us}")),
            (Language::Java, 1) => self.send(&format!("{thread}.turn {add}")),
            (Language::Java, _) => {
                self.send(&format!("{thread}.lock java {thread} lock plain {LOCK64}"))?;
                self.send(&format!("{thread}.again {add}"))?;
                self.send(&format!("{thread}.unlock java {thread} unlock plain {LOCK64}"))
            }
        }
    }

    fn send(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped and stays open");
        stdin.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("{}: {error}", self.label))
    }

    fn line(&mut self) -> Result<String, String> {
        match self.lines.as_mut().and_then(Iterator::next) {
            Some(Ok(line)) => Ok(line),
            _ => Err(format!("{} exited before it was ready", self.label)),
        }
    }

    /// Starts a thread that reads the process's lines. Its first thread is contender `first`.
    pub fn listen(&mut self, first: usize, sender: Sender<Message>) {
        let parse = if self.language == Language::Java { parse_java } else { parse_rust };
        let (lines, label) = (self.lines.take(), self.label.clone());
        thread::spawn(move || {
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                let Some(steps) = parse(&line) else {
                    let _ = sender.send(Message::Problem(format!("{label}: {line}")));
                    continue;
                };
                for (thread, ns, step) in steps {
                    let _ = sender.send(Message::Event(ns, Event::Step { id: first + thread, step }));
                }
            }
            // Nobody receives this after the demo.
            let _ = sender.send(Message::Problem(format!("{label} exited too early")));
        });
    }

    pub fn end(&mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("{} exited with {status}", self.label)),
                Err(error) => return Err(format!("{}: {error}", self.label)),
            }
        }
        Err(format!("{} did not exit in time", self.label))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Steps = Vec<(usize, u64, Step)>;

/// Parses `<task> <step> <ns> <owner>`. Returns `None` for an unexpected line.
fn parse_rust(line: &str) -> Option<Steps> {
    let [task, step, ns, owner] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
    let step = match step {
        "waits" => Step::Waits,
        "holds" => Step::Holds(Some(owner.to_owned())),
        "ends" => Step::Ends,
        "freed" => Step::Freed,
        _ => return None,
    };
    Some(vec![(task.parse().ok()?, ns.parse().ok()?, step)])
}

/// Parses the replies and events that `tests/redisson` documents.
fn parse_java(line: &str) -> Option<Steps> {
    let words: Vec<&str> = line.split(' ').collect();
    if let ["*", _, thread, event, ns, _] = words[..] {
        let held = (thread.parse().ok()?, ns.parse().ok()?, Step::Holds(None));
        return Some(if event == "holding" { vec![held] } else { Vec::new() });
    }
    let [id, outcome, ns, ref value @ ..] = words[..] else { return None };
    let (thread, request) = id.split_once('.')?;
    let (thread, ns) = (thread.parse().ok()?, ns.parse().ok()?);
    Some(match (request, outcome) {
        ("turn" | "lock", "at") => vec![(thread, ns, Step::Waits)],
        ("lock", "ok") => vec![(thread, ns, Step::Holds(None))],
        ("again", "at" | "ok") => Vec::new(),
        ("unlock", "at") => vec![(thread, ns, Step::Ends)],
        ("unlock", "ok") => vec![(thread, ns, Step::Freed)],
        ("turn", "ok") => {
            let end = value.first()?.split_once(':')?.1.parse().ok()?;
            vec![(thread, end, Step::Ends), (thread, ns, Step::Freed)]
        }
        _ => return None,
    })
}
