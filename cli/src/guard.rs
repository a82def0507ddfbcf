//! The guard: a process that ends the program of `run` if `run` cannot.
//!
//! `run` may be killed, or stopped for longer than the lease. The guard reads messages of `run` from its standard input:
//! 1. While no deadline is set, the guard only waits.
//! 2. After the deadline of the hold, and a moment for `run` to act, the group gets SIGTERM. At the last moment it gets
//!    SIGKILL. Each new message replaces both times.
//! 3. No signal but SIGKILL ends the guard, so that it can still end the group when every process gets a SIGTERM.
//! 4. If the messages end, `run` is dead, and the group gets SIGKILL. Otherwise `run` kills the guard.

use crate::args;
use crate::failure::Failure;
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::stdio::stdin;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io::Write;
use std::time::Duration;

/// The time that `run` has to act after the deadline, before the guard does.
const MARGIN: Duration = Duration::from_millis(500);

/// A message to the guard: the program must end, by SIGTERM at the first time, and by SIGKILL at the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    term: u64,
    kill: u64,
}

const SIZE: usize = 16;
const NEVER: u64 = u64::MAX;

impl Message {
    /// The message for a hold that lasts for `left` more, and a program that must end `kill_after` later.
    pub fn deadline(left: Duration, kill_after: Duration) -> Self {
        let end = now().saturating_add(millis(left));
        let kill = end.saturating_add(millis(kill_after));
        Self { term: end.saturating_add(millis(MARGIN)).min(kill), kill }
    }

    /// The message that the program has its SIGTERM, and must end within `kill_after`.
    pub fn kill_after(kill_after: Duration) -> Self {
        Self { term: NEVER, kill: now().saturating_add(millis(kill_after)) }
    }

    fn encode(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.term.to_le_bytes());
        bytes[8..].copy_from_slice(&self.kill.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; SIZE]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self { term: number(0), kill: number(8) }
    }

    /// Sends the message.
    pub fn send(self, to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(&self.encode())
    }
}

/// Guards the group until `run` is done with it.
pub fn guard(arguments: &args::Guard) -> Result<u8, Failure> {
    // A service manager signals every process of a service, and a terminal that closes those of its session.
    let _ = SigSet::all().thread_block();
    let group = Pid::from_raw(arguments.group).filter(|group| *group != Pid::INIT);
    let group = group.ok_or_else(|| Failure::Usage("the guard needs a process group".to_owned()))?;
    let (mut term, mut kill) = (NEVER, NEVER);
    loop {
        let now = now();
        if kill <= now {
            let _ = kill_process_group(group, Signal::KILL);
            return Ok(0);
        }
        if term <= now {
            let _ = kill_process_group(group, Signal::TERM);
            // A stopped program gets the signal when it continues.
            let _ = kill_process_group(group, Signal::CONT);
            term = NEVER;
        }
        let next = term.min(kill);
        let left = (next != NEVER).then(|| timespec(next - now));
        let mut input = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
        match poll(&mut input, left.as_ref()) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(Failure::system("the guard cannot wait", &error)),
        }
        let mut bytes = [0; SIZE];
        // Without a buffer, because `poll` does not see one. A pipe passes on such a short message as a whole.
        match rustix::io::read(stdin(), &mut bytes) {
            Ok(SIZE) => Message { term, kill } = Message::decode(bytes),
            Err(Errno::INTR) => {}
            // `run` is dead.
            _ => kill = 0,
        }
    }
}

/// The milliseconds of the clock that continues while the host sleeps.
fn now() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    (tv_sec as u64) * 1000 + (tv_nsec as u64) / 1_000_000
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn timespec(ms: u64) -> Timespec {
    Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: ((ms % 1000) * 1_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe() {
        for message in [Message { term: 1, kill: 2 }, Message { term: NEVER, kill: NEVER }] {
            assert_eq!(Message::decode(message.encode()), message);
        }
    }

    #[test]
    fn the_guard_kills_no_later_than_kill_after() {
        let message = Message::deadline(Duration::from_secs(30), Duration::from_millis(100));
        assert!(message.term <= message.kill);
    }
}
