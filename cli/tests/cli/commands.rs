//! The commands other than `run`, and connecting.

use crate::support::{BRIEF, Process, Server, eventually};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::ioctl_fionread;
use rustix::process::Signal;
use std::io::{self, Write};
use std::process::Stdio;

fn hold(server: &Server, options: &[&str]) -> Process {
    Process::start(server.cli(&[["hold", "n"].as_slice(), options].concat()).stdin(Stdio::piped()))
}

#[test]
fn hold_ends_with_its_input_or_a_signal() {
    let server = Server::start();
    for by_signal in [false, true] {
        let mut holder = hold(&server, &["--owner", "me"]);
        let held = holder.line();
        assert!(
            held.contains(r#""event":"held","name":"n","owner":"#) && held.contains("owner-me-"),
            "{held}"
        );
        assert!(server.exists("n"));
        if by_signal {
            holder.signal(Signal::TERM)
        } else {
            holder.close_input()
        }
        holder.end().assert_code(0);
        assert!(!server.exists("n"));
    }
}

/// A process that shares the input may have made it non-blocking.
#[test]
fn hold_waits_for_the_end_of_an_input_that_does_not_block() {
    let server = Server::start();
    let (input, mut writer) = io::pipe().unwrap();
    fcntl_setfl(&input, OFlags::NONBLOCK).unwrap();
    let mut holder = Process::start(server.cli(&["hold", "n"]).stdin(input));
    holder.line();
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        eventually(|| ioctl_fionread(&writer).unwrap() == 0);
    }
    assert!(server.exists("n"));
    drop(writer);
    holder.end().assert_code(0);
    assert!(!server.exists("n"));
}

#[test]
fn a_name_in_use_for_another_kind_of_value_is_refused() {
    let server = Server::start();
    let () = server.raw(&["SET", "text", "hello"]);
    for words in [
        ["run", "text", "--", "true"].as_slice(),
        &["latch", "wait", "text"],
        &["semaphore", "acquire", "text", "--lease", "9"],
    ] {
        let done = server.output(words);
        done.assert_code(71);
        assert!(done.err.contains("for another kind of value (WRONGTYPE)"), "{done:?}");
        assert!(!done.err.contains("script"), "{done:?}");
    }
}

