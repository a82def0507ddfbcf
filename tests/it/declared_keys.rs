//! Each script is given the keys that it uses, because some servers refuse a script any other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use redisson_lock::{Client, Error, Owner};
use tokio::task::JoinSet;

use crate::permissions::use_all;
use crate::support::{Monitor, Server};

const NAME: &str = "n";
const KINDS: [&str; 11] = [
    "lock",
    "spin_lock",
    "non_reentrant_lock",
    "fair_lock",
    "fenced_lock",
    "read_write_lock",
    "value_lock",
    "group_lock",
    "semaphore",
    "expirable_semaphore",
    "count_down_latch",
];

/// A waiter of a fair lock keeps its place each third of it.
const ALLOWANCE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn no_script_uses_a_key_that_it_was_not_given() {
    let mut running = JoinSet::new();
    for name in KINDS.into_iter().chain(["what else there is"]) {
        running.spawn(async move { scripts_of(name).await });
    }
    let called: BTreeSet<String> = running.join_all().await.into_iter().flatten().collect();
    let all: BTreeSet<String> = sources().into_keys().collect();
    assert_eq!(called, all, "each script has to be tried");
}

/// Uses a kind, checks each script that this calls, and returns the names of those.
async fn scripts_of(name: &str) -> BTreeSet<String> {
    let server = Server::start();
    let mut cli = server.cli();
    let mut names = BTreeMap::new();
    for (script, source) in sources() {
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(source).query(&mut cli).unwrap();
        names.insert(sha, script);
    }
    let mut monitor = Monitor::start(&server);
    let builder = || {
        let builder = Client::builder().watchdog_timeout(Duration::from_millis(900));
        builder.fair_lock_wait_timeout(ALLOWANCE)
    };
    let (one, other) =
        (builder().connect(server.url()).await.unwrap(), builder().connect(server.url()).await.unwrap());
    let used = match name {
        "what else there is" => use_the_rest(&one, &other).await,
        name => use_all(name, &server, &one, &other).await,
    };
    used.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut called = BTreeSet::new();
    for (call, commands) in monitor.scripts() {
        let script = &names[&call[1]];
        called.insert(script.clone());
        let declared = &call[3..3 + call[2].parse::<usize>().unwrap()];
        for command in commands.iter().filter(|command| !may(script, command)) {
            // An error if the command has no key.
            let keys: Vec<String> =
                redis::cmd("COMMAND").arg("GETKEYS").arg(command).query(&mut cli).unwrap_or_default();
            for key in keys {
                assert!(declared.contains(&key), "{script} was given {declared:?} and runs {command:?}");
            }
        }
    }
    called
}

/// What is done with other keys.
fn may(script: &str, command: &[String]) -> bool {
    match script {
        // It changes nothing, and an error is what it is for.
        "probe" => true,
        // The other readers are known from the record alone. Without a look at their strings it leaves the record its life.
        "read_release" => command[0] == "pttl" && command[1].contains(":rwlock_timeout:"),
        _ => false,
    }
}

fn sources() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

async fn use_the_rest(one: &Client, other: &Client) -> Result<(), Error> {
    // A waiter keeps its place in a queue, and leaves it.
    let guard = one.fair_lock(NAME).lock().await?;
    assert!(other.fair_lock(NAME).try_lock_for(ALLOWANCE).await?.is_none());
    guard.unlock().await?;
    // Readers beside each other.
    let reads = one.read_write_lock("r").read().clone();
    let first = reads.lock().await?;
    let second = reads.with_owner(&Owner::unique()).lock().await?;
    first.unlock().await?;
    second.unlock().await?;
    // A task that waits behind a hold of its client, and is handed the lock.
    for lock in [one.lock("m"), one.fenced_lock("f")] {
        let guard = lock.lock().await?;
        let next = lock.with_owner(&Owner::unique());
        let (handed, unlocked) = tokio::join!(next.lock(), guard.unlock());
        unlocked?;
        handed?.unlock().await?;
    }
    Ok(())
}
