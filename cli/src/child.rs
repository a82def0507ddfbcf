//! The program of `run`, in a process group of its own, with its guard.

use crate::codes::Codes;
use crate::failure::Failure;
use crate::guard::Message;
use crate::output::say;
use crate::signals::Signals;
use crate::terminal;
use redisson_lock::{HoldState, HoldStatus};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_current_process_group, kill_process_group,
    set_child_subreaper, test_kill_process_group, wait, waitpid,
};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{Instant, sleep};

/// This program, even if its file was replaced.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The variable with the fencing token.
pub const TOKEN: &str = "REDISSON_LOCK_TOKEN";
/// The time that a killed group may take to end.
const KILLING: Duration = Duration::from_secs(1);
/// How often the end of a group is looked for: no event announces it.
const LOOK: Duration = Duration::from_millis(10);

/// A running program.
pub struct Child {
    pid: Pid,
    changes: unix::Signal,
    guard: Option<(std::process::Child, ChildStdin)>,
}

/// A change of the program.
pub enum Change {
    /// It ended.
    Ended(End),
    /// This signal stopped it.
    Stopped(i32),
    /// The system does not tell, so that the program may run on.
    Unknown(Errno),
}

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal {
        /// The number.
        number: i32,
        /// Whether the program was the foreground job of the terminal.
        had_terminal: bool,
    },
}

impl End {
    /// Returns the exit code. The signal of a key also goes to the group of this process, which the terminal left out.
    pub fn report(self) -> Result<u8, Failure> {
        match self {
            Self::Code(code) => Ok(code),
            Self::Signal { number, had_terminal } => {
                // The terminal sends the signals of its keys to a whole job. A script that started this process is part of it.
                if had_terminal && number == Signal::INT.as_raw() {
                    let _ = kill_current_process_group(Signal::INT);
                }
                Err(Failure::Signalled(number))
            }
        }
    }
}

/// How the start of a program ended.
pub enum Start {
    /// It runs.
    Running(Child),
    /// Nothing runs.
    Prevented(Prevention),
}

/// Why a program was not started.
pub enum Prevention {
    /// This signal came first.
    Signal(i32),
    /// The hold ended first.
    Loss(HoldState),
}

