//! Every example runs and prints the expected output.

use crate::support::{Java, Server, eventually, program, subscribers, versions};
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;

/// Parts of the output of each example, in this order.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "expirable_semaphore",
        &["free seats: 0", "acquired the seat again: Held, an id of 32 digits", "free seats: 1"],
    ),
    (
        "fair",
        &[
            "four tasks wait in the queue",
            "number 1 prints",
            "number 2 prints",
            "number 3 prints",
            "number 4 prints",
        ],
    ),
    (
        "fenced",
        &[
            "the second token is greater: true",
            "the second writes: true",
            "the first, which is Lost(Expired), writes: false",
            "in the ledger: [\"second\"]",
        ],
    ),
    ("fixed_lease", &["held for ", "then: Lost(Expired)", "`nightly` is not held by this guard"]),
    ("group", &["bob and carol: false", "carol and dave: true", "bob and carol, after the release"]),
    ("latch", &["worker 3 is ready", "all are ready"]),
    ("map_entry", &["holds {orders}:UAtNwcfhLzLiIyViPu3ySw:lock"]),
    (
        "mutex",
        &["accepted", "busy for the next request: true", "shipped", "branch 1", "branch 2", "branch 3"],
    ),
    ("non_reentrant", &["refused: a non-reentrant lock on `boiler`"]),
    (
        "multi_lock",
        &[
            "transferred with 2 locks held",
            "transferred with 2 locks held",
            "both while anna is audited: false",
            "bert is held: false",
        ],
    ),
    ("owner", &["the same owner re-enters: true, another acquires: false", "released"]),
    (
        "read_write",
        &[
            "two read",
            "upgrade: a write lock on `prices`",
            "another reads: false",
            "after the downgrade another reads",
        ],
    ),
    (
        "reentrant",
        &["withdrawing, held 2 times", "depositing, held 2 times", "transferred, still held 1 time(s)"],
    ),
    ("run", &["imported 42 rows", "still working, Held", "stopped: the hold on `import` is lost"]),
    ("semaphore", &["six downloads, at most 2 at a time", "2 permits are free"]),
    ("spin", &["holds the lock", "holds the lock", "holds the lock", "all served"]),
    (
        "threads",
        &["holds the lock 2 times", "holds the lock 2 times", "holds the lock 2 times", "all served"],
    ),
    ("try_for", &["busy, held by ", "still busy after 100 ms"]),
    (
        "value",
        &[
            "another program holds it: true",
            "acquired after its lease expired",
            "another program acquires it: false",
        ],
    ),
    ("wait", &["holds the lock", "holds the lock", "holds the lock", "all served"]),
];

#[tokio::test]
async fn each_example_prints_its_expected_output() {
    for (name, expected) in EXAMPLES {
        let server = Server::start();
        let output = example(name, &server).output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {printed}{complaint}");
        let mut rest = printed.as_str();
        for part in *expected {
            let at = rest.find(part).unwrap_or_else(|| panic!("{name}: no {part:?} in {printed:?}"));
            rest = &rest[at + part.len()..];
        }
        let mut left: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
        // These keys stay: semaphores, the last fencing token, and the marks that distinguish a retry from a new request.
        left.retain(|key| !["downloads", "seats"].contains(&key.as_str()));
        left.retain(|key| !key.starts_with("redisson_lock_token:") && !key.contains("}:redisson-lock:"));
        assert!(left.is_empty(), "{name} left {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_java_interop_example_takes_over_from_java() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await;
        let thread = java.thread("t");
        thread.lock("plain", "orders:42").await.unwrap();
        let running = example("java_interop", &server).stdout(Stdio::piped()).spawn().unwrap();
        eventually(|| subscribers(&server, "redisson_lock__channel:{orders:42}") == 1).await;
        thread.unlock("plain", "orders:42").await.unwrap();
        let output = running.wait_with_output().await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(
            printed.starts_with(&format!("held by client {}, 1 time(s)\nacquired after ", java.uuid())),
            "{printed}"
        );
    }
}

#[tokio::test]
async fn the_red_lock_example_holds_at_a_majority() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls = servers.each_ref().map(Server::url).join(",");
    let output = example("red_lock", &servers[0]).env("REDIS_URLS", urls).output().await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let expected = [
        "Held at 3 servers",
        "Held, valid for at least 100 ms: true",
        "released",
        "then: Lost(Gone)",
        "`report` is not held by this guard: the record is gone",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn examples_are_short_and_all_are_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // The whole programs, which `programs.rs` runs.
        if path.is_dir() {
            continue;
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 60, "{} has {lines} lines", path.display());
        found.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    found.sort();
    let mut run: Vec<_> =
        EXAMPLES.iter().map(|(name, _)| *name).chain(["java_interop", "red_lock"]).collect();
    run.sort_unstable();
    assert_eq!(found, run);
}

fn example(name: &str, server: &Server) -> Command {
    let mut command = Command::new(program(name));
    command.env("REDIS_URL", server.url()).kill_on_drop(true);
    command
}
