//! A process that does what it is told on its stdin, and tells on its stdout. It ends when its stdin does.

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
        Ok(Self { label: label.to_owned(), child, lines, beat })
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
