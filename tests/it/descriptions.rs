//! `Client::describe` and `Client::locks`: each kind is told by its record, and what is no lock is left out.

use crate::support::cluster::Cluster;
use crate::support::{Server, eventually, subscribers};
use redisson_lock::{BackOff, Client, Codec, Description, Error, Kryo5, Owner, RecordKind, blocking};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_stream::StreamExt;

const LEASE: Duration = Duration::from_secs(30);

async fn all(client: &Client, pattern: &str) -> BTreeMap<String, Description> {
    let found: Vec<_> = client.locks(pattern).map(Result::unwrap).collect().await;
    let number = found.len();
    let found: BTreeMap<_, _> = found.into_iter().map(|seen| (seen.name.clone(), seen)).collect();
    assert_eq!(found.len(), number, "no name comes twice");
    found
}

fn raw(server: &Server, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_told_by_its_record() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let me = Owner::new("me").unwrap();
    let mut guards = Vec::new();
    for (name, lock) in [
        ("lock", client.lock("lock")),
        ("mutex", client.non_reentrant_lock("mutex")),
        ("spin", client.spin_lock("spin", BackOff::default())),
        ("quiet fair", client.fair_lock("quiet fair")),
        ("fair", client.fair_lock("fair")),
        ("fenced", client.fenced_lock("fenced")),
        ("value", client.value_lock("value")),
        ("group", client.group_lock("group", ["a", "b"].map(|name| Kryo5.encode(name)))),
        ("read", client.read_write_lock("read").read().clone()),
        ("write", client.read_write_lock("write").write().clone()),
        ("both", client.read_write_lock("both").write().clone()),
    ] {
        guards.push((name, lock.with_owner(&me).lock().await.unwrap()));
    }
    let also = client.read_write_lock("both");
    let _also = also.read().with_owner(&me).lock().await.unwrap();
    let _again = client.lock("lock").with_owner(&me).lock().await.unwrap();
    let behind = client.fair_lock("fair").with_owner(&Owner::new("next").unwrap());
    let waiting = tokio::spawn(async move { behind.lock().await.map(drop) });
    let permits = client.expirable_semaphore("permits");
    assert!(permits.try_set_permits(3).await.unwrap());
    let _permit = permits.acquire().await.unwrap();
    let (none_left, latch) = (client.semaphore("semaphore"), client.count_down_latch("latch"));
    assert!(none_left.try_set_permits(0).await.unwrap() && latch.try_set_count(2).await.unwrap());
    let other = Client::connect(server.url()).await.unwrap();
    let (semaphore, gate) = (other.semaphore("semaphore"), other.count_down_latch("latch"));
    let acquiring = tokio::spawn(async move { semaphore.acquire().await.map(drop) });
    let passing = tokio::spawn(async move { gate.wait().await });
    eventually(|| subscribers(&server, "redisson_sc:{semaphore}") == 1).await;
    eventually(|| subscribers(&server, "redisson_countdownlatch__channel__{latch}") == 1).await;
    assert!(client.semaphore("integer").try_set_permits(7).await.unwrap());
    eventually(|| {
        redis::cmd("LLEN").arg("redisson_lock_queue:{fair}").query::<u32>(&mut server.cli()) == Ok(1)
    })
    .await;

    let found = all(&client, "*").await;
    let kinds: Vec<(&str, String)> =
        found.iter().map(|(name, seen)| (&**name, seen.kind.to_string())).collect();
    let expected = [
        ("both", "write"),
        ("fair", "fair"),
        ("fenced", "fenced"),
        ("group", "group"),
        ("integer", "integer"),
        ("latch", "latch"),
        ("lock", "lock"),
        ("mutex", "lock"),
        ("permits", "expirable-semaphore"),
        // Nobody waits for it.
        ("quiet fair", "lock"),
        ("read", "read"),
        ("semaphore", "semaphore"),
        ("spin", "lock"),
        ("value", "value"),
        ("write", "write"),
    ];
    assert_eq!(kinds, expected.map(|(name, kind)| (name, kind.to_owned())));
    for (name, guard) in &guards {
        let seen = &found[*name];
        assert_eq!(seen.holders[0].owner(), guard.owner(), "{name}");
        assert_eq!(seen.holders[0].client_id(), client.id().to_string());
        assert!(
            seen.remaining_lease.is_some_and(|left| left > LEASE / 2 && left <= LEASE),
            "{name}: {seen:?}"
        );
        assert_eq!(seen.waiters, Some(u64::from(*name == "fair")), "{name}");
        assert_eq!(seen.token, guard.token(), "{name}");
        assert!(seen.kind.is_certain() && seen.count.is_none());
        assert_eq!(client.describe(name).await.unwrap().unwrap().kind, seen.kind);
    }
    assert_eq!(found["lock"].holders[0].count(), 2);
    assert_eq!(found["both"].holders.len(), 2);
    assert_eq!(found["fair"].queue, [format!("{}:owner-next", client.id())]);
    assert_eq!((found["permits"].count, found["permits"].taken), (Some(2), Some(1)));
    assert_eq!((found["semaphore"].count, found["semaphore"].waiters), (Some(0), Some(1)));
    assert_eq!((found["latch"].count, found["latch"].waiters), (Some(2), Some(1)));
    assert_eq!((found["integer"].count, found["integer"].kind.is_certain()), (Some(7), false));
    assert_eq!(found["integer"].remaining_lease, Some(Duration::MAX));

    // Redis's queue may outlive the record.
    raw(&server, &["DEL", "fair"]);
    waiting.abort();
    for task in [acquiring, waiting] {
        task.abort();
    }
    passing.abort();
}