impl Child {
    /// Starts the program, with additions to its environment, unless a signal or the end of the hold comes first.
    ///
    /// The program starts only after the guard has its first message.
    pub async fn start(
        program: &[OsString],
        environment: &[(&str, String)],
        first: Option<Message>,
        codes: &Codes,
        hold: &HoldStatus,
        signals: &mut Signals,
    ) -> Result<Start, Failure> {
        let changes = unix::signal(SignalKind::child());
        let changes = changes.map_err(|error| Failure::system("cannot receive signals", &error))?;
        // A process that has lost its parent stays in the group, and PID 1 of a container may never reap it.
        set_child_subreaper(Some(getpid()))
            .map_err(|error| Failure::system("cannot adopt orphans", &error))?;
        let mut launcher = own_program();
        let (not_executable, not_found) = (codes.not_executable.to_string(), codes.not_found.to_string());
        launcher.args(["__launch", &std::process::id().to_string(), &not_executable, &not_found]);
        if terminal::is_ours() {
            launcher.arg("--foreground");
        }
        // The token of another lock, if this is the program of another `run`.
        launcher.env_remove(TOKEN);
        launcher.arg("--").args(program).envs(environment.iter().map(|(name, value)| (name, value)));
        let child = launcher.process_group(0).spawn();
        let child = child.map_err(|error| Failure::system("cannot start the program", &error))?;
        let pid = Pid::from_child(&child);
        let mut started = Self { pid, changes, guard: None };
        let released = started.release(first, hold, signals).await;
        if !matches!(released, Ok(None)) {
            started.signal(Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            started.dismiss_guard();
        }
        Ok(match released? {
            None => Start::Running(started),
            Some(prevention) => Start::Prevented(prevention),
        })
    }

    /// Starts the guard, waits for the launcher, and lets it become the program. Returns the reason if something
    /// came first.
    async fn release(
        &mut self,
        first: Option<Message>,
        hold: &HoldStatus,
        signals: &mut Signals,
    ) -> Result<Option<Prevention>, Failure> {
        self.guard = Some(guard(self.pid)?);
        if let Some(first) = first {
            self.tell_guard(first);
        }
        loop {
            // A signal that came before the launcher was ready is seen before that.
            tokio::select! {
                biased;
                signal = signals.next_ending() => return Ok(Some(Prevention::Signal(signal))),
                state = hold.lost() => return Ok(Some(Prevention::Loss(state))),
                _ = self.changes.recv() => {}
            }
            match waitpid(Some(self.pid), WaitOptions::UNTRACED | WaitOptions::NOHANG) {
                Ok(Some((_, status))) if status.stopped() => break,
                Ok(None) | Err(Errno::INTR) => {}
                Ok(Some(_)) => {
                    let text = "the launcher of the program failed: see its message";
                    return Err(Failure::System(text.to_owned()));
                }
                Err(error) => return Err(Failure::system("cannot wait for the launcher", &error)),
            }
        }
        // The end may not have been noticed yet.
        let state = hold.state();
        if !state.is_live() {
            return Ok(Some(Prevention::Loss(state)));
        }
        self.signal(Signal::CONT);
        Ok(None)
    }

    /// Waits for the program to end or to be stopped.
    pub async fn change(&mut self) -> Change {
        loop {
            // Of all children, because orphans of the program become children of this process.
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, _))) if pid != self.pid => continue,
                Ok(Some((_, status))) => {
                    return match status.stopping_signal() {
                        Some(signal) => Change::Stopped(signal),
                        None => Change::Ended(self.ended(status)),
                    };
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Change::Unknown(error),
            }
            self.changes.recv().await;
        }
    }

    /// Takes the terminal back, and returns how the program ended.
    fn ended(&self, status: rustix::process::WaitStatus) -> End {
        let had_terminal = terminal::has_foreground(self.pid);
        if had_terminal {
            terminal::give_to(getpgrp());
        }
        match status.terminating_signal() {
            Some(number) => End::Signal { number, had_terminal },
            None => {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                End::Code(code.unwrap_or(u8::MAX))
            }
        }
    }

    /// Gives the terminal to a program that a signal stopped because it lacks it. Otherwise stops this process, too, so that the shell
    /// shows a stopped job.
    pub fn stop_too(&self, signal: i32) {
        let wants_terminal = [Signal::TTIN, Signal::TTOU].into_iter().find(|wants| wants.as_raw() == signal);
        if terminal::has_foreground(self.pid) {
            terminal::give_to(getpgrp());
            // Returns when the shell continues this job.
            let _ = kill_current_process_group(Signal::TSTP);
            self.take_terminal();
            self.signal(Signal::CONT);
        } else if let Some(wants_terminal) = wants_terminal {
            if !self.take_terminal() {
                // When the shell continues this job, this process gets a SIGCONT, which it forwards.
                let _ = kill_current_process_group(wants_terminal);
                return;
            }
            self.signal(Signal::CONT);
        }
    }

    /// Makes the program the foreground job, if this process is. Returns whether it was.
    pub fn take_terminal(&self) -> bool {
        let is_ours = terminal::is_ours();
        if is_ours {
            terminal::give_to(self.pid);
        }
        is_ours
    }

    /// Sends a signal to the group.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Sends a message to the guard.
    pub fn tell_guard(&mut self, message: Message) {
        let Some((_, input)) = &mut self.guard else { return };
        if message.send(input).is_err() {
            self.guard = None;
            say("the guard of the program is gone: if this process dies, the program may survive it");
        }
    }

    /// Ends what is left of the group after its program: by SIGTERM, and by SIGKILL after this time. Returns when the group has ended.
    pub async fn end_group(&self, kill_after: Duration) {
        let kill_at = Instant::now() + kill_after;
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        loop {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            if test_kill_process_group(self.pid).is_err() {
                return;
            }
            let late = Instant::now().checked_duration_since(kill_at);
            if late.is_some() {
                self.signal(Signal::KILL);
            }
            // A process in a call of the system may take longer, or for ever.
            if late.is_some_and(|late| late >= KILLING) {
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Ends the guard. The rest of the group, if any, continues.
    pub fn dismiss_guard(&mut self) {
        if let Some((mut guard, _input)) = self.guard.take() {
            // Before the pipe closes, which would mean that this process is dead.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

fn guard(group: Pid) -> Result<(std::process::Child, ChildStdin), Failure> {
    let mut guard = own_program();
    guard.args(["__guard", &group.to_string()]);
    // A group of its own, so that no signal of the terminal ends it.
    guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let failed = |error: std::io::Error| Failure::system("cannot start the guard of the program", &error);
    let mut guard = guard.spawn().map_err(failed)?;
    let input = guard.stdin.take().ok_or_else(|| Failure::System("the guard has no pipe".to_owned()))?;
    Ok((guard, input))
}

fn own_program() -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("redisson-lock");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpgid;
    use std::{env, fs};

    const VARIABLE: &str = "REDISSON_LOCK_TEST_WAITS";

    /// A group that is no child of this process, so that the system refuses to wait for it. The test runs itself again, because a process
    /// that waits for any child takes those of other tests.
    #[tokio::test]
    async fn a_program_that_cannot_be_waited_for_can_still_be_ended() {
        if env::var_os(VARIABLE).is_none() {
            let mut again = Command::new(env::current_exe().unwrap());
            again.args(["--exact", "child::tests::a_program_that_cannot_be_waited_for_can_still_be_ended"]);
            let output = again.env(VARIABLE, "1").output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
            return;
        }
        let line = "setsid sleep 1000 > /dev/null 2>&1 & echo $!";
        let shell = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().unwrap();
        let pid = String::from_utf8(shell.stdout).unwrap().trim().parse().unwrap();
        let pid = Pid::from_raw(pid).unwrap();
        while getpgid(Some(pid)) != Ok(pid) {
            sleep(LOOK).await;
        }
        let changes = unix::signal(SignalKind::child()).unwrap();
        let mut child = Child { pid, changes, guard: None };
        assert!(matches!(child.change().await, Change::Unknown(Errno::CHILD)));
        child.end_group(Duration::ZERO).await;
        let stat = || fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
        assert!(stat().is_empty() || stat().contains(") Z "), "{}", stat());
    }
}
