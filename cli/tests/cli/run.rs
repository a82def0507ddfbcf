//! The options and exit codes of `run`.

use crate::support::{BRIEF, PROGRAM, Process, Server};
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn the_exit_code_is_that_of_the_program() {
    let server = Server::start();
    server.output(&["run", "n", "--", "true"]).assert_code(0);
    server.output(&["run", "n", "-c", "exit 7"]).assert_code(7);
    server.output(&["run", "n", "-c", "kill -9 $$"]).assert_code(137);
    server.output(&["run", "n", "--", "/no/such/program"]).assert_code(127);
    server.output(&["run", "n", "--", "/etc/passwd"]).assert_code(126);
    assert!(!server.exists("n"));
}

#[test]
fn a_wrong_command_line_is_64() {
    let server = Server::start();
    for wrong in [
        ["run", "n"].as_slice(),
        &["run", "--", "true"],
        &["run", "n", "--kind", "none", "--", "true"],
        &["run", "n", "-w", "x", "--", "true"],
        &["run", "n", "-w", "-1", "--", "true"],
        &["run", "n", "-n", "-w", "1", "--", "true"],
        &["run", "n", "-s", "-x", "--", "true"],
        &["run", "n", "--lease", "0", "--", "true"],
        &["run", "n", "--limit", "0", "--", "true"],
        &["run", "n", "--owner", "a:b", "--", "true"],
        &["run", "n", "--kind", "fair", "--min-hold", "1", "--", "true"],
        &["run", "n", "--timeout", "0", "--", "true"],
        &["run", "n", "--kill-after", "1e19", "--", "true"],
        &["run", "n", "--lease", "1e15", "--", "true"],
        &["run", "", "--", "true"],
        &["frobnicate"],
    ] {
        server.output(wrong).assert_code(64);
    }
    server.output(&["--help"]).assert_code(0);
    server.output(&["--version"]).assert_code(0);
}

#[test]
fn a_busy_lock_is_75_or_the_code_of_the_option() {
    let server = Server::start();
    let mut holder = server.spawn(&["run", "n", "--owner", "nightly", "-c", "echo held; exec sleep 1000"]);
    assert_eq!(holder.line(), "held");
    let busy = server.output(&["run", "n", "-n", "--", "true"]);
    busy.assert_code(75);
    assert!(busy.err.contains("`n` is busy") && busy.err.contains("owner-nightly"), "{busy:?}");
    server.output(&["run", "n", "-w", BRIEF, "-E", "9", "--", "true"]).assert_code(9);
    server.output(&["run", "n", "-n", "--conflict-exit-code", "0", "--", "false"]).assert_code(0);
}

#[test]
fn an_unreachable_server_is_69_or_the_code_of_the_option() {
    let away = |words: &[&str]| {
        let output =
            Command::new(PROGRAM).args(words).env("REDISSON_LOCK_URL", "redis+unix:///no/such").output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, error) = away(&["run", "n", "--timeout", "0.2", "--", "true"]);
    assert_eq!(code, Some(69), "{error}");
    assert!(error.contains("REDISSON_LOCK_URL"), "{error}");
    assert_eq!(away(&["run", "n", "--timeout", "0.2", "--unavailable-code", "3", "--", "true"]).0, Some(3));
    assert_eq!(away(&["inspect", "n", "--timeout", "0.2"]).0, Some(69));
}

