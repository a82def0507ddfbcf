//! `watch`: what happens to locks, as it happens.

use crate::screen::Screen;
use crate::support::{Process, Server, eventually, hold};
use rustix::process::Signal;

fn watch(server: &Server, words: &[&str]) -> Process {
    server.spawn(&[["watch", "--interval", "0.05"].as_slice(), words].concat())
}

#[track_caller]
fn assert_event(line: &str, event: &str, parts: &[&str]) {
    assert!(line.contains(&format!(r#""event":"{event}""#)), "{event}: {line}");
    for part in parts {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[test]
fn the_events_of_one_lock_come_in_order() {
    let server = Server::start();
    let mut watching = watch(&server, &["n", "--json"]);
    let free = watching.line();
    assert_event(&free, "free", &[r#""name":"n""#, r#""kind":null"#, r#""owner":null"#, r#""time_ms":"#]);
    for kind in ["lock", "write", "value"] {
        let (mut holder, owner) = hold(&server, "n", &["--kind", kind]);
        let who = format!(r#""owner":"{owner}""#);
        assert_event(&watching.line(), "acquired", &[&who, &format!(r#""kind":"{kind}""#), r#""count":1"#]);
        holder.close_input();
        holder.end().assert_code(0);
        assert_event(&watching.line(), "released", &[&who]);
    }

    // Nobody renews the lease.
    let (holder, owner) = hold(&server, "n", &["--lease", "0.6"]);
    assert_event(&watching.line(), "acquired", &[&owner]);
    holder.signal(Signal::KILL);
    holder.end();
    assert_event(&watching.line(), "lost", &[&owner, r#""detail":"the lease ended""#]);

    let (holder, owner) = hold(&server, "n", &[]);
    assert_event(&watching.line(), "acquired", &[&owner]);
    let _: u32 = server.raw(&["DEL", "n"]);
    assert_event(&watching.line(), "ended", &[&owner, r#""detail":"no message was published""#]);
    holder.signal(Signal::KILL);
    holder.end();

    server.output(&["semaphore", "create", "n", "2"]).assert_code(0);
    assert_event(&watching.line(), "created", &[r#""detail":"2""#]);
    server.output(&["semaphore", "acquire", "n", "--lease", "60"]).assert_code(0);
    assert_event(&watching.line(), "count", &[r#""detail":"1 free, 1 taken""#, "expirable-semaphore"]);
    watching.signal(Signal::TERM);
    watching.end().assert_code(143);
}

/// The lease is read when the server answers. A watch that sees the answer late must not take that time for a part of the lease.
#[test]
fn a_late_answer_does_not_hide_the_end_of_a_lease() {
    let server = Server::start();
    let (holder, owner) = hold(&server, "n", &["--lease", "3"]);
    let mut watching = watch(&server, &["n", "--json"]);
    assert_event(&watching.line(), "held", &[&owner]);
    holder.signal(Signal::KILL);
    holder.end();
    server.signal(Signal::STOP);
    // Some intervals, so that a request is on its way.
    std::thread::sleep(std::time::Duration::from_millis(300));
    watching.signal(Signal::STOP);
    eventually(|| crate::support::state(watching.pid()) == Some('T'));
    server.signal(Signal::CONT);
    eventually(|| !server.exists("n"));
    watching.signal(Signal::CONT);
    assert_event(&watching.line(), "lost", &[&owner, r#""detail":"the lease ended""#]);
}

#[test]
fn a_pattern_finds_new_locks() {
    let server = Server::start();
    let (mut first, one) = hold(&server, "jobs:1", &[]);
    let _other = hold(&server, "other", &[]);
    let mut watching = watch(&server, &["jobs:*"]);
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let held = words(watching.line());
    assert!(held[0].ends_with('Z') && held[0].len() == "15:04:05.678Z".len(), "{held:?}");
    assert_eq!(held[1..], ["held", "jobs:1", "lock", &one]);
    let (mut second, two) = hold(&server, "jobs:2", &[]);
    assert_eq!(words(watching.line())[1..], ["acquired", "jobs:2", "lock", &two]);
    first.close_input();
    assert_eq!(words(watching.line())[1..], ["released", "jobs:1", "lock", &one]);
    second.close_input();
    assert_eq!(words(watching.line())[1..], ["released", "jobs:2", "lock", &two]);
}

/// The names of a pattern are those in Redis, so the mapper of the configuration does not apply to them.
#[test]
fn a_pattern_finds_locks_whose_names_are_mapped() {
    let server = Server::start();
    let config = server.socket().replace("socket", "config.yaml");
    let text = format!(
        "singleServerConfig: {{address: 'redis://127.0.0.1:{}'}}\nnameMapper: !<com.example.Prefix> {{prefix: 'app:'}}\n",
        server.listen()
    );
    std::fs::write(&config, text).unwrap();
    let (mut holder, owner) = hold(&server, "app:n", &[]);
    let mut watching = watch(&server, &["app:*", "--json", "--config", &config]);
    assert_event(&watching.line(), "held", &[r#""name":"app:n""#, &owner]);
    holder.close_input();
    assert_event(&watching.line(), "released", &[r#""name":"app:n""#, &owner]);
}

#[test]
fn a_watch_outlasts_an_outage() {
    let mut server = Server::durable();
    let (_holder, owner) = hold(&server, "n", &[]);
    let mut watching = watch(&server, &["n", "--json"]);
    assert_event(&watching.line(), "held", &[&owner]);
    server.kill();
    assert_event(&watching.line(), "error", &["unavailable"]);
    server.start_again();
    server.output(&["force-unlock", "n", "--yes"]).assert_code(0);
    // The client may still be reconnecting when the message is published.
    let mut line = watching.line();
    while line.contains(r#""event":"error""#) {
        line = watching.line();
    }
    assert!(line.contains(r#""event":"released""#) || line.contains(r#""event":"ended""#), "{line}");
    eventually(|| !server.exists("n"));
}

/// A line that is longer than the window continues in the next row.
#[test]
fn the_events_are_shown_in_a_narrow_and_in_a_wide_terminal() {
    for size in [(24, 80), (40, 160)] {
        let server = Server::start();
        let mut screen = Screen::start(&server, size, &["watch", "n", "--interval", "0.05"]);
        screen.until("free");
        let (mut holder, owner) = hold(&server, "n", &[]);
        screen.until("acquired");
        holder.close_input();
        let shown = screen.until("released");
        // Read on until the last line is complete.
        let shown = if shown.trim_end().ends_with(&owner) {
            shown
        } else {
            screen.until(&format!("released  n  lock  {owner}"))
        };
        let (times, events): (Vec<_>, Vec<_>) =
            shown.lines().filter_map(|line| line.split_once("  ")).unzip();
        assert!(times.iter().all(|time: &&str| time.len() == 13 && time.ends_with('Z')), "{size:?}: {shown}");
        let expected = [
            "free      n".to_owned(),
            format!("acquired  n  lock  {owner}"),
            format!("released  n  lock  {owner}"),
        ];
        assert_eq!(events, expected, "{size:?}");
        assert_eq!(
            [screen.colour(0, 15), screen.colour(1, 15)],
            [vt100::Color::Default, vt100::Color::Idx(2)]
        );
    }
}
