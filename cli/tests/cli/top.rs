//! `top` in the window of a terminal emulator.

use crate::screen::{BEFORE, Screen};
use crate::support::{PROGRAM, Server, eventually, hold};
use crate::terminal::Terminal;
use rustix::process::Signal;
use std::collections::BTreeMap;

const NARROW: (u16, u16) = (24, 80);
const WIDE: (u16, u16) = (40, 160);
/// The holder of the records that no client holds.
const OWNER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7:85";
const OTHER: &str = "0a6f0f62-9bd8-4b3d-8f0e-5c1f3f5b7a01:1";

fn top(server: &Server, size: (u16, u16), words: &[&str]) -> Screen {
    Screen::start(server, size, &[["top", "--interval", "0.05"].as_slice(), words].concat()).show_before()
}

/// Locks whose records do not change.
fn records(server: &Server) {
    let _: u32 = server.raw(&["HSET", "orders:42", OWNER, "2"]);
    let _: u32 = server.raw(&["HSET", "注文:7", "mode", "read", OWNER, "1", OTHER, "1"]);
    let _: u32 = server.raw(&["HSET", "inventory:warehouse:north", OTHER, "1"]);
    // 4 days and some hours, for longer than the test.
    for name in ["orders:42", "注文:7"] {
        let _: u32 = server.raw(&["PEXPIRE", name, "360000000"]);
    }
    let _: () = server.raw(&["SET", "cache:hits", "17"]);
}

