//! Each script declares the keys that it uses, because some servers refuse a script access to any other key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use redisson_lock::{Client, Error, HandOff, Owner};
use tokio::task::JoinSet;

use crate::permissions::use_all;
use crate::support::{Monitor, Server, eventually};

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

/// The wait timeout of a fair lock. A waiter renews its place after each third of it.
const ALLOWANCE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn scripts_use_only_the_keys_that_they_declare() {
    let mut running = JoinSet::new();
    for name in KINDS.into_iter().chain(["other calls"]) {
        running.spawn(async move { scripts_of(name).await });
    }
    let called: BTreeSet<String> = running.join_all().await.into_iter().flatten().collect();
    let all: BTreeSet<String> = sources().into_keys().collect();
    assert_eq!(called, all, "not every script was run");
}

/// Uses a kind, checks the keys of each script that it runs, and returns the names of the scripts.
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
        // The kinds wait for a renewal, which comes after a third of this.
        let builder = Client::builder().watchdog_timeout(Duration::from_secs(3));
        // A hold is handed over, however long it was.
        let hand_off = HandOff::new().max_time_alone(Duration::from_secs(60));
        builder.fair_lock_wait_timeout(ALLOWANCE).hand_off(hand_off)
    };
    let (one, other) =
        (builder().connect(server.url()).await.unwrap(), builder().connect(server.url()).await.unwrap());
    let used = match name {
        "other calls" => use_other_calls(&server, &one, &other).await,
        name => use_all(name, &server, &one, &other).await,
    };
    used.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut called = BTreeSet::new();
    for (call, commands) in monitor.scripts() {
        let script = &names[&call[1]];
        called.insert(script.clone());
        let declared = &call[3..3 + call[2].parse::<usize>().unwrap()];
        for command in commands.iter().filter(|command| !is_exempt(script, &call, command)) {
            // GETKEYS returns an error for a command without keys.
            let keys: Vec<String> =
                redis::cmd("COMMAND").arg("GETKEYS").arg(command).query(&mut cli).unwrap_or_default();
            for key in keys {
                assert!(declared.contains(&key), "{script} declares {declared:?} and runs {command:?}");
            }
        }
    }
    called
}

/// Whether the call of the script may run the command on keys that it does not declare.
fn is_exempt(script: &str, call: &[String], command: &[String]) -> bool {
    match script {
        // The probes change nothing, and their purpose is to provoke errors.
        "permission_probe" | "permission_probe_all" => true,
        // Only the record names the readers of other clients. If the script cannot read their keys, it keeps the TTL of the
        // record. If it cannot read those of its own client, it asks for a request that declares them.
        "read_release" => {
            let args = &call[3 + call[2].parse::<usize>().unwrap()..];
            let (client, _) = args[0].split_once(':').unwrap();
            let may_be_refused = args[4] == "1" || !command[1].contains(client);
            command[0] == "pttl" && command[1].contains(":rwlock_timeout:") && may_be_refused
        }
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

async fn use_other_calls(server: &Server, one: &Client, other: &Client) -> Result<(), Error> {
    // A waiter that hears two messages in vain counts the other waiters.
    let guard = one.mutex("crowd").lock().await?;
    let mutex = other.mutex("crowd");
    let waiting = tokio::spawn(async move { mutex.lock().await?.unlock().await });
    eventually(|| {
        let publish = redis::cmd("PUBLISH").arg("redisson_lock__channel:{crowd}").arg("0").to_owned();
        publish.exec(&mut server.cli()).unwrap();
        // Before Redis 7 the subcommand is not counted by itself.
        ["pubsub|numsub", "pubsub"].iter().any(|command| server.calls(command) > 0)
    })
    .await;
    guard.unlock().await?;
    waiting.await.unwrap()?;
    // A waiter renews its place in the queue, even if this machine stalls for a moment, and leaves the queue.
    let guard = one.fair_lock(NAME).lock().await?;
    assert!(other.fair_lock(NAME).try_lock_for(ALLOWANCE * 4).await?.is_none());
    guard.unlock().await?;
    // The client of a waiter that gives up removes its entry in the background.
    eventually(|| {
        !redis::cmd("EXISTS").arg("redisson_lock_queue:{n}").query::<bool>(&mut server.cli()).unwrap()
    })
    .await;
    assert!(one.describe("n").await?.is_none());
    assert_eq!(one.examine().await?.len(), 1);
    // Two readers of one client and a reader of another share the lock.
    let reads = one.read_write_lock("r").read().clone();
    let first = reads.lock().await?;
    let second = reads.with_owner(&Owner::unique()).lock().await?;
    let third = other.read_write_lock("r").read().lock().await?;
    // The actor's release declares the other readers.
    drop(second);
    eventually(|| redis::cmd("HLEN").arg("r").query::<u64>(&mut server.cli()).unwrap() == 3).await;
    first.unlock().await?;
    third.unlock().await?;
    // A task waits behind a hold of its own client, which hands the lock over.
    for lock in [one.lock("m"), one.fenced_lock("f"), one.fair_lock("q"), one.value_lock("v")] {
        let guard = lock.lock().await?;
        let next = lock.with_owner(&Owner::unique());
        let waiting = tokio::spawn(async move { next.lock().await });
        eventually(|| one.stats().waiting == 1).await;
        // A fair lock is handed to a waiter in its queue.
        let queue = redis::cmd("EXISTS").arg("redisson_lock_queue:{q}").to_owned();
        eventually(|| lock.name() != "q" || queue.query::<bool>(&mut server.cli()).unwrap()).await;
        guard.unlock().await?;
        waiting.await.unwrap()?.unlock().await?;
    }
    Ok(())
}