/// Each code by its option, if it has one, by its variable, and by both, in a real run.
#[test]
fn every_exit_code_can_be_set() {
    let server = Server::start();
    let mut holder = server.spawn(&["run", "busy", "-c", "echo held; exec sleep 1000"]);
    holder.line();
    let _: u32 = server.raw(&["RPUSH", "list", "x"]);
    let lose = format!("{PROGRAM} force-unlock n --yes > /dev/null; sleep 1000");
    let run = |words: &[&str], variable: Option<(&str, &str)>| {
        let mut command = server.cli(&[["run"].as_slice(), words].concat());
        if words.contains(&"away") {
            command.env("REDISSON_LOCK_URL", "redis+unix:///no/such");
        }
        command.envs(variable).output().unwrap().status.code()
    };
    for (option, name, default, words) in [
        ("--conflict-exit-code", "BUSY", 75, ["busy", "-n", "--", "true"].as_slice()),
        ("--unavailable-code", "UNAVAILABLE", 69, &["away", "--timeout", "0.2", "--", "true"]),
        ("--lost-code", "LOST", 70, &["n", "--lease", "0.6", "-c", &lose]),
        ("--system-code", "SYSTEM", 71, &["list", "--", "true"]),
        ("--not-executable-code", "NOT_EXECUTABLE", 126, &["n", "--", "/etc/passwd"]),
        ("--not-found-code", "NOT_FOUND", 127, &["n", "--", "/no/such/program"]),
        ("", "USAGE", 64, &["n", "--frobnicate", "--", "true"]),
        ("", "USAGE", 64, &["n", "--owner", "a:b", "--", "true"]),
    ] {
        let variable = format!("REDISSON_LOCK_{name}_CODE");
        assert_eq!(run(words, None), Some(default), "{name}");
        assert_eq!(run(words, Some((&variable, "33"))), Some(33), "{name}");
        if !option.is_empty() {
            let words = [[option, "44"].as_slice(), words].concat();
            assert_eq!(run(&words, None), Some(44), "{option}");
            assert_eq!(run(&words, Some((&variable, "33"))), Some(44), "{option}");
        }
    }
    // The variables apply to every command.
    for (variable, code, words) in [
        ("REDISSON_LOCK_BUSY_CODE", 33, ["hold", "busy", "-n"].as_slice()),
        ("REDISSON_LOCK_LOST_CODE", 33, &["semaphore", "release", "s", "00000000000000000000000000000000"]),
        ("REDISSON_LOCK_USAGE_CODE", 33, &["frobnicate"]),
        ("REDISSON_LOCK_USAGE_CODE", 0, &["--help"]),
    ] {
        let done = server.cli(words).env(variable, "33").output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{words:?}: {done:?}");
    }
    let wrong =
        server.cli(&["run", "n", "--", "true"]).env("REDISSON_LOCK_LOST_CODE", "256").output().unwrap();
    assert_eq!(wrong.status.code(), Some(64));
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(error.contains("REDISSON_LOCK_LOST_CODE") && error.contains("256"), "{error}");
}

#[test]
fn a_wait_ends_with_the_release() {
    let server = Server::start();
    let mut holder = Process::start(server.cli(&["hold", "n"]).stdin(Stdio::piped()));
    holder.line();
    let mut waiter = server.spawn(&["run", "n", "-v", "-w", "60", "--", "echo", "done"]);
    let waiting = waiter.error_line("waiting for");
    assert!(waiting.contains("waiting for `n`, held by client "), "{waiting}");
    holder.close_input();
    holder.end().assert_code(0);
    assert_eq!(waiter.line(), "done");
    waiter.end().assert_code(0);
}

#[test]
fn each_kind_excludes_itself() {
    let server = Server::start();
    for kind in ["lock", "fair", "fenced", "spin", "write", "value"] {
        let inner = [PROGRAM, "run", kind, "-n", "--kind", kind, "--", "true"];
        server.output(&[["run", kind, "--kind", kind, "--"].as_slice(), &inner].concat()).assert_code(75);
        assert!(!server.exists(kind), "{kind}");
    }
}

#[test]
fn readers_share_and_exclude_writers() {
    let server = Server::start();
    let nested = |outer: &str, inner: &str| {
        server.output(&["run", "n", outer, "--", PROGRAM, "run", "n", "-n", inner, "--", "true"])
    };
    nested("-s", "-s").assert_code(0);
    nested("-s", "-x").assert_code(75);
    nested("-x", "-s").assert_code(75);
    nested("-x", "--kind=read").assert_code(75);
}