/// The text with a `T` in place of each time that changes.
fn masked(shown: &str) -> String {
    let word = |word: &str| {
        let (time, end) = word.split_at(word.trim_end_matches(['+', ' ', ',']).len());
        match time.strip_suffix('s') {
            Some(seconds) if seconds.parse::<u8>().is_ok() => format!("{:>1$}{end}", "T", time.len()),
            _ => word.to_owned(),
        }
    };
    let line = |line: &str| line.split_inclusive(' ').map(word).collect::<String>().trim_end().to_owned();
    shown.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Waits until the window shows exactly these lines, and the last one at its bottom.
#[track_caller]
fn until(screen: &mut Screen, (rows, _): (u16, u16), lines: &[&str]) {
    let (last, lines) = lines.split_last().unwrap();
    let mut expected = lines.to_vec();
    expected.resize(usize::from(rows) - 1, "");
    expected.push(last);
    let expected = expected.join("\n");
    screen.wait(&expected, |shown| masked(shown) == expected);
}

/// Waits until the first column of the table has these names, from the top.
#[track_caller]
fn until_names(screen: &mut Screen, names: &[&str]) {
    screen.wait(&names.join("\n"), |shown| {
        let lines = shown.lines().skip(2).take_while(|line| !line.trim().is_empty());
        lines.map(|line| line.split(' ').next().unwrap()).eq(names.iter().copied())
    });
}

#[test]
fn a_registered_holder_is_shown_by_its_name() {
    let server = Server::start();
    let client = OWNER.split(':').next().unwrap();
    let name = "orders-service on host-3, pid 4711";
    let value = "application=orders-service\nhost=host-3\npid=4711\nsince=1";
    let () = server.raw(&["SET", &format!("redisson-lock:client:{client}"), value]);
    let _: u32 = server.raw(&["HSET", "orders:42", OWNER, "1"]);
    let mut screen = top(&server, WIDE, &[]);
    let table = screen.until(name);
    assert!(!table.contains(OWNER), "{table}");
    let _: u32 = server.raw(&["HSET", "jobs:1", "0b4f3c1a-0000-4000-8000-000000000000:85", "1"]);
    screen.until("jobs:1");
    screen.press("/host-3\r");
    screen.wait("only the named one", |text| !text.contains("jobs:1") && text.contains(name));
    screen.press("\r");
    let details = screen.until(OWNER);
    assert!(details.contains(name), "{details}");
    screen.press("\x1bq");
}

const STATUS: &str = "q quit  s sort  / filter  p pause  Enter details  ? help  1 hidden: --all";

#[test]
fn a_narrow_and_a_wide_window_show_the_locks() {
    let server = Server::start();
    records(&server);
    let mut narrow = top(&server, NARROW, &[]);
    let mut wide = top(&server, WIDE, &[]);
    narrow.until("3 found, 3 held");
    wide.until("3 found, 3 held");
    let (_holder, owner) = hold(&server, "deploy", &["--owner", "deploy", "--lease", "360000"]);
    let _waiter = server.spawn(&["run", "deploy", "--", "true"]);

    let short = format!("{}…:owner-deplo…", &owner[..4]);
    let lines = [
        "top  *  4 found, 4 held, 1 waited for, by waiters                   every 0.05 s",
        "NAME                  KIND HOLDERS OWNER              WAITERS WAITED HELD  LEASE",
        &format!("deploy                lock       1 {short}       1      T    T  4d03h"),
        "inventory:warehouse:… lock       1 0a6f0f62-9bd8-4…:1       0      -   T+ no end",
        "orders:42             lock       1 7c9e6679-7425-…:85       0      -   T+  4d03h",
        "注文:7                read       2 7c9e6679-7425-…:85       0      -   T+  4d03h",
        STATUS,
    ];
    until(&mut narrow, NARROW, &lines);
    let row = |name: &str, owner: &str, rest: &str| format!("{name}  {owner:<86}  {rest}");
    let title = "redisson-lock top  *  4 found, 4 held, 1 waited for, by waiters";
    let lines = [
        &*format!("{title:<148}every 0.05 s"),
        &*row("NAME                       KIND  HOLDERS", "OWNER", "WAITERS  WAITED  HELD   LEASE"),
        &*row("deploy                     lock        1", &owner, "      1       T     T   4d03h"),
        &*row("inventory:warehouse:north  lock        1", OTHER, "      0       -    T+  no end"),
        &*row("orders:42                  lock        1", OWNER, "      0       -    T+   4d03h"),
        &*row("注文:7                     read        2", OWNER, "      0       -    T+   4d03h"),
        STATUS,
    ];
    until(&mut wide, WIDE, &lines);
    // The window of one becomes that of the other.
    narrow.resize(WIDE);
    until(&mut narrow, WIDE, &lines);
    // One that is too small for the table still has the names.
    narrow.resize((4, 20));
    narrow.wait("names", |shown| {
        let lines: Vec<_> = shown.lines().collect();
        lines.len() == 4 && lines[1].starts_with("NAME") && lines[2].starts_with("deploy ")
    });
    narrow.resize((1, 1));
    narrow.wait("a frame of one character", |shown| shown.trim_end().chars().count() <= 1);
    narrow.resize(NARROW);
    narrow.until("inventory:warehouse:…");
}

#[test]
fn keys_move_sort_filter_and_pause() {
    let server = Server::start();
    records(&server);
    let _: u32 = server.raw(&["HSET", "apples", OTHER, "1"]);
    let _: u32 = server.raw(&["PEXPIRE", "apples", "90000000"]);
    let mut screen = top(&server, NARROW, &[]);
    // Nobody waits, so the names decide.
    let by_name = ["apples", "inventory:warehouse:…", "orders:42", "注文:7"];
    until_names(&mut screen, &by_name);
    assert!(screen.is_reversed(2));
    for (keys, row) in [("j", 3), ("\x1b[B", 4), ("k", 3), ("\x1b[A", 2), ("k", 2), ("\x1b[F", 5), ("j", 5)] {
        screen.press(keys);
        screen.wait_for(&format!("row {row} after {keys:?}"), |screen| screen.is_reversed(row));
    }
    // The selection stays with its lock: the shortest lease comes first.
    for (sort, first, selected) in [("waited", "apples", 5), ("held", "apples", 5), ("lease", "apples", 4)] {
        screen.press("s");
        let shown = screen.until(&format!("by {sort} "));
        assert!(shown.lines().nth(2).unwrap().starts_with(first), "{shown}");
        screen.wait_for(sort, |screen| screen.is_reversed(selected));
    }
    until_names(&mut screen, &["apples", "orders:42", "注文:7", "inventory:warehouse:…"]);
    screen.press("s");
    until_names(&mut screen, &["注文:7", "apples", "inventory:warehouse:…", "orders:42"]);
    screen.press("s");
    until_names(&mut screen, &by_name);

    screen.press("/WARE");
    until_names(&mut screen, &["inventory:warehouse:…"]);
    assert!(screen.until("/WARE").lines().nth(23).unwrap().starts_with("/WARE"));
    screen.press("\r");
    screen.until("filter WARE  q quit");
    // The owner counts, too.
    screen.press("/\x7f\x7f\x7f\x7f7c9e");
    until_names(&mut screen, &["orders:42", "注文:7"]);
    screen.press("x");
    screen.until("No name and no owner contains 7c9ex.");
    screen.press("\x1b");
    until_names(&mut screen, &["inventory:warehouse:…"]);
    screen.press("/\x7f\x7f\x7f\x7f\r");
    until_names(&mut screen, &by_name);

    screen.press("p");
    screen.until("PAUSED");
    let _: u32 = server.raw(&["DEL", "apples"]);
    screen.press("?");
    let help = screen.until("any key: back");
    assert!(help.contains("sort by waiters") && help.contains("PAUSED"), "{help}");
    screen.press(" ");
    until_names(&mut screen, &by_name);
    screen.press("p");
    until_names(&mut screen, &by_name[1..]);
    screen.until("every 0.05 s");

    screen.disturb("\x1b[10;1Hfrom another program");
    screen.until("from another program");
    screen.press("\x0c");
    screen.wait("the table alone", |shown| !shown.contains("from another") && shown.contains("orders:42"));
}

#[test]
fn details_show_the_holders_the_token_and_the_queue() {
    let server = Server::start();
    let _: u32 = server.raw(&["HSET", "注文:7", "mode", "read", OWNER, "1", OTHER, "2"]);
    let mut screen = top(&server, NARROW, &[]);
    until_names(&mut screen, &["注文:7"]);
    let bottom = "q quit  Esc back  j k scroll  p pause";
    let title = "top  *  1 found, 1 held, 0 waited for, by waiters                   every 0.05 s";
    let (one, two) =
        (format!("holder   {OWNER}, once, seen for T+"), format!("holder   {OTHER}, 2 times, seen for T+"));
    screen.press("\r");
    let [first, second] = if OTHER < OWNER { [&*two, &*one] } else { [&*one, &*two] };
    let lines = |first, second| {
        [title, "name     注文:7", "kind     read", first, second, "lease    no end", "waiters  0", bottom]
    };
    let (some, other) = (lines(first, second), lines(second, first));
    // The server chooses the order of the holders.
    let is = |shown: &str, lines: &[&str]| {
        masked(shown)
            .replace("for  T", "for T")
            .lines()
            .filter(|line| !line.is_empty())
            .eq(lines.iter().copied())
    };
    screen.wait(&some.join("\n"), |shown| is(shown, &some) || is(shown, &other));
    let _: u32 = server.raw(&["DEL", "注文:7"]);
    screen.until("holder   none: no lock has this name now");
    screen.press("\x1b");
    screen.until("No lock, semaphore or latch matches * now.");

    let (_holder, owner) = hold(&server, "fenced", &["--kind", "fenced"]);
    until_names(&mut screen, &["fenced"]);
    screen.press("\r");
    let shown = screen.until("token    1");
    // The owner is longer than the window is wide.
    let (start, end) = owner.split_at(71);
    let lines: Vec<_> = shown.lines().skip(3).map(str::trim_end).collect();
    assert_eq!(lines[0], format!("holder   {start}"), "{shown}");
    assert!(lines[1].starts_with(&format!("         {end}, once, seen for ")), "{shown}");
    screen.press("\r");

    let (_holder, _) = hold(&server, "fair", &["--kind", "fair"]);
    let _first = server.spawn(&["run", "fair", "--kind", "fair", "--owner", "one", "--", "true"]);
    // The most waited for comes first.
    until_names(&mut screen, &["fair", "fenced"]);
    screen.press("k");
    screen.wait_for("the first row", |screen| screen.is_reversed(2));
    screen.press("\r");
    let shown = screen.wait("the queue", |shown| shown.contains("queue    1. "));
    assert!(shown.contains("kind     fair") && shown.contains(":owner-one-"), "{shown}");
    assert!(shown.contains("waiters  1, seen for "), "{shown}");
}

#[test]
fn a_reading_is_one_pass() {
    let server = Server::start();
    for number in 0..100 {
        let _: u32 = server.raw(&["HSET", &format!("orders:{number}"), OWNER, "1"]);
        let _: u32 = server.raw(&["HSET", &format!("other:{number}"), OTHER, "1"]);
    }
    let mut screen = top(&server, NARROW, &["orders:*"]);
    screen.until("100 found");
    let _: () = server.raw(&["CONFIG", "RESETSTAT"]);
    // The number of calls of each command.
    let calls = || {
        let stats: String = server.raw(&["INFO", "commandstats"]);
        let call = |line: &str| {
            let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), numbers.split(',').next()?.parse::<u64>().unwrap()))
        };
        stats.lines().filter_map(call).collect::<BTreeMap<_, _>>()
    };
    // A pass over 200 keys is at most two steps.
    eventually(|| calls().get("scan") >= Some(&6));
    screen.press("q");
    assert_eq!(screen.end().0, Some(0));
    let mut calls = calls();
    let passes = calls.remove("scan").unwrap();
    // Those of the reading in which the statistics began, and of the last one, are not all among them.
    assert!(calls.remove("evalsha").unwrap() <= 100 * (passes + 1));
    // The name of a client is read once in each pass, however many locks it holds.
    assert!(calls.remove("getrange").unwrap() <= passes + 1);
    let reading =
        ["type", "hscan", "hget", "pttl", "get", "lrange", "llen", "zcard", "time", "pubsub|numsub"];
    let own = ["info", "config|resetstat", "ping"];
    calls.retain(|name, _| !reading.contains(&&**name) && !own.contains(&&**name));
    assert!(calls.is_empty(), "{calls:?}");
}

