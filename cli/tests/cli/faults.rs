//! Losses of the lock while the program of `run` runs.

use crate::support::{Process, Server, eventually, is_alive, pid};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const SLEEP: &str = "sleep 1000 & echo $$; echo $!; wait";
/// Ignores SIGTERM, and reports it.
const STUBBORN: &str = "trap 'echo told' TERM; echo $$; while :; do sleep 0.01; done";

/// A lease in seconds. Two thirds of it are left when a renewal is due, so that a stall ends no hold.
const LEASE: &str = "1.5";

fn start(server: &Server, options: &[&str], line: &str) -> Process {
    server.spawn(&[["run", "n", "--lease", LEASE].as_slice(), options, &["-c", line]].concat())
}

#[test]
fn a_lost_lock_ends_the_group() {
    let server = Server::start();
    let mut run = start(&server, &[], SLEEP);
    let family = [pid(&run.line()), pid(&run.line())];
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    let done = run.end();
    done.assert_code(70);
    assert!(done.err.contains("the lock `n` is lost while the program runs: the record is gone"), "{done:?}");
    assert!(!family.iter().any(|member| is_alive(*member)));
}

#[test]
fn kill_after_ends_a_program_that_ignores_sigterm() {
    let server = Server::start();
    let mut run = start(&server, &["--kill-after", "2", "--lost-code", "9"], STUBBORN);
    let program = pid(&run.line());
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    assert_eq!(run.line(), "told");
    run.end().assert_code(9);
    assert!(!is_alive(program));
}

#[test]
fn on_lost_kill_sends_no_sigterm() {
    let server = Server::start();
    let mut run = start(&server, &["--on-lost", "kill"], STUBBORN);
    let program = pid(&run.line());
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    let done = run.end();
    done.assert_code(70);
    assert_eq!(done.out, "");
    assert!(!is_alive(program));
}

/// The lock is not lost, so `--on-lost` does not count.
#[test]
fn on_lost_kill_leaves_a_signalled_group_its_time() {
    let server = Server::start();
    let line = "(trap 'sleep 0.3; echo cleaned; exit' TERM; echo ready; while :; do sleep 0.01; done) & wait";
    let mut run = server.spawn(&["run", "n", "--on-lost", "kill", "--kill-after", "20", "-c", line]);
    assert_eq!(run.line(), "ready");
    run.signal(Signal::TERM);
    assert_eq!(run.line(), "cleaned");
    run.end().assert_code(143);
}

#[test]
fn on_lost_warn_lets_the_program_end() {
    let server = Server::start();
    let words = ["run", "n", "--lease", "0.6", "--on-lost", "warn", "-c", "echo held; read line; exit 5"];
    let mut run = Process::start(server.cli(&words).stdin(Stdio::piped()));
    assert_eq!(run.line(), "held");
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    run.error_line("it continues unprotected");
    run.close_input();
    let done = run.end();
    done.assert_code(5);
    assert!(done.err.is_empty() || !done.err.contains("stay busy"), "{done:?}");
}

#[test]
fn max_hold_ends_the_program() {
    let server = Server::start();
    let mut run = start(&server, &["--max-hold", "3"], SLEEP);
    let program = pid(&run.line());
    run.end().assert_code(70);
    assert!(!is_alive(program));
}

#[test]
fn a_pause_past_the_lease_ends_the_program_during_the_pause() {
    let server = Server::start();
    let mut run = start(&server, &["--kill-after", "1"], SLEEP);
    let family = [pid(&run.line()), pid(&run.line())];
    run.signal(Signal::STOP);
    eventually(|| !family.iter().any(|member| is_alive(*member)));
    eventually(|| !server.exists("n"));
    run.signal(Signal::CONT);
    run.end().assert_code(70);
}

#[test]
fn a_dead_server_ends_the_program_with_the_lease() {
    let mut server = Server::start();
    let mut run = start(&server, &[], SLEEP);
    let family = [pid(&run.line()), pid(&run.line())];
    server.kill();
    let done = run.end();
    done.assert_code(70);
    assert!(done.err.contains("the lease expired while the server was unreachable"), "{done:?}");
    assert!(!family.iter().any(|member| is_alive(*member)));
}

#[test]
fn a_server_without_its_data_ends_the_program() {
    let mut server = Server::start();
    let mut run = server.spawn(&["run", "n", "--lease", "10", "-c", SLEEP]);
    run.line();
    server.kill();
    server.start_again();
    let done = run.end();
    done.assert_code(70);
    assert!(done.err.contains("the server lost its data"), "{done:?}");
}

#[test]
fn a_server_with_its_data_changes_nothing() {
    let mut server = Server::durable();
    let words = ["run", "n", "--lease", "10", "-c", "echo held; read line; exit 5"];
    let mut run = Process::start(server.cli(&words).stdin(Stdio::piped()));
    assert_eq!(run.line(), "held");
    server.kill();
    server.start_again();
    // The next renewal.
    let before: i64 = server.raw(&["PTTL", "n"]);
    eventually(|| server.raw::<i64>(&["PTTL", "n"]) > before);
    run.close_input();
    run.end().assert_code(5);
    assert!(!server.exists("n"));
}

/// The time that is left when the hold begins says nothing of the time that each renewal adds.
#[test]
fn the_guard_learns_of_each_renewal_after_a_minimum_time() {
    let server = Server::start();
    let words = ["run", "n", "--lease", "1", "--min-hold", "10", "--on-lost", "kill"];
    let words = [words.as_slice(), &["-c", "echo held; read line; exit 5"]].concat();
    let mut run = Process::start(server.cli(&words).stdin(Stdio::piped()));
    assert_eq!(run.line(), "held");
    let (mut last, mut renewals) = (i64::MAX, 0);
    eventually(|| {
        let left = server.raw(&["PTTL", "n"]);
        renewals += u32::from(left > last);
        last = left;
        // Two leases, or the end of the program.
        renewals == 6 || left < 0
    });
    run.close_input();
    run.end().assert_code(5);
}

/// The server continues shortly before the deadline that the guard knows.
#[test]
fn the_guard_learns_of_a_late_renewal() {
    let server = Server::start();
    let line = "trap 'echo told' USR1; echo held; until read line; do :; done; exit 5";
    let words = ["run", "n", "--lease", "10", "--on-lost", "kill", "-c", line];
    let mut run = Process::start(server.cli(&words).stdin(Stdio::piped()));
    assert_eq!(run.line(), "held");
    let left: u64 = server.raw(&["PTTL", "n"]);
    let deadline = Instant::now() + Duration::from_millis(left);
    server.signal(Signal::STOP);
    thread::sleep(deadline - Duration::from_millis(800) - Instant::now());
    // A signal also sends a message to the guard, with the deadline so far.
    run.signal(Signal::USR1);
    assert_eq!(run.line(), "told");
    server.signal(Signal::CONT);
    eventually(|| server.raw::<i64>(&["PTTL", "n"]) > 2_000);
    thread::sleep((deadline + Duration::from_millis(100)).saturating_duration_since(Instant::now()));
    // Fails if the program has ended.
    let _ = run.take_input().write_all(b"\n");
    run.end().assert_code(5);
}