#[test]
fn a_limit_allows_so_many() {
    let server = Server::start();
    let two = ["run", "n", "--limit", "2", "-n", "--"];
    let once = [two.as_slice(), &["true"]].concat();
    let nested = |times: usize| {
        let mut words = two.to_vec();
        for _ in 1..times {
            words.push(PROGRAM);
            words.extend(two);
        }
        words.push("true");
        server.output(&words)
    };
    server.output(&once).assert_code(0);
    nested(2).assert_code(0);
    nested(3).assert_code(75);
    let other = server.output(&["run", "n", "--limit", "3", "--", "true"]);
    other.assert_code(64);
    assert!(other.err.contains("has 2 permits"), "{other:?}");
}

#[test]
fn the_program_knows_its_lock() {
    let server = Server::start();
    let line = "echo $REDISSON_LOCK_NAME $REDISSON_LOCK_OWNER $REDISSON_LOCK_TOKEN; exec sleep 1000";
    for token in ["1", "2"] {
        let mut run = server.spawn(&["run", "n", "--kind", "fenced", "--owner", "me", "-c", line]);
        let shown = run.line();
        let words: Vec<&str> = shown.split(' ').collect();
        let [name, owner, shown_token] = words.as_slice() else { panic!("{words:?}") };
        assert_eq!((*name, *shown_token), ("n", token));
        assert!(owner.contains(":owner-me-"), "{owner}");
        assert_eq!(server.raw::<u32>(&["HGET", "n", owner]), 1);
        run.signal(rustix::process::Signal::TERM);
        run.end().assert_code(143);
    }
}

#[test]
fn the_program_of_an_inner_run_has_no_token_of_the_outer_one() {
    let server = Server::start();
    let inner = [PROGRAM, "run", "inner", "-c", "echo $REDISSON_LOCK_NAME-$REDISSON_LOCK_TOKEN"];
    let outer = ["run", "outer", "--kind", "fenced", "--"];
    assert_eq!(server.output(&[outer.as_slice(), &inner].concat()).out, "inner-\n");
}

#[test]
fn the_lease_and_the_minimum_time_are_those_of_the_options() {
    let server = Server::start();
    let mut run = server.spawn(&["run", "n", "--lease", "77", "-c", "echo held; exec sleep 1000"]);
    run.line();
    let left: i64 = server.raw(&["PTTL", "n"]);
    assert!((60_000..=77_000).contains(&left), "{left}");
    drop(run);

    server.output(&["run", "job", "--min-hold", "300", "--", "true"]).assert_code(0);
    let left: i64 = server.raw(&["PTTL", "job"]);
    assert!((200_000..=300_000).contains(&left), "{left}");
    server.output(&["run", "job", "-n", "--", "true"]).assert_code(75);
}

#[test]
fn standard_input_and_descriptors_are_those_of_the_caller() {
    let server = Server::start();
    let mut run = Process::start(server.cli(&["run", "n", "--", "cat"]).stdin(Stdio::piped()));
    let mut input = run.take_input();
    input.write_all(b"first\n").unwrap();
    assert_eq!(run.line(), "first");
    drop(input);
    run.end().assert_code(0);

    let list = "for fd in /proc/self/fd/*; do echo ${fd##*/}; done";
    let with = server.output(&["run", "n", "-c", list]);
    let without = Command::new("/bin/sh").args(["-c", list]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(with.out, String::from_utf8(without.stdout).unwrap());
}

#[test]
fn a_background_process_does_not_keep_the_lock() {
    let server = Server::start();
    // It has no descriptor of the test, so that the program's output ends.
    let done = server.output(&["run", "n", "-c", "sleep 1000 <&- >&- 2>&- & echo $!"]);
    done.assert_code(0);
    assert!(!server.exists("n"));
    let background = crate::support::pid(&done.out);
    assert!(crate::support::is_alive(background));
    rustix::process::kill_process(background, rustix::process::Signal::KILL).unwrap();
}