#[test]
fn every_end_restores_the_terminal() {
    let server = Server::start();
    records(&server);
    for keys in ["q", "\x1b", "\x03", "\rq"] {
        let mut screen = top(&server, NARROW, &[]);
        screen.until("3 found");
        assert!(!screen.until("3 found").contains(BEFORE));
        screen.press(keys);
        assert_eq!(screen.end(), (Some(0), BEFORE.to_owned()), "{keys:?}");
    }
    // It dies by SIGINT itself.
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::INT, None), (Signal::HUP, Some(129))] {
        let mut screen = top(&server, NARROW, &[]);
        screen.until("3 found");
        screen.signal(signal);
        assert_eq!(screen.end(), (code, BEFORE.to_owned()), "{signal:?}");
    }
    // An error that does not go away by itself.
    let mut screen = top(&server, NARROW, &[]);
    screen.until("3 found");
    let _: () = server.raw(&["ACL", "SETUSER", "default", "-scan"]);
    let (code, shown) = screen.end();
    assert_eq!(code, Some(71));
    assert!(
        shown.starts_with(&format!("{BEFORE}\nredisson-lock: ")) && shown.contains("grant +scan"),
        "{shown}"
    );
}

#[test]
fn a_stopped_job_gives_the_terminal_to_the_shell() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("export TERM=xterm; {PROGRAM} top\n"));
    terminal.see("waiters");
    terminal.write("\x1a");
    terminal.see("\x1b[?1049l");
    terminal.see("Stopped");
    terminal.write("fg\n");
    terminal.see("\x1b[?1049h");
    terminal.see("waiters");
    terminal.write("q");
    terminal.see("\x1b[?1049l");
    terminal.write("echo code-$?\n");
    terminal.see("code-0");
}

