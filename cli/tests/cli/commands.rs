//! The commands other than `run`, and connecting.

use crate::support::{BRIEF, Process, Server, eventually};
use rustix::process::Signal;
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

#[test]
fn hold_reports_a_loss() {
    let server = Server::start();
    let mut holder = hold(&server, &["--lease", "1.5"]);
    holder.line();
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    assert_eq!(holder.line(), r#"{"event":"lost","name":"n","reason":"the record is gone"}"#);
    holder.end().assert_code(70);
}

#[test]
fn inspect_names_the_holder_and_counts_the_waiters() {
    let server = Server::start();
    let free = server.output(&["inspect", "n", "--json"]);
    let text = r#"{"held":false,"holders":[],"kind":"lock","lease_ms":null,"name":"n","waiters":0}"#
        .to_owned()
        + "\n";
    assert_eq!(free.out, text);

    let mut holder = hold(&server, &["--owner", "me"]);
    holder.line();
    let _waiter = server.spawn(&["run", "n", "--", "true"]);
    eventually(|| server.output(&["inspect", "n", "--json"]).out.contains(r#""waiters":1"#));
    let json = server.output(&["inspect", "n", "--json"]).out;
    assert!(json.contains(r#""held":true"#) && json.contains(r#""count":1"#), "{json}");
    let text = server.output(&["inspect", "n"]).out;
    assert!(text.contains("owner-me-") && text.contains("waiters  1"), "{text}");
}

#[test]
fn a_record_of_another_kind_is_an_error_with_a_remedy() {
    let server = Server::start();
    let mut holder = hold(&server, &["--kind", "value"]);
    holder.line();
    let done = server.output(&["inspect", "n"]);
    done.assert_code(71);
    assert!(done.err.contains("--kind"), "{done:?}");
    server.output(&["inspect", "n", "--kind", "value"]).assert_code(0);
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