#[test]
fn hold_reports_a_loss() {
    let server = Server::start();
    let mut holder = hold(&server, &["--lease", "1.5"]);
    holder.line();
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    assert_eq!(holder.line(), r#"{"event":"lost","name":"n","reason":"the record is gone"}"#);
    holder.end().assert_code(70);
}

/// The key is written as a registered service does it, or by somebody who wants to confuse a terminal.
#[test]
fn a_registered_holder_is_shown_by_its_name() {
    let server = Server::start();
    let mut holder = hold(&server, &[]);
    let owner = owner_of(&holder.line());
    let (client, id) = owner.split_once(':').unwrap();
    for (application, shown) in [("orders-service", "orders-service"), ("o\u{202e}r", "o\\u{202e}r")] {
        let value = format!("application={application}\nhost=host-3\npid=4711\nsince=1700000000000");
        let () = server.raw(&["SET", &format!("redisson-lock:client:{client}"), &value, "PX", "60000"]);
        let name = format!("{shown} on host-3, pid 4711");
        let text = server.output(&["inspect", "n"]).out;
        assert!(text.contains(&format!("holder   {owner}, once\nclient   {name}\n")), "{text}");
        let json = server.output(&["inspect", "n", "--json"]).out;
        let info = r#""client":"CLIENT","count":1,"host":"host-3","owner":"OWNER","pid":4711,"since_ms":1700000000000"#;
        assert!(json.contains(&info.replace("CLIENT", client).replace("OWNER", &owner)), "{json}");
        let listed = server.output(&["list"]).out;
        assert!(listed.contains(&format!("n     lock  {name}  1 ")), "{listed}");
        let held_by = format!("`n` is busy, held by {name} (client {client}, owner {id})");
        let busy = server.output(&["run", "n", "-n", "--", "true"]);
        assert!(busy.err.contains(&held_by), "{}", busy.err);
        let refused = server.output(&["force-unlock", "n"]);
        assert!(refused.err.contains(&format!("held by {name} (client {client}")), "{}", refused.err);
    }
    let watched = server.spawn(&["watch", "n"]).line();
    assert!(watched.contains("held      n  lock  o\\u{202e}r on host-3, pid 4711"), "{watched}");
    let mut waiting = server.spawn(&["run", "n", "-v", "--", "true"]);
    waiting.error_line("waiting for `n`, held by o\\u{202e}r on host-3, pid 4711 (client ");
    // A value of another form is no name.
    let () = server.raw(&["SET", &format!("redisson-lock:client:{client}"), "application=\u{1b}[31m"]);
    let text = server.output(&["inspect", "n"]).out;
    assert!(text.contains(&format!("holder   {owner}, once\nlease ")), "{text}");
    holder.close_input();
    holder.end().assert_code(0);
    waiting.end().assert_code(0);
}

#[test]
fn inspect_finds_the_kind_and_names_the_holder_and_the_queue() {
    let server = Server::start();
    let free = server.output(&["inspect", "n", "--json"]);
    let text =
        r#"{"certain":false,"count":null,"held":false,"holders":[],"kind":null,"lease_ms":null,"name":"n","#
            .to_owned()
            + r#""queue":[],"taken":null,"token":null,"waiters":null}"#
            + "\n";
    assert_eq!(free.out, text);

    let mut holder = hold(&server, &["--owner", "me", "--kind", "fair"]);
    let owner = owner_of(&holder.line());
    let _waiter = server.spawn(&["run", "n", "--kind", "fair", "--owner", "next", "--", "true"]);
    eventually(|| server.output(&["inspect", "n", "--json"]).out.contains(r#""waiters":1"#));
    let json = server.output(&["inspect", "n", "--json"]).out;
    for part in [r#""kind":"fair""#, r#""held":true"#, r#""count":1"#, "owner-next-", r#""certain":true"#] {
        assert!(json.contains(part), "{part}: {json}");
    }
    let text = server.output(&["inspect", "n"]).out;
    let expected = format!("name     n\nkind     fair\nholder   {owner}, once\nlease    ");
    assert!(text.starts_with(&expected) && text.contains("waiters  1\nqueue    1. "), "{text}");
    // The kind is taken from the option, if there is one.
    let json = server.output(&["inspect", "n", "--kind", "fair", "--json"]).out;
    assert!(json.contains(r#""kind":"fair""#) && json.contains(r#""waiters":1"#), "{json}");
    holder.close_input();

    let mut fenced = Process::start(server.cli(&["hold", "f", "--kind", "fenced"]).stdin(Stdio::piped()));
    fenced.line();
    let text = server.output(&["inspect", "f"]).out;
    assert!(text.contains("kind     fenced\n") && text.ends_with("token    1\n"), "{text}");
    server.output(&["semaphore", "create", "s", "2"]).assert_code(0);
    assert!(server.output(&["inspect", "s"]).out.contains("which may be no lock at all\ncount    2\n"));
    server.output(&["semaphore", "acquire", "s", "--lease", "60"]).assert_code(0);
    let text = server.output(&["inspect", "s"]).out;
    assert!(text.contains("kind     expirable-semaphore\npermits  1 free, 1 taken\n"), "{text}");
}

/// The owner in the line of `hold`.
fn owner_of(line: &str) -> String {
    line.split(r#""owner":""#).nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[test]
fn list_shows_the_locks_and_counts_what_may_be_one() {
    let server = Server::start();
    assert_eq!(server.output(&["list"]).out, "");
    let mut holders = Vec::new();
    for (name, kind) in [("jobs:a", "lock"), ("jobs:b\u{1b}[2J", "write"), ("pages", "value")] {
        let hold = ["hold", name, "--kind", kind, "--owner", "me"];
        let mut holder = Process::start(server.cli(&hold).stdin(Stdio::piped()));
        holders.push((owner_of(&holder.line()), holder));
    }
    server.output(&["semaphore", "create", "permits", "2"]).assert_code(0);
    server.output(&["semaphore", "acquire", "permits", "--lease", "60"]).assert_code(0);
    server.output(&["latch", "create", "gate", "3"]).assert_code(0);
    let done = server.output(&["list"]);
    done.assert_code(0);
    let lines: Vec<&str> = done.out.lines().collect();
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(words(0), ["NAME", "KIND", "HOLDER", "COUNT", "LEASE", "WAITERS"]);
    assert_eq!(words(1)[..4], ["jobs:a", "lock", &*holders[0].0, "1"]);
    // A name cannot write to the terminal.
    assert_eq!(words(2)[..2], ["jobs:b\\u{1b}[2J", "write"]);
    assert_eq!(words(3)[..5], ["pages", "value", &*holders[2].0, "1", words(3)[4]]);
    assert_eq!(words(4), ["permits", "expirable-semaphore", "1", "taken", "1", "no", "end", "0"]);
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[0].find("KIND"), lines[1].find("lock"), "{}", done.out);
    assert!(done.err.contains("1 strings may be") && done.err.contains("--all"), "{done:?}");

    let json = server.output(&["list", "jobs:*", "--json"]);
    assert_eq!(json.out.lines().count(), 2);
    assert!(json.out.starts_with('{') && json.out.contains(r#""kind":"write""#), "{json:?}");
    let all = server.output(&["list", "gate", "--all", "--json"]);
    assert!(all.out.contains(r#""certain":false,"count":3"#) && all.err.is_empty(), "{all:?}");
}

/// Each shown name can be pasted into another command.
#[test]
fn a_name_is_shown_as_it_is_except_for_what_cannot_be_printed() {
    let server = Server::start();
    let names = [
        (r#"{"a":1}"#, r#"{"a":1}"#),
        (r"it's\n", r"it's\n"),
        ("e\u{301}", "e\u{301}"),
        ("a\nb\u{7f}\u{202e}", "a\\nb\\u{7f}\\u{202e}"),
    ];
    for (name, shown) in names {
        let _: u32 = server.raw(&["HSET", name, "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
        let text = server.output(&["inspect", name]).out;
        assert!(text.starts_with(&format!("name     {shown}\n")), "{text}");
        let listed = server.output(&["list"]).out;
        assert!(listed.contains(&format!("{shown}  ")), "{listed}");
    }
}

/// The record shows more than the request of one kind.
#[test]
fn inspect_shows_the_token_and_the_queue_of_the_kind_of_the_option() {
    let server = Server::start();
    let mut holder = hold(&server, &["--kind", "fenced"]);
    holder.line();
    let json = server.output(&["inspect", "n", "--kind", "fenced", "--json"]).out;
    assert!(json.contains(r#""kind":"fenced""#) && json.contains(r#""token":1"#), "{json}");
    let text = server.output(&["inspect", "n", "--kind", "fenced"]).out;
    assert!(text.ends_with("token    1\n"), "{text}");
    holder.close_input();
    holder.end().assert_code(0);

    let _fair = crate::support::hold(&server, "fair", &["--kind", "fair"]);
    let _waiter = server.spawn(&["run", "fair", "--kind", "fair", "--owner", "next", "--", "true"]);
    eventually(|| server.raw::<u32>(&["LLEN", "redisson_lock_queue:{fair}"]) == 1);
    let json = server.output(&["inspect", "fair", "--kind", "fair", "--json"]).out;
    assert!(json.contains(r#""kind":"fair""#) && json.contains("owner-next-"), "{json}");
    let text = server.output(&["inspect", "fair", "--kind", "fair"]).out;
    assert!(text.contains("waiters  1\nqueue    1. "), "{text}");

    let free = server.output(&["inspect", "none", "--kind", "lock", "--json"]).out;
    assert!(free.contains(r#""kind":null"#) && free.contains(r#""certain":false"#), "{free}");
    let text = server.output(&["inspect", "none", "--kind", "lock"]).out;
    assert!(text.contains("holder   none: no lock, semaphore or latch has this name now"), "{text}");
}

#[test]
fn a_verbose_wait_says_what_is_waited_for() {
    let server = Server::start();
    server.output(&["semaphore", "create", "s", "1"]).assert_code(0);
    let quiet = server.output(&["semaphore", "acquire", "s", "--lease", "60", "-v"]);
    quiet.assert_code(0);
    assert!(quiet.err.is_empty(), "{quiet:?}");
    server.output(&["latch", "create", "l", "2"]).assert_code(0);
    for (words, text) in [
        (
            ["semaphore", "acquire", "s", "--lease", "60", "-v"].as_slice(),
            "a permit of `s`, of which 0 are free",
        ),
        (
            &["plain-semaphore", "acquire", "p", "--permits", "2", "-v"],
            "2 permits of `p`, of which 0 are free",
        ),
        (&["latch", "wait", "l", "-v"], "the latch `l`, whose count is 2"),
    ] {
        let mut waiter = server.spawn(words);
        waiter.error_line(&format!("waiting for {text}"));
        waiter.signal(Signal::TERM);
        waiter.end().assert_code(143);
    }
}

#[test]
fn the_kind_of_the_option_must_be_that_of_the_record() {
    let server = Server::start();
    let mut holder = hold(&server, &["--kind", "value"]);
    holder.line();
    let done = server.output(&["inspect", "n", "--kind", "lock"]);
    done.assert_code(71);
    assert!(done.err.contains("--kind"), "{done:?}");
    assert!(server.output(&["inspect", "n"]).out.contains("kind     value\n"));
}

#[test]
fn force_unlock_finds_the_kind_and_refuses_what_is_no_lock() {
    let server = Server::start();
    for kind in ["lock", "fair", "fenced", "spin", "read", "write", "value"] {
        let mut holder = hold(&server, &["--kind", kind]);
        holder.line();
        let done = server.output(&["force-unlock", "n", "--yes"]);
        done.assert_code(0);
        assert!(
            done.out.starts_with("released `n`, held by client ") && !server.exists("n"),
            "{kind}: {done:?}"
        );
        holder.signal(Signal::KILL);
        holder.end();
    }
    server.output(&["latch", "create", "l", "1"]).assert_code(0);
    let _: () = server.raw(&["SET", "text", "abc", "PX", "60000"]);
    for (name, remedy) in [("l", "latch count-down"), ("text", "--kind value")] {
        let done = server.output(&["force-unlock", name, "--yes"]);
        done.assert_code(64);
        assert!(done.err.contains(remedy) && server.exists(name), "{done:?}");
    }
    server.output(&["force-unlock", "text", "--kind", "value", "--yes"]).assert_code(0);
    assert!(!server.exists("text"));
}

#[test]
fn force_unlock_needs_a_yes_and_wakes_the_waiters() {
    let server = Server::start();
    let mut holder = hold(&server, &["--owner", "me"]);
    holder.line();
    let mut waiter = server.spawn(&["run", "n", "-v", "--", "echo", "done"]);
    waiter.error_line("waiting for");
    let unsure = server.output(&["force-unlock", "n"]);
    unsure.assert_code(64);
    assert!(unsure.err.contains("--yes") && server.exists("n"), "{unsure:?}");
    let done = server.output(&["force-unlock", "n", "--yes", "--json"]);
    done.assert_code(0);
    assert!(done.out.contains("owner-me-") && done.out.contains(r#""released":true"#), "{done:?}");
    assert_eq!(waiter.line(), "done");
    let free = server.output(&["force-unlock", "free", "--yes"]);
    assert_eq!(free.out, "`free` was free\n");
}

/// Wide characters take two columns.
#[test]
fn the_columns_of_a_list_are_aligned() {
    let server = Server::start();
    for name in ["注文:7", "orders:42"] {
        let _: u32 = server.raw(&["HSET", name, "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
    }
    let text = server.output(&["list"]).out;
    let starts: Vec<&str> = text.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(starts, ["NAME", "orders:42", "注文:7"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("NAME       KIND"), "{text}");
    assert!(lines[1].starts_with("orders:42  lock") && lines[2].starts_with("注文:7     lock"), "{text}");
}

#[test]
fn the_permits_of_a_semaphore_without_leases() {
    let server = Server::start();
    let run = |words: &str| {
        let words: Vec<&str> = ["plain-semaphore"].into_iter().chain(words.split(' ')).collect();
        server.output(&words)
    };
    run("create s 3").assert_code(0);
    run("create s 5").assert_code(75);
    run("acquire s").assert_code(0);
    run("acquire s --permits 2 -n").assert_code(0);
    run("acquire s -n").assert_code(75);
    run(&format!("acquire s -w {BRIEF}")).assert_code(75);
    // Without a lease, a permit outlives the command.
    assert_eq!(run("count s").out, "0\n");
    let waiting = server.spawn(&["plain-semaphore", "acquire", "s", "--permits", "2"]);
    eventually(|| server.raw::<(String, u32)>(&["PUBSUB", "NUMSUB", "redisson_sc:{s}"]).1 == 1);
    server.output(&["plain-semaphore", "release", "s", "--permits", "3"]).assert_code(0);
    waiting.end().assert_code(0);
    assert_eq!(run("count s").out, "1\n");
    run("release s --permits 0").assert_code(64);
    run("release other").assert_code(70);
    assert!(!server.exists("other"));
    assert_eq!(run("count other").out, "0\n");
}

#[test]
fn the_permits_of_a_semaphore() {
    let server = Server::start();
    server.output(&["semaphore", "create", "s", "1"]).assert_code(0);
    server.output(&["semaphore", "create", "s", "2"]).assert_code(75);
    let acquired = server.output(&["semaphore", "acquire", "s", "--lease", "60", "-n"]);
    acquired.assert_code(0);
    let count = server.output(&["semaphore", "count", "s", "--json"]);
    assert_eq!(count.out, "{\"free\":0,\"name\":\"s\",\"permits\":1,\"taken\":1}\n");
    server.output(&["semaphore", "acquire", "s", "--lease", "60", "-n"]).assert_code(75);
    server.output(&["semaphore", "acquire", "s", "--lease", "60", "-w", BRIEF]).assert_code(75);
    server.output(&["semaphore", "release", "s", acquired.out.trim()]).assert_code(0);
    server.output(&["semaphore", "release", "s", acquired.out.trim()]).assert_code(70);
    server.output(&["semaphore", "release", "s", "x"]).assert_code(64);
    assert_eq!(server.output(&["semaphore", "count", "s"]).out, "free     1\ntaken    0\npermits  1\n");
}

#[test]
fn a_latch_opens_for_its_waiters() {
    let server = Server::start();
    server.output(&["latch", "create", "l", "2"]).assert_code(0);
    server.output(&["latch", "create", "l", "1"]).assert_code(75);
    server.output(&["latch", "wait", "l", "-w", BRIEF]).assert_code(75);
    let waiter = server.spawn(&["latch", "wait", "l"]);
    server.output(&["latch", "count-down", "l"]).assert_code(0);
    assert_eq!(server.output(&["latch", "count", "l"]).out, "1\n");
    server.output(&["latch", "count-down", "l"]).assert_code(0);
    waiter.end().assert_code(0);
}

#[test]
fn a_password_in_the_process_list_is_refused() {
    let server = Server::start();
    let done = server.output(&["inspect", "n", "--url", "redis://:canary-in-url@127.0.0.1:1/"]);
    done.assert_code(64);
    assert!(done.err.contains("REDISSON_LOCK_URL") && !done.err.contains("canary"), "{done:?}");
    // Without a password the option comes before the variable.
    let mut command = server.cli(&["inspect", "n", "--url", &server.url()]);
    let output = command.env("REDISSON_LOCK_URL", "redis+unix:///no/such").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_password_is_not_shown() {
    let server = Server::start();
    let url = server.url() + "?pass=canary-in-url";
    for words in [["run", "n", "-v", "--", "true"].as_slice(), &["inspect", "n", "--verbose"]] {
        let output = server.cli(words).env("REDISSON_LOCK_URL", &url).output().unwrap();
        // The server has no password, and refuses one.
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(71), "{error}");
        assert!(error.contains("--password-file") && !error.contains("canary"), "{error}");
    }
    // Of two passwords, neither is taken.
    let mut both = server.cli(&["inspect", "n"]);
    both.env("REDISSON_LOCK_URL", &url).env("REDISSON_LOCK_PASSWORD", "another");
    let output = both.output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn a_configuration_of_redisson_names_the_server() {
    let server = Server::start();
    let file = std::env::temp_dir().join(format!("redisson-lock-config-{}.yaml", std::process::id()));
    let path = file.to_str().unwrap();
    let port = server.listen();
    std::fs::write(&file, format!("singleServerConfig:\n  address: \"redis://127.0.0.1:{port}\"\n")).unwrap();
    let done = server.output(&["run", "n", "--config", path, "-c", "exit 5"]);
    std::fs::write(&file, "clusterServersConfig: 3").unwrap();
    let wrong = server.output(&["inspect", "n", "--config", path]);
    std::fs::remove_file(&file).unwrap();
    done.assert_code(5);
    wrong.assert_code(64);
    server.output(&["inspect", "n", "--config", path]).assert_code(64);
}

/// The times of the file apply unless the command line has others.
#[test]
fn the_times_of_a_configuration_of_redisson_apply() {
    let server = Server::start();
    let file = std::env::temp_dir().join(format!("redisson-lock-times-{}.yaml", std::process::id()));
    let path = file.to_str().unwrap();
    let address = |port| format!("  address: \"redis://127.0.0.1:{port}\"\n");
    let times = "lockWatchdogTimeout: 77000\n";
    std::fs::write(&file, format!("{times}singleServerConfig:\n{}", address(server.listen()))).unwrap();
    for (options, range) in [([].as_slice(), 60_000..=77_000), (&["--lease", "20"], 10_000..=20_000)] {
        let words = [["hold", "n", "--config", path].as_slice(), options].concat();
        let mut holder = Process::start(server.cli(&words).stdin(Stdio::piped()));
        holder.line();
        let left: i64 = server.raw(&["PTTL", "n"]);
        assert!(range.contains(&left), "{left}");
        holder.close_input();
        holder.end().assert_code(0);
    }
    // A listener that never answers.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = hole.local_addr().unwrap().port();
    let section = format!("singleServerConfig:\n  connectTimeout: 6000\n  timeout: 6000\n{}", address(port));
    std::fs::write(&file, section).unwrap();
    let started = std::time::Instant::now();
    server.output(&["inspect", "n", "--config", path]).assert_code(69);
    let took = started.elapsed().as_secs_f64();
    server.output(&["inspect", "n", "--config", path, "--timeout", "0.3"]).assert_code(69);
    let limited = started.elapsed().as_secs_f64() - took;
    std::fs::remove_file(&file).unwrap();
    // Longer than the default for a URL.
    assert!(took > 5.9 && limited < took, "{took} {limited}");
}

#[test]
fn a_verbose_wait_says_who_holds_the_lock_and_for_how_long() {
    let server = Server::start();
    let owner = "7c9e6679-7425-40de-944b-e07fc1f90ae7:85";
    let _: u32 = server.raw(&["HSET", "n", owner, "1"]);
    let mut waiter = server.spawn(&["run", "n", "-v", "--", "echo", "done"]);
    let text = "waiting for `n`, held by client 7c9e6679-7425-40de-944b-e07fc1f90ae7, thread 85";
    assert!(waiter.error_line("waiting for").trim_end().ends_with(text));
    waiter.error_line(&format!("{text}, for at least 2 s"));
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    assert_eq!(waiter.line(), "done");
}
