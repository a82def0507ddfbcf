//! Signals to `redisson-lock`, and the death of it.

use crate::support::{
    PROGRAM, Process, Server, children, eventually, is_alive, pid, state, with_default_signals,
};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ENDING: [Signal; 4] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT];
/// A shell with a child, which writes the process ids of both. Both end only by a signal.
const FAMILY: &str = "sleep 1000 & echo $$; echo $!; wait";

#[test]
fn a_signal_ends_the_whole_group_and_the_lock() {
    for signal in ENDING {
        let server = Server::start();
        let mut run = server.spawn(&["run", "n", "-c", FAMILY]);
        let family = [pid(&run.line()), pid(&run.line())];
        run.signal(signal);
        run.end().assert_ended_by(signal);
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
    for signal in ENDING {
        let server = Server::start();
        let mut holder = Process::start(server.cli(&["hold", "n", "--kind", "fair"]).stdin(Stdio::piped()));
        holder.line();
        let mut waiter = server.spawn(&["run", "n", "--kind", "fair", "-v", "--", "echo", "started"]);
        waiter.error_line("waiting for");
        eventually(|| server.raw::<u32>(&["LLEN", "redisson_lock_queue:{n}"]) == 1);
        waiter.signal(signal);
        let done = waiter.end();
        done.assert_ended_by(signal);
        assert_eq!(done.out, "");
        eventually(|| server.raw::<u32>(&["LLEN", "redisson_lock_queue:{n}"]) == 0);
    }
}

/// A listener that accepts no connection.
#[test]
fn a_signal_ends_a_connect() {
    let folder = std::env::temp_dir().join(format!("redisson-lock-hole-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let hole = UnixListener::bind(&folder).unwrap();
    let url = format!("redis+unix://{}", folder.display());
    for words in [
        ["run", "n", "--", "true"].as_slice(),
        &["hold", "n"],
        &["list"],
        &["watch", "n"],
        &["doctor"],
        &["semaphore", "count", "s"],
        &["latch", "wait", "l"],
    ] {
        for signal in ENDING {
            let mut command = with_default_signals(PROGRAM);
            command.args(words).args(["--timeout", "30"]).env("REDISSON_LOCK_URL", &url);
            let process = Process::start(command.stdin(Stdio::null()));
            let (_connection, _) = hole.accept().unwrap();
            let started = Instant::now();
            process.signal(signal);
            process.end().assert_ended_by(signal);
            assert!(started.elapsed() < Duration::from_secs(20), "{words:?}");
        }
    }
    std::fs::remove_file(&folder).unwrap();
}

/// A service manager signals every process of a service, and a terminal that closes those of its session.
#[test]
fn a_signal_to_every_process_leaves_the_guard() {
    let server = Server::start();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut run = server.spawn(&["run", "n", "--lease", "3", "-c", FAMILY]);
        let family = [pid(&run.line()), pid(&run.line())];
        let is_guard = |pid: &Pid| {
            let path = format!("/proc/{}/cmdline", pid.as_raw_pid());
            std::fs::read_to_string(path).is_ok_and(|line| line.contains("__guard"))
        };
        let guard = children(run.pid()).into_iter().find(is_guard).unwrap();
        // It may still be starting.
        let status = || std::fs::read_to_string(format!("/proc/{}/status", guard.as_raw_pid())).unwrap();
        eventually(|| !status().contains("SigBlk:\t0000000000000000"));
        kill_process(guard, signal).unwrap();
        run.signal(Signal::KILL);
        run.end();
        eventually(|| !family.iter().any(|member| is_alive(*member)));
        eventually(|| !server.exists("n"));
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
    for signal in ENDING {
        let server = Server::start();
        let (run, _launcher) = held_up(&server, &["run", "n", "--", "echo", "started"]);
        run.signal(signal);
        let done = run.end();
        done.assert_ended_by(signal);
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

/// The rest of the group would run without the lock.
#[test]
fn a_signal_before_the_end_of_the_program_ends_the_rest_of_its_group() {
    let server = Server::start();
    let mut run = server.spawn(&["run", "n", "-c", "sleep 1000 & echo $$; echo $!; wait"]);
    let (shell, rest) = (pid(&run.line()), pid(&run.line()));
    run.signal(Signal::STOP);
    eventually(|| state(run.pid()) == Some('T'));
    run.signal(Signal::TERM);
    kill_process(shell, Signal::KILL).unwrap();
    eventually(|| state(shell) == Some('Z'));
    run.signal(Signal::CONT);
    run.end();
    assert!(!is_alive(rest));
    assert!(!server.exists("n"));
}

#[test]
fn a_loss_before_the_start_starts_nothing() {
    for action in ["term", "warn"] {
        let server = Server::start();
        // Longer than this machine stalls: the lock must not be lost before the launcher is held up.
        let words = ["run", "n", "--lease", "6", "--on-lost", action, "--", "echo", "started"];
        let (mut run, launcher) = held_up(&server, &words);
        server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
        run.error_line("was lost before the program started");
        drop(launcher);
        let done = run.end();
        done.assert_code(70);
        assert_eq!(done.out, "");
    }
}

/// A shell takes only a death by the signal for one, and a code for that of the program.
#[test]
fn a_program_that_sigint_ends_is_not_one_that_exits_with_130() {
    let server = Server::start();
    server.output(&["run", "n", "-c", "kill -INT $$"]).assert_ended_by(Signal::INT);
    server.output(&["run", "n", "-c", "exit 130"]).assert_code(130);
    server.output(&["run", "n", "-c", "trap 'exit 5' INT; kill -INT $$"]).assert_code(5);
    eventually(|| !server.exists("n"));
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
    assert_eq!(run.end().signal, Some(Signal::KILL.as_raw()));
    eventually(|| !family.iter().any(|member| is_alive(*member)));
    // The lock stays for the rest of its lease.
    assert!(server.raw::<i64>(&["PTTL", "n"]) > 0);
}
