//! The smallest permissions of each kind, as docs/deployment.md lists them. A user with no more must be able to make
//! every call, and the kind's scripts must need all of them.

use crate::support::kind::Kind;
use crate::support::{Server, eventually, subscribers};
use redisson_lock::{Client, Error, ExpirableSemaphore, Lock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;

const NAME: &str = "n";
const WAIT: Duration = Duration::from_secs(5);
/// The permissions that all kinds need.
const COMMON: &str = "+eval +evalsha +ping +subscribe +unsubscribe";

/// For each group of kinds, by its first name: how its scripts' names begin, and the commands that it sends without a script.
const USED: [(&str, &[&str], &str); 9] = [
    (
        "lock",
        &[
            "lock_acquire",
            "lock_force",
            "lock_hand_off",
            "lock_inspect",
            "lock_recount",
            "lock_release",
            "lock_renew",
        ],
        "exists hget hscan pttl",
    ),
    ("fair_lock", &["fair_", "lock_recount", "lock_renew"], "exists hget hscan pttl"),
    (
        "fenced_lock",
        &["fenced_", "lock_force", "lock_inspect", "lock_recount", "lock_release", "lock_renew"],
        "exists hget hscan pttl",
    ),
    (
        "read_write_lock",
        &["read_", "write_", "lock_inspect", "lock_recount", "lock_renew"],
        "exists hget hscan pttl",
    ),
    ("value_lock", &["value_"], "exists get pttl"),
    ("group_lock", &["group_"], ""),
    ("semaphore", &["semaphore_"], "get"),
    ("expirable_semaphore", &["permit_", "semaphore_add", "semaphore_set"], ""),
    ("count_down_latch", &["latch_"], "get"),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_needs_exactly_its_documented_permissions() {
    let documented = documented();
    let firsts: Vec<_> = documented.iter().map(|(names, _)| names[0].as_str()).collect();
    assert_eq!(firsts, USED.map(|(name, ..)| name));
    for ((names, rules), (_, scripts, direct)) in documented.iter().zip(USED) {
        let granted: BTreeSet<_> =
            rules.iter().filter_map(|rule| rule.strip_prefix('+')).map(str::to_owned).collect();
        let mut used: BTreeSet<_> = direct.split_whitespace().map(str::to_owned).collect();
        used.extend(commands_of(scripts));
        assert_eq!(granted, used, "{names:?}");
    }
    let cases = documented.into_iter().flat_map(|(names, rules)| {
        names
            .into_iter()
            .map(move |name| (name, rules.iter().map(|rule| rule.replace('N', NAME)).collect::<Vec<_>>()))
    });
    let mut running = JoinSet::new();
    for (name, rules) in cases {
        running.spawn(async move { suffices(&name, &rules).await });
    }
    running.join_all().await;
}

async fn suffices(name: &str, rules: &[String]) {
    let server = Server::start();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("app").arg("reset").arg("resetchannels").arg("on").arg(">canary-in-a-coal-mine");
    for rule in COMMON.split_whitespace().chain(rules.iter().map(String::as_str)) {
        user.arg(rule);
    }
    user.exec(&mut server.cli()).unwrap();
    let url = format!("redis://app:canary-in-a-coal-mine@{}", server.address());
    // The kinds wait for a renewal, which comes after a third of this.
    let builder = || Client::builder().watchdog_timeout(Duration::from_secs(3));
    let (one, other) = (builder().connect(&url).await.unwrap(), builder().connect(&url).await.unwrap());
    // When a client connects, it tries the fast paths, the commands of a lock, and queries about the server.
    redis::cmd("ACL").arg(&["LOG", "RESET"]).exec(&mut server.cli()).unwrap();
    use_all(name, &server, &one, &other).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    // No command was refused in the background either. The name of a holder is asked for, once by each client.
    let refused: Vec<BTreeMap<String, redis::Value>> =
        redis::cmd("ACL").arg("LOG").query(&mut server.cli()).unwrap();
    for entry in refused {
        let object: String = redis::from_redis_value(entry["object"].clone()).unwrap();
        assert_eq!(object, "getrange", "{name}");
    }
}

/// Groups of kinds, and the permissions of each group.
fn documented() -> Vec<(Vec<String>, Vec<String>)> {
    let page = include_str!("../../docs/deployment.md");
    let section = page.split("## The smallest permissions").nth(1).expect("the page has this section");
    let blocks: Vec<_> =
        section.split("```").skip(1).step_by(2).map(|block| block.strip_prefix("text").unwrap()).collect();
    assert_eq!(blocks[0].trim(), COMMON);
    let mut kinds: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for line in blocks[1].lines().filter(|line| !line.is_empty()) {
        if line.starts_with(' ') {
            let (_, rules) = kinds.last_mut().expect("a name comes first");
            rules.extend(line.split_whitespace().map(str::to_owned));
        } else {
            kinds.push((line.split(", ").map(str::to_owned).collect(), Vec::new()));
        }
    }
    kinds
}

/// The commands in the scripts whose names begin with one of `scripts`.
fn commands_of(scripts: &[&str]) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua");
    let mut commands = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if !scripts.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        for call in source.split("redis.call(").skip(1).chain(source.split("redis.pcall(").skip(1)) {
            let command = match call.strip_prefix('\'') {
                Some(rest) => rest.split('\'').next().unwrap(),
                None => "publish",
            };
            commands.insert(command.replace("pubsub", "pubsub|numsub"));
        }
    }
    commands
}

