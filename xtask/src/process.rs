//! A child process that reads commands from stdin and writes replies to stdout. It exits when its stdin closes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

pub struct Process {
    pub label: String,
    child: Child,
    lines: Receiver<String>,
    /// The latest `beat` line.
    beat: Arc<Mutex<String>>,
}

impl Process {
    pub fn start(label: &str, command: &mut Command) -> Result<Self, String> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{label}: {error}"))?;
        let (sender, lines) = channel();
        let beat = Arc::new(Mutex::default());
        let stdout = child.stdout.take().expect("it is piped");
        thread::spawn({
            let beat = Arc::clone(&beat);
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if line.starts_with("beat ") {
                        *beat.lock().unwrap_or_else(PoisonError::into_inner) = line;
                    } else if sender.send(line).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { label: label.to_owned(), child, lines, beat })
    }

    pub fn send(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.child.stdin.as_mut().expect("stdin is piped and stays open");
        stdin.write_all(format!("{line}\n").as_bytes()).map_err(|error| format!("{}: {error}", self.label))
    }

    /// Waits for the next line that begins with `mark`, and returns the rest of it.
    pub fn wait_for(&mut self, mark: &str, timeout: Duration) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(timeout) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(mark) {
                        return Ok(rest.trim().to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("{} did not print {mark:?} in time", self.label));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(format!("{} has exited", self.label)),
            }
        }
    }

    /// A number of the latest `beat` line, counted from 0.
    pub fn beat(&self, at: usize) -> u64 {
        let beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        beat.split(' ').nth(at + 1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    pub fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).ok_or("no pid")?;
        kill_process(process, signal).map_err(|error| format!("{}: {error}", self.label))
    }

    /// Sends `SIGKILL`, and waits until the process is gone.
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
