//! Standard output and standard error that are closed or full.

use crate::support::{Done, Process, Server, hold};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// Each write to it fails: the disk is full.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Each write to it fails: nobody reads it any longer.
fn unread() -> Stdio {
    let (output, _) = UnixStream::pair().unwrap();
    OwnedFd::from(output).into()
}

fn done(command: &mut Command) -> Done {
    Done::of(command.output().unwrap())
}

#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let server = Server::start();
    let _holder = hold(&server, "busy", &[]);
    for errors in [full, unread] {
        done(server.cli(&["run", "busy", "-n", "--", "true"]).stderr(errors())).assert_code(75);
        done(server.cli(&["run", "busy", "-v", "-w", "1", "--", "true"]).stderr(errors())).assert_code(75);
        done(server.cli(&["run", "n", "--", "/no/such/program"]).stderr(errors())).assert_code(127);
    }
}

/// A script may pass the name of a stranger.
#[test]
fn an_error_shows_a_name_without_control_characters() {
    let server = Server::start();
    let name = "n\n\u{1b}[2J";
    let _holder = hold(&server, name, &[]);
    let busy = server.output(&["run", name, "-n", "--", "true"]);
    busy.assert_code(75);
    assert!(busy.err.contains(r"`n\n\u{1b}[2J` is busy"), "{}", busy.err);
    assert!(!busy.err.contains('\u{1b}'), "{}", busy.err);
}

#[test]
fn a_program_survives_a_loss_without_a_reader_of_the_errors() {
    let server = Server::start();
    let words = ["run", "n", "--lease", "0.6", "--on-lost", "warn"];
    let line = "echo held; read line; exit 5";
    let mut command = server.cli(&[words.as_slice(), &["-c", line]].concat());
    let mut run = Process::with_errors(command.stdin(Stdio::piped()), unread());
    assert_eq!(run.line(), "held");
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    // The next renewals.
    std::thread::sleep(std::time::Duration::from_secs(1));
    run.close_input();
    run.end().assert_code(5);
}

#[test]
fn an_output_that_nobody_reads_ends_a_command_quietly_and_a_full_one_with_an_error() {
    let server = Server::start();
    let _: u32 = server.raw(&["HSET", "n", "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
    server.output(&["semaphore", "create", "s", "1"]).assert_code(0);
    for words in [
        ["list"].as_slice(),
        &["list", "--json"],
        &["inspect", "n"],
        &["inspect", "n", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["semaphore", "count", "s"],
        &["semaphore", "count", "s", "--json"],
        &["plain-semaphore", "count", "s"],
        &["latch", "count", "l"],
        &["force-unlock", "free", "--yes"],
        &["watch", "n"],
        &["hold", "h"],
        &["completions", "bash"],
    ] {
        let unread = done(server.cli(words).stdout(unread()));
        assert!(unread.code == Some(141) && unread.err.is_empty(), "{words:?}: {unread:?}");
        let full = done(server.cli(words).stdout(full()));
        assert!(full.code == Some(71), "{words:?}: {full:?}");
        assert!(
            full.err.starts_with("redisson-lock: cannot write to standard output"),
            "{words:?}: {full:?}"
        );
    }
    assert!(!server.exists("h"));
}

#[test]
fn a_permit_whose_id_cannot_be_written_is_released() {
    let server = Server::start();
    server.output(&["semaphore", "create", "s", "1"]).assert_code(0);
    for (output, code) in [(full(), 71), (unread(), 141)] {
        done(server.cli(&["semaphore", "acquire", "s", "--lease", "60"]).stdout(output)).assert_code(code);
        assert_eq!(server.output(&["semaphore", "count", "s"]).out, "free     1\ntaken    0\npermits  1\n");
    }
}

#[test]
fn hold_reports_a_loss_by_its_code_even_if_nobody_reads() {
    let server = Server::start();
    let (mut holder, _) = hold(&server, "n", &["--lease", "1.5"]);
    holder.close_output();
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    let done = holder.end();
    done.assert_code(70);
    assert!(done.err.contains("the lock `n` is lost"), "{done:?}");
}

/// The line may go to a terminal, which would obey such characters.
#[test]
fn json_shows_no_raw_control_characters() {
    let server = Server::start();
    let name = "a\u{7f}b\u{9b}2Jc\u{202e}d\u{e0001}";
    let _: u32 = server.raw(&["HSET", name, "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
    for words in [&["list", "--json"][..], &["inspect", name, "--json"]] {
        let shown = server.output(words).out;
        assert!(shown.contains(r"a\u007fb\u009b2Jc\u202ed\udb40\udc01"), "{shown:?}");
    }
}