pub async fn use_all(name: &str, server: &Server, one: &Client, other: &Client) -> Result<(), Error> {
    let listens = || {
        let channels: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).unwrap();
        !channels.is_empty()
    };
    match name {
        "semaphore" => {
            let (here, there) = (one.semaphore(NAME), other.semaphore(NAME));
            assert!(here.try_set_permits(1).await?);
            let permit = here.acquire().await?;
            let waiting = tokio::spawn(async move { there.try_acquire_for(WAIT).await });
            eventually(listens).await;
            permit.release().await?;
            waiting.await.unwrap()?.expect("it is free").release().await?;
            here.add_permits(2).await?;
            assert_eq!(here.available_permits().await?, 3);
            assert_eq!(here.drain_permits().await?, 3);
            assert!(here.release_if_exists(1).await?);
        }
        "expirable_semaphore" => {
            let (here, there) = (one.expirable_semaphore(NAME), other.expirable_semaphore(NAME));
            assert!(here.try_set_permits(1).await?);
            let permit = here.acquire().await?;
            renewed(|| permit.deadline()).await;
            let served = |semaphore: ExpirableSemaphore| async move {
                semaphore.try_acquire_for(WAIT).await?.expect("it is free").release().await
            };
            // The waiter of the same client gets the permit by a hand-off.
            let waiting = [there, here.clone()].map(|semaphore| tokio::spawn(served(semaphore)));
            eventually(|| subscribers(server, "redisson_sc:{n}") == 2).await;
            permit.release().await?;
            for waiter in waiting {
                waiter.await.unwrap()?;
            }
            here.add_permits(2).await?;
            assert_eq!(here.available_permits().await?, 3);
            assert_eq!(
                (here.set_permits(4).await?, here.permits().await?, here.acquired_permits().await?),
                (4, 4, 0)
            );
            let permit = here.without_lease().acquire().await?;
            let id = &permit.ids()[0];
            assert_eq!(here.remaining_lease(id).await?, Some(Duration::MAX));
            assert!(here.update_lease(id, WAIT).await? && here.release(id).await?);
            permit.forget();
            here.with_lease(Duration::from_millis(1)).acquire().await?.forget();
            here.acquire_many(3).await?.release().await?;
        }
        "count_down_latch" => {
            let (here, there) = (one.count_down_latch(NAME), other.count_down_latch(NAME));
            assert!(here.try_set_count(1).await?);
            let waiting = tokio::spawn(async move { there.wait_for(WAIT).await });
            eventually(listens).await;
            assert_eq!(here.count().await?, 1);
            here.count_down().await?;
            assert!(waiting.await.unwrap()?);
            assert!(here.try_set_count(1).await?);
            assert!(here.delete().await?);
        }
        _ => {
            for kind in kinds(name) {
                let (here, there) = (kind.lock(one, NAME), kind.lock(other, NAME));
                let guard = here.lock().await?;
                renewed(|| guard.deadline()).await;
                if kind.is_reentrant() {
                    here.lock().await?.unlock().await?;
                }
                here.is_locked().await?;
                here.hold_count().await?;
                here.remaining_lease().await?;
                here.holder().await?;
                assert!(here.inspect().await?.waiters.is_some());
                let against = if kind == Kind::Read { Kind::Write.lock(other, NAME) } else { there };
                let waiting = tokio::spawn(async move { served(&against).await });
                if kind.listens() {
                    eventually(listens).await;
                }
                // The second waiter of this client makes it hand off, too.
                let (next, third) = (here.clone(), here.clone());
                let behind = tokio::spawn(async move { served(&next).await });
                guard.unlock().await?;
                for waiter in [waiting, behind] {
                    waiter.await.unwrap()?;
                }
                let guard = third.lock().await?;
                assert!(third.force_unlock().await?);
                drop(guard);
            }
        }
    }
    Ok(())
}

async fn served(lock: &Lock) -> Result<(), Error> {
    lock.try_lock_for(WAIT).await?.expect("it becomes free").unlock().await
}

fn kinds(name: &str) -> Vec<Kind> {
    match name {
        "lock" => vec![Kind::Reentrant],
        "spin_lock" => vec![Kind::Spin],
        "non_reentrant_lock" => vec![Kind::NonReentrant],
        "fair_lock" => vec![Kind::Fair],
        "non_reentrant_fair_lock" => vec![Kind::NonReentrantFair],
        "fenced_lock" => vec![Kind::Fenced],
        "read_write_lock" => vec![Kind::Read, Kind::Write],
        "value_lock" => vec![Kind::Value],
        "group_lock" => vec![Kind::Group],
        _ => panic!("unknown kind {name}"),
    }
}

/// Returns once the deadline has moved.
async fn renewed<T: PartialOrd>(deadline: impl Fn() -> T) {
    let first = deadline();
    eventually(|| deadline() > first).await;
}