#[tokio::test]
async fn what_is_no_lock_is_left_out() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let uuid = client.id().to_string();
    let owner = format!("{uuid}:1");
    for words in [
        ["SET", "text", "plain"].as_slice(),
        &["SET", "page", &"x".repeat(300), "PX", "60000"],
        &["SET", "binary", "placeholder", "PX", "60000"],
        &["HSET", "settings", "colour", "red"],
        &["HSET", "number", "colour", "1"],
        &["HSET", "odd", &owner, "much"],
        &["HSET", "zero", &owner, "0"],
        &["HSET", "mixed", &owner, "1", "colour", "1"],
        &["HSET", "mode only", "mode", "read"],
        &["HSET", "other mode", "mode", "dark", &owner, "1"],
        &["RPUSH", "list", "1"],
        &["SADD", "set", "1"],
        &["ZADD", "sorted", "1", "one"],
        // Parts of locks.
        &["SET", "redisson_lock_token:{fenced}", "7"],
        &["SET", "redisson_unlock_latch:{n}:0123456789abcdef0123456789abcdef", "1", "PX", "60000"],
        &["SET", &format!("{{n}}:{owner}:rwlock_timeout:1"), "1", "PX", "60000"],
        &["SET", &format!("{{n}}:redisson-lock:{uuid}"), "7", "PX", "60000"],
    ] {
        raw(&server, words);
    }
    let mut binary = redis::cmd("SET");
    binary.arg("binary").arg(b"\xff\xfe").arg("PX").arg(60_000).exec(&mut server.cli()).unwrap();
    assert_eq!(all(&client, "*").await, BTreeMap::new());
    for name in ["text", "settings", "list", "nothing"] {
        assert_eq!(client.describe(name).await.unwrap(), None, "{name}");
    }
    // A value lock of another library cannot be told from any other short string with an expiry.
    raw(&server, &["SET", "token", "2yZq81", "PX", "60000"]);
    let token = client.describe("token").await.unwrap().unwrap();
    assert_eq!((token.kind, token.holders[0].owner()), (RecordKind::Text, "2yZq81"));
    assert!(!token.kind.is_certain());
    // The kinds' other keys may be of any type.
    for name in ["redisson_lock_queue:{n}", "redisson_lock_token:{n}", "{n}:timeout"] {
        raw(&server, &["SADD", name, "1"]);
    }
    let guard = client.mutex("n").lock().await.unwrap();
    let seen = client.describe("n").await.unwrap().unwrap();
    assert_eq!((seen.kind, seen.token, seen.holders[0].owner()), (RecordKind::Lock, None, guard.owner()));
    assert!(matches!(client.describe("").await, Err(Error::Misuse { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_every_master_of_a_cluster_are_found() {
    let cluster = Cluster::start(3, 0);
    let client = Client::connect(cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..300 {
        guards.push(client.mutex(format!("job:{number}")).lock().await.unwrap());
    }
    // Keys that no lock can have here, because their parts would be in other slots.
    for name in ["a}", "{}x"] {
        raw(cluster.at(name), &["SET", name, "1"]);
    }
    let found = all(&client, "*").await;
    assert_eq!(found.len(), 300);
    for guard in &guards {
        assert_eq!(found[guard.name()].holders[0].owner(), guard.owner());
    }
    assert_eq!(all(&client, "job:1?").await.len(), 10);
    let mut cluster = cluster;
    cluster.masters[1].kill();
    let outcomes: Vec<_> = client.locks("*").collect().await;
    let error = outcomes.last().unwrap().as_ref().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_of_many_keys_sees_each_lock_once_and_ends_when_dropped() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mut fill = redis::cmd("EVAL");
    fill.arg("for i = 1, 5000 do redis.call('set', 'page:' .. i, string.rep('x', 300), 'px', 60000) end")
        .arg(0);
    fill.exec(&mut server.cli()).unwrap();
    let mut guards = Vec::new();
    for number in 0..100 {
        guards.push(client.mutex(format!("job:{number}")).lock().await.unwrap());
    }
    assert_eq!(all(&client, "*").await.len(), 100);
    let mut locks = client.locks("*");
    locks.next().await.unwrap().unwrap();
    drop(locks);
    let scans = server.calls("scan");
    client.ping().await.unwrap();
    assert_eq!(server.calls("scan"), scans, "a dropped stream sends nothing");
}

/// A cursor belongs to the server that returned it. The server that continues orders its keys in another way.
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_over_a_restart_finds_each_lock() {
    let mut server = Server::with_log_of("REDISSON_LOCK_SERVER");
    let client = Client::connect(server.url()).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..600 {
        guards.push(client.mutex(format!("job:{number}")).lock().await.unwrap());
    }
    let mut locks = client.locks("*");
    let first = locks.next().await.unwrap().unwrap();
    server.restart();
    eventually(|| client.is_connected()).await;
    let names: Vec<_> =
        locks.map(|seen| seen.unwrap().name).chain(tokio_stream::once(first.name)).collect().await;
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!((names.len(), distinct.len()), (600, 600));
}

#[tokio::test]
async fn a_client_with_stored_names_opens_what_a_scan_finds() {
    let server = Server::start();
    let client =
        Client::builder().name_mapper(|name| format!("app:{name}")).connect(server.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let found = client.locks("*").next().await.unwrap().unwrap();
    assert_eq!(found.name, "app:n");
    assert_eq!(client.describe(&found.name).await.unwrap(), None, "the mapper makes another name of it");
    let stored = client.with_stored_names();
    let described = stored.describe(&found.name).await.unwrap().unwrap();
    assert_eq!((described.name, described.holders), (found.name.clone(), found.holders));
    assert!(!stored.map_entry("map", "key").lock().name().contains("app:"));
    let again = stored.lock(&found.name).lock().await.unwrap();
    assert_eq!(again.owner(), guard.owner());
    assert_eq!(client.lock("n").hold_count().await.unwrap(), 2, "both clients are one owner");
    assert_eq!(stored.clone().lock(found.name).name(), "app:n");
    again.unlock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// The permissions are those that docs/deployment.md lists for it.
#[tokio::test]
async fn a_user_needs_the_documented_permissions_to_describe_locks() {
    let server = Server::start();
    let holder = Client::connect(server.url()).await.unwrap();
    let _guard = holder.fenced_lock("n").lock().await.unwrap();
    let page = include_str!("../../docs/deployment.md");
    let line = page.lines().find(|line| line.contains("+getrange")).expect("the page lists them");
    let listed: Vec<_> = line.split('`').nth(1).unwrap().split_whitespace().collect();
    for without in std::iter::once(None).chain(listed.iter().map(Some)) {
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER")
            .arg("app")
            .arg("reset")
            .arg("resetchannels")
            .arg("on")
            .arg(">canary-in-a-coal-mine");
        user.arg("~*").arg("+eval").arg("+evalsha").arg("+ping").arg("+subscribe").arg("+unsubscribe");
        listed.iter().filter(|word| Some(*word) != without).for_each(|word| {
            user.arg(*word);
        });
        user.exec(&mut server.cli()).unwrap();
        let url = format!("redis://app:canary-in-a-coal-mine@{}", server.address());
        let client = Client::connect(&url).await.unwrap();
        let seen: Result<Vec<_>, _> = client.locks("*").collect::<Vec<_>>().await.into_iter().collect();
        let complete = seen.as_ref().is_ok_and(|seen| {
            seen.len() == 1
                && seen[0].token == Some(1)
                && seen[0].waiters == Some(0)
                && seen[0].holders.len() == 1
        });
        // The record of this kind is no string, and has neither queue nor permits.
        let elsewhere = ["+getrange", "+lrange", "+llen", "+zcard", "+time"];
        assert_eq!(complete, without.is_none_or(|word| elsewhere.contains(word)), "{without:?}: {seen:?}");
        client.close().await;
    }
}

#[test]
fn a_thread_describes_and_finds_locks() {
    let server = Server::start();
    let client = blocking::Client::connect(server.url()).unwrap();
    let guard = client.lock("n").lock().unwrap();
    let seen: Vec<_> = client.locks("*").map(Result::unwrap).collect();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].holders[0].owner(), guard.owner());
    assert_eq!(client.describe("n").unwrap().unwrap().kind, RecordKind::Lock);
    guard.unlock().unwrap();
    assert_eq!(client.locks("*").count(), 0);
}
