//! The options and exit codes of `hold`, `inspect`, `force-unlock`, `semaphore` and `latch`; and that a test names each option.

use crate::support::{BRIEF, Process, Server, eventually};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Stdio;

/// Starts `hold`, and returns it with its first line.
fn hold(server: &Server, words: &[&str]) -> (Process, String) {
    let mut holder = Process::start(server.cli(&[["hold"].as_slice(), words].concat()).stdin(Stdio::piped()));
    let line = holder.line();
    assert!(line.contains(r#""event":"held""#), "{line}");
    (holder, line)
}

fn end(mut holder: Process) {
    holder.close_input();
    holder.end().assert_code(0);
}

#[test]
fn hold_waits_as_its_options_say() {
    let server = Server::start();
    let (holder, _) = hold(&server, &["n"]);
    let busy = server.output(&["hold", "n", "-n"]);
    busy.assert_code(75);
    assert!(busy.err.contains("`n` is busy, held by client ") && busy.out.is_empty(), "{busy:?}");
    server.output(&["hold", "n", "-w", BRIEF]).assert_code(75);
    let mut command = server.cli(&["hold", "n", "-v", "--wait", "60"]);
    let mut waiter = Process::start(command.stdin(Stdio::piped()));
    waiter.error_line("waiting for `n`, held by client ");
    end(holder);
    waiter.line();
    end(waiter);
    let waiter = server.spawn(&["hold", "n"]);
    waiter.end().assert_code(0);
}

#[test]
fn hold_keeps_the_lock_as_its_options_say() {
    let server = Server::start();
    let (holder, line) = hold(&server, &["job", "--kind", "fenced", "--min-hold", "300", "--owner", "me"]);
    assert!(line.contains(r#""token":1"#) && line.contains("owner-me-"), "{line}");
    end(holder);
    let left: i64 = server.raw(&["PTTL", "job"]);
    assert!((200_000..=300_000).contains(&left), "{left}");

    let (mut holder, _) = hold(&server, &["n", "--lease", "60", "--max-hold", "0.8"]);
    let left: i64 = server.raw(&["PTTL", "n"]);
    assert!(left <= 800, "{left}");
    let lost = holder.line();
    assert!(lost.contains(r#""event":"lost""#), "{lost}");
    holder.end().assert_code(70);

    let (holder, _) = hold(&server, &["n", "--lease", "77"]);
    let left: i64 = server.raw(&["PTTL", "n"]);
    assert!((60_000..=77_000).contains(&left), "{left}");
    end(holder);
}

#[test]
fn hold_shares_as_its_options_say() {
    let server = Server::start();
    let readers = [hold(&server, &["n", "-s"]).0, hold(&server, &["n", "--shared"]).0];
    server.output(&["hold", "n", "-x", "-n"]).assert_code(75);
    readers.into_iter().for_each(end);
    let (writer, _) = hold(&server, &["n", "--exclusive"]);
    server.output(&["hold", "n", "-s", "-n"]).assert_code(75);
    end(writer);

    let both = [hold(&server, &["pool", "--limit", "2"]).0, hold(&server, &["pool", "--limit", "2"]).0];
    server.output(&["hold", "pool", "--limit", "2", "-n"]).assert_code(75);
    both.into_iter().for_each(end);
    server.output(&["hold", "pool", "--limit", "3"]).assert_code(64);
}

#[test]
fn inspect_and_force_unlock_take_the_side_of_a_read_write_lock() {
    let server = Server::start();
    for (side, long, kind) in [("-s", "--shared", "read"), ("-x", "--exclusive", "write")] {
        for option in [side, long] {
            let (holder, _) = hold(&server, &["n", side]);
            let seen = server.output(&["inspect", "n", option, "--json"]);
            let parts = [&format!(r#""kind":"{kind}""#), r#""held":true"#];
            assert!(parts.iter().all(|part| seen.out.contains(*part)), "{seen:?}");
            let other = if side == "-s" { "-x" } else { "-s" };
            let unchanged = server.output(&["force-unlock", "n", other, "-y"]);
            unchanged.assert_code(75);
            assert!(
                unchanged.err.contains("is of another kind or side, held by") && server.exists("n"),
                "{unchanged:?}"
            );
            let done = server.output(&["force-unlock", "n", option, "-y"]);
            done.assert_code(0);
            assert!(done.out.starts_with("released `n`, held by client ") && !server.exists("n"), "{done:?}");
            holder.signal(Signal::KILL);
            holder.end();
        }
    }
    for command in ["inspect", "force-unlock"] {
        server.output(&[command, "n", "-s", "-x"]).assert_code(64);
        server.output(&[command, "n", "--kind", "none"]).assert_code(64);
        server.output(&[command, ""]).assert_code(64);
    }
}

#[test]
fn each_command_reports_an_unreachable_server_and_a_record_of_another_kind() {
    let server = Server::start();
    let _: u32 = server.raw(&["RPUSH", "list", "x"]);
    for words in [
        ["hold", "list"].as_slice(),
        &["inspect", "list", "--kind", "lock"],
        &["force-unlock", "list", "--kind", "lock", "--yes"],
        &["semaphore", "create", "list", "1"],
        &["semaphore", "count", "list"],
        &["semaphore", "acquire", "list", "--lease", "9"],
        &["semaphore", "release", "list", "00000000000000000000000000000000"],
        &["latch", "count-down", "list"],
        &["latch", "count", "list"],
        &["latch", "wait", "list"],
    ] {
        let mut away = server.cli(&[words, &["--timeout", "0.2"]].concat());
        let away = away.env("REDISSON_LOCK_URL", "redis+unix:///no/such").output().unwrap();
        assert_eq!(away.status.code(), Some(69), "{words:?}: {away:?}");
        let wrong = server.output(words);
        // A semaphore that exists is unchanged, whatever it is.
        let code = if words[1] == "create" { 75 } else { 71 };
        assert!(wrong.code == Some(code) && !wrong.err.is_empty(), "{words:?}: {wrong:?}");
    }
    let away = server.cli(&["latch", "create", "l", "1", "--url", "redis+unix:///no/such"]).output().unwrap();
    assert_eq!(away.status.code(), Some(69));
    server.output(&["latch", "create", "list", "1"]).assert_code(75);
}

#[test]
fn a_signal_ends_the_waits_of_semaphores_and_latches() {
    let server = Server::start();
    server.output(&["semaphore", "create", "s", "1"]).assert_code(0);
    server.output(&["semaphore", "acquire", "s", "--lease", "60", "--nonblock"]).assert_code(0);
    server.output(&["semaphore", "acquire", "s", "--lease", "60", "--wait", BRIEF]).assert_code(75);
    server.output(&["latch", "create", "l", "1"]).assert_code(0);
    server.output(&["latch", "wait", "l", "--wait", BRIEF]).assert_code(75);
    for words in [["semaphore", "acquire", "s", "--lease", "60"].as_slice(), &["latch", "wait", "l"]] {
        let waiter = server.spawn(words);
        eventually(|| server.raw::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == 1);
        waiter.signal(Signal::TERM);
        waiter.end().assert_code(143);
        eventually(|| server.raw::<Vec<String>>(&["PUBSUB", "CHANNELS"]).is_empty());
    }
    for wrong in [
        ["semaphore", "create", "s"].as_slice(),
        &["semaphore", "create", "s", "x"],
        &["semaphore", "acquire", "s"],
        &["semaphore", "acquire", "s", "--lease", "1", "-n", "-w", "1"],
        &["semaphore", "frobnicate"],
        &["latch", "create", "l", "0"],
        &["latch", "wait", "l", "-w", "x"],
        &["latch"],
    ] {
        server.output(wrong).assert_code(64);
    }
}

/// The options of the man pages, each with its command. Options of all commands have none.
fn options() -> Vec<(String, Vec<String>)> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("man");
    let mut options = Vec::new();
    for page in fs::read_dir(pages).unwrap().map(|page| page.unwrap().path()) {
        let text = fs::read_to_string(&page).unwrap().replace("\\-", "-");
        let title = page.file_stem().unwrap().to_str().unwrap();
        let command = title.strip_prefix("redisson-lock").unwrap().trim_start_matches('-').to_owned();
        let lines = text.lines().zip(text.lines().skip(1));
        for (_, line) in lines.filter(|(before, line)| *before == ".TP" && line.starts_with("\\fB-")) {
            let names = line.split("\\fB").skip(1).map(|name| name.split('\\').next().unwrap().to_owned());
            options.push((command.clone(), names.collect()));
        }
    }
    options
}

/// The functions of the tests, each with the helpers of its own file that it calls.
fn functions() -> Vec<String> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [own.join("tests/cli"), own.join("../tests/it")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|file| file.unwrap().path()).filter(|file| {
        file.extension().is_some_and(|extension| extension == "rs")
            && (file.starts_with(&folders[0]) || file.to_string_lossy().contains("/command_line"))
    });
    let mut functions = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let of_file: Vec<&str> = text.split("\n}\n").filter(|part| part.contains("fn ")).collect();
        let name = |function: &str| {
            let name = function.split("fn ").nth(1).unwrap().split(['(', '<']).next().unwrap();
            format!("{name}(")
        };
        for function in &of_file {
            let helpers = of_file.iter().filter(|helper| !helper.contains("#[test]"));
            let called = helpers.filter(|helper| function.contains(&name(helper)));
            functions.push(called.fold((*function).to_owned(), |all, helper| all + "\n" + helper));
        }
    }
    functions
}

/// Whether the text names the option as a whole word.
fn names(text: &str, option: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    text.match_indices(option).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + option.len()..].chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// A test that names a command and an option need not pass the one to the other. This finds options that were forgotten.
#[test]
fn a_test_names_each_option_with_its_command() {
    let (functions, options) = (functions(), options());
    let commands = options.iter().map(|(command, _)| command);
    let commands: std::collections::BTreeSet<_> = commands.collect();
    let is_global =
        |names: &[String]| options.iter().filter(|(_, other)| other == names).count() == commands.len();
    let mut missing = Vec::new();
    for (command, spellings) in &options {
        let is_global = is_global(spellings);
        // `latch-count-down` is the command `latch count-down`.
        let of_group = |group| Some((group, command.strip_prefix(group)?.strip_prefix('-')?));
        let words: Vec<String> =
            match ["latch", "semaphore", "plain-semaphore"].into_iter().find_map(of_group) {
                Some((group, word)) => vec![format!("{group:?}"), format!("{word:?}")],
                None if is_global || command.is_empty() => Vec::new(),
                None => vec![format!("{command:?}")],
            };
        let tested = functions.iter().any(|function| {
            let is_of_command = is_global || words.iter().all(|word| function.contains(word));
            is_of_command && spellings.iter().any(|spelling| names(function, spelling))
        });
        // `--help` of each command is clap's own.
        if !tested && !spellings.contains(&"--help".to_owned()) {
            missing.push(format!("{command} {spellings:?}"));
        }
    }
    assert!(options.len() > 100, "{}", options.len());
    assert!(missing.is_empty(), "no test names these options: {missing:#?}");
}