#[test]
fn the_table_outlasts_an_outage() {
    let mut server = Server::durable();
    records(&server);
    let mut screen = top(&server, NARROW, &["orders:*"]);
    until_names(&mut screen, &["orders:42"]);
    server.kill();
    let shown =
        screen.wait("the state", |shown| shown.contains("UNREACHABLE") && shown.contains("no answer for"));
    assert!(shown.contains("orders:42 lock"), "{shown}");
    assert_eq!(screen.colour(0, 79), vt100::Color::Idx(1));
    // Keys still work.
    screen.press("s");
    screen.until("by waited");
    server.start_again();
    let _: u32 = server.raw(&["HSET", "orders:43", OTHER, "1"]);
    until_names(&mut screen, &["orders:42", "orders:43"]);
    // Perhaps it was held during the outage.
    let shown =
        screen.wait("every 0.05 s", |shown| shown.contains("every 0.05 s") && !shown.contains("no answer"));
    assert!(masked(shown.lines().nth(3).unwrap()).contains(" T+"), "{shown}");
}

#[test]
fn a_terminal_of_unknown_size_is_taken_for_a_narrow_one() {
    let server = Server::start();
    records(&server);
    let mut screen = top(&server, (0, 0), &[]);
    screen.wait("the last line of a narrow window", |shown| {
        shown.lines().nth(23).is_some_and(|line| line == STATUS)
    });
    screen.press("q");
    assert_eq!(screen.end(), (Some(0), BEFORE.to_owned()));
}

#[test]
fn colours_can_be_turned_off() {
    let server = Server::start();
    let (_holder, _) = hold(&server, "n", &[]);
    let _waiter = server.spawn(&["run", "n", "--", "true"]);
    for (variables, colour) in
        [([].as_slice(), vt100::Color::Idx(3)), (&[("NO_COLOR", "1")], vt100::Color::Default)]
    {
        let words = ["top", "--interval", "0.05"];
        let mut screen = Screen::with(&server, NARROW, &words, variables);
        let shown = screen.until("1 waited for");
        let column = shown.lines().nth(1).unwrap().find("WAITERS").unwrap() + "WAITER".len();
        assert_eq!(screen.colour(2, u16::try_from(column).unwrap()), colour);
        assert!(screen.is_reversed(2));
    }
}

#[test]
fn without_a_terminal_other_commands_are_named() {
    let server = Server::start();
    let done = server.output(&["top"]);
    done.assert_code(64);
    assert!(done.err.contains("`list`") && done.err.contains("`watch`"), "{done:?}");
    let mut screen = Screen::with(&server, NARROW, &["top"], &[("TERM", "dumb")]);
    screen.until("`top` needs a terminal");
    assert_eq!(screen.end().0, Some(64));
}
