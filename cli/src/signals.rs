//! The signals that this process receives.

use crate::failure::Failure;
use std::collections::VecDeque;
use std::fs;
use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a wait, and that `run` forwards to its program.
const ENDING: [i32; 4] = [
    nix::sys::signal::SIGHUP as i32,
    nix::sys::signal::SIGINT as i32,
    nix::sys::signal::SIGQUIT as i32,
    nix::sys::signal::SIGTERM as i32,
];

/// The signals that `run` forwards to its program, and that have no effect before it starts.
const FORWARDED: [i32; 4] = [
    nix::sys::signal::SIGUSR1 as i32,
    nix::sys::signal::SIGUSR2 as i32,
    nix::sys::signal::SIGWINCH as i32,
    nix::sys::signal::SIGCONT as i32,
];

/// The signals of this process. A signal that was ignored when the process started stays ignored, as `nohup` wants it.
pub struct Signals {
    streams: Vec<(i32, Signal)>,
    received: VecDeque<i32>,
}

impl Signals {
    /// Receives the signals that end this process.
    pub fn ending() -> Result<Self, Failure> {
        Self::of(&ENDING)
    }

    /// Receives the signals that `run` forwards.
    pub fn forwarded() -> Result<Self, Failure> {
        Self::of(&[ENDING, FORWARDED].concat())
    }

    fn of(numbers: &[i32]) -> Result<Self, Failure> {
        let ignored = ignored();
        let mut streams = Vec::new();
        for &number in numbers.iter().filter(|&&number| ignored >> (number - 1) & 1 == 0) {
            let stream = signal(SignalKind::from_raw(number));
            streams
                .push((number, stream.map_err(|error| Failure::system("cannot receive signals", &error))?));
        }
        Ok(Self { streams, received: VecDeque::new() })
    }

    /// Waits for the next signal, and returns its number.
    pub async fn next(&mut self) -> i32 {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Waits for a signal that ends this process, and returns its number.
    pub async fn next_ending(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if is_ending(number) {
                return number;
            }
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<i32> {
        for (number, stream) in &mut self.streams {
            while let Poll::Ready(Some(())) = stream.poll_recv(context) {
                self.received.push_back(*number);
            }
        }
        self.received.pop_front().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Returns the set of ignored signals, bit n - 1 for signal n. Without `/proc` the set is empty.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

/// Whether the signal ends a process that does not handle it on purpose, so that `run` ends with it.
pub fn is_ending(number: i32) -> bool {
    ENDING.contains(&number)
}

/// Ends this process by SIGINT, if that is the signal: a shell ends its script only after a death by SIGINT.
pub fn die_by(signal: i32) {
    // The first process of a container ignores the default action.
    if signal == nix::sys::signal::SIGINT as i32 && std::process::id() != 1 {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Returns the exit code of a process that a signal ended.
pub fn exit_code(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
