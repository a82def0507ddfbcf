//! A process of this library (`tests/worker`).

use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The path of an example of this crate. Cargo builds examples beside the folder of the test binary.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().and_then(|deps| deps.parent()).expect("in target/").join("examples").join(name)
}

/// Ends with the test, which closes its stdin.
pub struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub fn start(arguments: &[&str]) -> Self {
        Self::with_env(arguments, &[])
    }

    pub fn with_env(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let program = program("worker");
        let mut child = Command::new(&program)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    pub async fn line(&mut self) -> String {
        let line = self.lines.next_line().await.expect("utf-8").expect("the worker is still running");
        super::canary::search("the output of a worker", &line);
        line
    }

    /// Adds lines to `text` up to one that contains `mark`, and returns the rest of that line.
    pub async fn until(&mut self, mark: &str, text: &mut String) -> String {
        loop {
            let line = self.line().await;
            text.push_str(&line);
            text.push('\n');
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.to_owned();
            }
        }
    }

    pub async fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").await.expect("the worker is running");
    }

    pub fn pid(&self) -> i32 {
        self.child.id().and_then(|id| id.try_into().ok()).expect("the worker is running")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid()).expect("a pid is not 0");
        kill_process(pid, signal).expect("the worker can be signalled");
    }

    /// `SIGKILL`.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the worker can be killed");
    }
}
