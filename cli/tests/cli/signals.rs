//! Signals to `redisson-lock`, and the death of it.

use crate::support::{
    PROGRAM, Process, Server, children, eventually, is_alive, pid, state, with_default_signals,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::fs::File;
use std::process::{Command, Stdio};

/// A shell with a child, which writes the process ids of both. Both end only by a signal.
const FAMILY: &str = "sleep 1000 & echo $$; echo $!; wait";

#[test]
fn a_signal_ends_the_whole_group_and_the_lock() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let server = Server::start();
        let mut run = server.spawn(&["run", "n", "-c", FAMILY]);
        let family = [pid(&run.line()), pid(&run.line())];
        run.signal(signal);
        run.end().assert_code(code);
        assert!(!family.iter().any(|member| is_alive(*member)), "{signal:?}");
        assert!(!server.exists("n"));
    }
}

#[test]
fn the_lock_is_held_until_the_signalled_program_ends() {
    let server = Server::start();
    let line = "trap 'echo told; read line; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = Process::start(server.cli(&["run", "n", "-c", line]).stdin(Stdio::piped()));
    assert_eq!(run.line(), "ready");
    run.signal(Signal::TERM);
    assert_eq!(run.line(), "told");
    assert!(server.exists("n"));
    run.close_input();
    run.end().assert_code(5);
    assert!(!server.exists("n"));
}

#[test]
fn a_signal_ends_a_wait_and_starts_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let server = Server::start();
        let mut holder = Process::start(server.cli(&["hold", "n", "--kind", "fair"]).stdin(Stdio::piped()));
        holder.line();
        let mut waiter = server.spawn(&["run", "n", "--kind", "fair", "-v", "--", "echo", "started"]);
        waiter.error_line("waiting for");
        eventually(|| server.raw::<u32>(&["LLEN", "redisson_lock_queue:{n}"]) == 1);
        waiter.signal(signal);
        let done = waiter.end();
        done.assert_code(code);
        assert_eq!(done.out, "");
        assert_eq!(server.raw::<u32>(&["LLEN", "redisson_lock_queue:{n}"]), 0);
    }
}

/// A run whose launcher is held up until the file is dropped. The dynamic linker waits for a library that is a pipe.
fn held_up(server: &Server, words: &[&str]) -> (Process, File) {
    let pipe = std::env::temp_dir().join(format!("redisson-lock-pipe-{}", server.socket().replace('/', "-")));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = with_default_signals("env");
    command.arg(format!("LD_PRELOAD={}", pipe.display())).arg(PROGRAM).args(words);
    let run = Process::start(command.env("REDISSON_LOCK_URL", server.url()).stdin(Stdio::null()));
    // Lets `run` itself pass.
    drop(File::options().write(true).open(&pipe).unwrap());
    eventually(|| server.exists("n"));
    let mut launcher = None;
    eventually(|| {
        // Fails until the launcher reads the pipe.
        launcher = rustix::fs::open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        launcher.is_some()
    });
    std::fs::remove_file(&pipe).unwrap();
    (run, launcher.unwrap().into())
}

#[test]
fn a_signal_between_the_grant_and_the_start_starts_nothing() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let server = Server::start();
        let (run, _launcher) = held_up(&server, &["run", "n", "--", "echo", "started"]);
        run.signal(signal);
        let done = run.end();
        done.assert_code(code);
        assert_eq!(done.out, "");
        assert!(!server.exists("n"));
    }
}

#[test]
fn a_signal_with_the_start_starts_nothing() {
    let server = Server::start();
    let (run, launcher) = held_up(&server, &["run", "n", "--", "echo", "started"]);
    run.signal(Signal::STOP);
    eventually(|| state(run.pid()) == Some('T'));
    run.signal(Signal::TERM);
    drop(launcher);
    eventually(|| children(run.pid()).iter().any(|child| state(*child) == Some('T')));
    run.signal(Signal::CONT);
    let done = run.end();
    done.assert_code(143);
    assert_eq!(done.out, "");
    assert!(!server.exists("n"));
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let server = Server::start();
    let mut nohup = Command::new("nohup");
    nohup.arg(PROGRAM).args(["run", "n", "-c", "echo ready; read line; exit 5"]);
    let mut run = Process::start(nohup.env("REDISSON_LOCK_URL", server.url()).stdin(Stdio::piped()));
    assert_eq!(run.line(), "ready");
    run.signal(Signal::HUP);
    run.close_input();
    run.end().assert_code(5);
}

#[test]
fn other_signals_reach_the_program() {
    let server = Server::start();
    let line = "trap 'exit 4' USR1; echo ready; while :; do sleep 0.01; done";
    let mut run = server.spawn(&["run", "n", "-c", line]);
    assert_eq!(run.line(), "ready");
    run.signal(Signal::USR1);
    run.end().assert_code(4);
}

#[test]
fn nothing_survives_the_death_of_the_program() {
    let server = Server::start();
    let mut run = server.spawn(&["run", "n", "-c", FAMILY]);
    let family = [pid(&run.line()), pid(&run.line())];
    run.signal(Signal::KILL);
    assert_eq!(run.end().code, None);
    eventually(|| !family.iter().any(|member| is_alive(*member)));
    // The lock stays for the rest of its lease.
    assert!(server.raw::<i64>(&["PTTL", "n"]) > 0);
}
