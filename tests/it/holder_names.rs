//! Clients that register themselves: holders have names, Java sees no difference, and no failure of a name reaches a lock.

use crate::support::cluster::Cluster;
use crate::support::worker::Worker;
use crate::support::{Java, Monitor, Server, WarningLog, eventually, subscribers, versions};
use redisson_lock::{Client, ClientBuilder, ClientInfo, Error, Holder, blocking};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tokio_stream::StreamExt;

/// A watchdog timeout so short that a test sees renewals. The client's key lasts twice as long.
const SHORT: Duration = Duration::from_millis(1500);
const NAME: &str = "orders-service";

fn named() -> ClientBuilder {
    Client::builder().register_as(NAME)
}

fn key(client: &Client) -> String {
    format!("redisson-lock:client:{}", client.id())
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
    keys.sort();
    keys
}

fn exists(server: &Server, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(&mut server.cli()).unwrap()
}

fn left(server: &Server, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(&mut server.cli()).unwrap()
}

fn raw(server: &Server, words: &[&[u8]]) {
    let mut command = redis::cmd(std::str::from_utf8(words[0]).unwrap());
    for word in &words[1..] {
        command.arg(*word);
    }
    command.exec(&mut server.cli()).unwrap();
}

async fn registered(server: &Server, client: &Client) {
    eventually(|| exists(server, &key(client))).await;
}

fn host() -> String {
    let output = Command::new("uname").arg("-n").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_this_process(client: &ClientInfo) {
    assert_eq!((&*client.application, &*client.host, client.pid), (NAME, &*host(), std::process::id()));
    assert!(client.since.elapsed().unwrap() < Duration::from_secs(60), "{client:?}");
    assert_eq!(client.to_string(), format!("{NAME} on {}, pid {}", host(), std::process::id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_holder_has_a_name_and_java_contends_as_before() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let holder = named().connect(server.url()).await.unwrap();
        registered(&server, &holder).await;
        let watcher = Client::connect(server.url()).await.unwrap();
        let guard = holder.lock("n").lock().await.unwrap();
        assert_eq!(keys(&server), ["n".to_owned(), key(&holder)]);
        let seen = watcher.lock("n").holder().await.unwrap().unwrap();
        is_this_process(seen.client().expect("it is registered"));
        assert_eq!(seen.owner(), guard.owner());
        assert!(!java.try_lock("plain", "n").await.unwrap(), "{version}");
        let waiting = java.lock("plain", "n");
        eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
        guard.unlock().await.unwrap();
        waiting.await.unwrap();
        let seen = watcher.lock("n").holder().await.unwrap().unwrap();
        assert_eq!((seen.owner(), seen.client()), (&*java.owner().await, None));
        assert_eq!(seen.to_string(), format!("{} (count 1)", seen.owner()));
        let acquiring = tokio::spawn({
            let lock = holder.lock("n");
            async move { lock.lock().await.unwrap().unlock().await }
        });
        eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
        java.unlock("plain", "n").await.unwrap();
        acquiring.await.unwrap().unwrap();
        holder.close().await;
    }
}

/// Each way to read a holder.
async fn all_ways(client: &Client, name: &str) -> Vec<Holder> {
    let lock = client.lock(name);
    let mut holders = vec![lock.holder().await.unwrap().unwrap()];
    holders.extend(lock.inspect().await.unwrap().holders);
    holders.extend(client.describe(name).await.unwrap().unwrap().holders);
    let mut locks = client.locks("*");
    while let Some(seen) = locks.next().await {
        holders.extend(seen.unwrap().holders);
    }
    let sighting = client.watch(name, Duration::from_secs(600)).next().await.unwrap().unwrap();
    holders.extend(sighting.lock.unwrap().holders);
    assert_eq!(holders.len(), 5);
    holders
}

#[tokio::test(flavor = "multi_thread")]
async fn every_question_about_a_holder_tells_its_name() {
    let server = Server::start();
    let (holder, watcher) =
        (named().connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    registered(&server, &holder).await;
    let _guard = holder.lock("n").lock().await.unwrap();
    for seen in all_ways(&watcher, "n").await {
        is_this_process(seen.client().expect("it is registered"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_of_a_lost_hold_names_the_next_holder() {
    let server = Server::start();
    let (first, next) =
        (Client::connect(server.url()).await.unwrap(), named().connect(server.url()).await.unwrap());
    registered(&server, &next).await;
    let lost = first.lock("n").lock().await.unwrap();
    assert!(next.lock("n").force_unlock().await.unwrap());
    let _held = next.lock("n").lock().await.unwrap();
    let error = lost.unlock().await.unwrap_err();
    assert!(error.is_lost());
    let text = format!("; now held by {NAME} on {}, pid {} (", host(), std::process::id());
    assert!(error.to_string().contains(&text), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_name_a_client_writes_no_key() {
    let server = Server::start();
    let mut monitor = Monitor::start(&server);
    let client = Client::builder().watchdog_timeout(SHORT).connect(server.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let first = guard.deadline();
    eventually(|| guard.deadline() > first).await;
    assert_eq!(client.lock("n").holder().await.unwrap().unwrap().client(), None);
    assert_eq!(keys(&server), ["n"]);
    guard.unlock().await.unwrap();
    client.close().await;
    let of_names: Vec<_> = monitor
        .commands()
        .into_iter()
        .filter(|words| words.iter().any(|word| word.contains("redisson-lock:client")))
        .collect();
    // The question of `holder`.
    assert!(of_names.len() == 1 && of_names[0][0] == "getrange", "{of_names:?}");
}

/// The key is renewed, expires when its process dies, and outlasts the lock of that process.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_dead_process_outlasts_its_lock() {
    let server = Server::start();
    let mut worker = Worker::start(&["named", &server.url(), "n", &SHORT.as_millis().to_string(), NAME]);
    let owner = worker.line().await;
    let owner = owner.strip_prefix("held ").unwrap();
    let key = format!("redisson-lock:client:{}", owner.split(':').next().unwrap());
    eventually(|| exists(&server, &key)).await;
    // Renewed twice: a key that lives for 3 s is renewed every 750 ms.
    for _ in 0..2 {
        let mut last = left(&server, &key);
        assert!(last > 0 && u128::from(last.unsigned_abs()) <= (2 * SHORT).as_millis(), "{last}");
        eventually(|| {
            let now = left(&server, &key);
            let grew = now > last;
            last = now;
            grew
        })
        .await;
    }
    let watcher = Client::connect(server.url()).await.unwrap();
    let seen = watcher.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(seen.client().map(|client| i64::from(client.pid)), Some(worker.pid().into()));
    worker.kill().await;
    eventually(|| {
        // Read in this order, the name is there if the lock is.
        let held = exists(&server, "n");
        assert!(!held || exists(&server, &key));
        !held
    })
    .await;
    eventually(|| !exists(&server, &key)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn close_deletes_the_name() {
    let server = Server::start();
    let client = named().watchdog_timeout(SHORT).connect(server.url()).await.unwrap();
    registered(&server, &client).await;
    let other = client.clone();
    tokio::join!(client.close(), other.close());
    assert_eq!(keys(&server), [""; 0]);
    // A second one has nothing to do.
    tokio::time::timeout(Duration::from_secs(1), client.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn close_does_not_wait_for_an_absent_server() {
    let mut server = Server::start();
    let client = named().response_timeout(Duration::from_secs(60)).connect(server.url()).await.unwrap();
    registered(&server, &client).await;
    server.kill();
    eventually(|| !client.is_connected()).await;
    tokio::time::timeout(Duration::from_secs(10), client.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_written_again_after_a_loss_of_data() {
    let mut server = Server::start();
    // The next renewal would come after 15 s.
    let client = named().connect(server.url()).await.unwrap();
    registered(&server, &client).await;
    server.restart();
    let lost = std::time::Instant::now();
    registered(&server, &client).await;
    assert!(lost.elapsed() < Duration::from_secs(10));

    let often = named().watchdog_timeout(SHORT).connect(server.url()).await.unwrap();
    registered(&server, &often).await;
    redis::cmd("FLUSHALL").exec(&mut server.cli()).unwrap();
    registered(&server, &often).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_begins_without_its_server_registers_later() {
    let mut server = Server::start();
    server.kill();
    let client = named().connect_lazy(server.url()).unwrap();
    server.start_again();
    registered(&server, &client).await;
}

/// Each client's key is on the master of its own slot, whatever the slots of its locks are.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_each_name_is_on_the_master_of_its_slot() {
    let cluster = Cluster::start(3, 0);
    let watcher = Client::connect(cluster.url()).await.unwrap();
    let mut masters = std::collections::BTreeSet::new();
    let mut clients = Vec::new();
    while masters.len() < 3 {
        let client = named().connect(cluster.url()).await.unwrap();
        let key = key(&client);
        eventually(|| exists(cluster.at(&key), &key)).await;
        masters.insert(cluster.master_of(&key));
        let guard = client.mutex("n").lock().await.unwrap();
        let seen = watcher.lock("n").inspect().await.unwrap();
        is_this_process(seen.holders[0].client().expect("it is registered"));
        guard.unlock().await.unwrap();
        clients.push(client);
    }
    for client in &clients {
        client.close().await;
    }
    assert_eq!(cluster.keys(), [""; 0]);
}

/// A user without the permissions of `docs/deployment.md` has locks without names. The refusals appear once, in the client's log and in the
/// server's.
#[tokio::test]
async fn without_the_permission_locks_have_no_names() {
    let server = Server::start();
    let documented = "~redisson-lock:client:* +set +del +getrange";
    assert!(include_str!("../../docs/deployment.md").contains(documented));
    let user = |name: &str, rules: &str| {
        let mut user = redis::cmd("ACL");
        user.arg("SETUSER").arg(name).arg("reset").arg("on").arg(">canary-in-a-coal-mine");
        user.arg(&["resetchannels", "&redisson_lock__channel:{n}", "~n", "+@all"]);
        user.arg(rules.split_whitespace().collect::<Vec<_>>()).exec(&mut server.cli()).unwrap();
        format!("redis://{name}:canary-in-a-coal-mine@{}", server.address())
    };
    let (with, without) = (user("with", documented), user("without", ""));
    let log = WarningLog::start();
    let refused = named().watchdog_timeout(SHORT).connect(&without).await.unwrap();
    eventually(|| log.lines("could not register the client").len() == 1).await;
    let guard = refused.lock("n").lock().await.unwrap();
    let first = guard.deadline();
    // Several attempts to register fail meanwhile.
    eventually(|| guard.deadline() > first + SHORT).await;
    assert_eq!(log.lines("could not register the client").len(), 1);
    assert_eq!(refused.lock("n").holder().await.unwrap().unwrap().client(), None);
    assert!(!exists(&server, &key(&refused)));
    guard.unlock().await.unwrap();
    refused.close().await;

    let permitted = named().connect(&with).await.unwrap();
    registered(&server, &permitted).await;
    let _guard = permitted.lock("n").lock().await.unwrap();
    assert!(permitted.lock("n").holder().await.unwrap().unwrap().client().is_some());
    redis::cmd("ACL").arg(&["LOG", "RESET"]).exec(&mut server.cli()).unwrap();
    let reader = Client::connect(&without).await.unwrap();
    for _ in 0..3 {
        assert_eq!(reader.lock("n").holder().await.unwrap().unwrap().client(), None);
    }
    let refusals: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut server.cli()).unwrap();
    let refusals: Vec<_> =
        refusals.iter().map(|one| format!("{one:?}")).filter(|one| one.contains("client:")).collect();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains("bulk-string('\"count\"'), int(1)"), "{refusals:?}");
}

/// Anybody may write such a key.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_name_is_no_name() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let _guard = client.lock("n").lock().await.unwrap();
    let key = key(&client);
    let good = "application=a\nhost=h\npid=1\nsince=1";
    let huge = format!("{good}\n{}", "x".repeat(10 << 20));
    for value in [b"".as_slice(), b"nonsense", huge.as_bytes(), &[good.as_bytes(), b"\xff\xfe"].concat()] {
        raw(&server, &[b"SET", key.as_bytes(), value]);
        assert_eq!(client.lock("n").holder().await.unwrap().unwrap().client(), None);
    }
    for words in [
        [b"RPUSH".as_slice(), key.as_bytes(), b"a"].as_slice(),
        &[b"HSET", key.as_bytes(), b"application", b"a"],
        &[b"SADD", key.as_bytes(), b"a"],
    ] {
        redis::cmd("DEL").arg(&key).exec(&mut server.cli()).unwrap();
        raw(&server, words);
        for seen in all_ways(&client, "n").await {
            assert_eq!(seen.client(), None);
        }
    }
    redis::cmd("DEL").arg(&key).exec(&mut server.cli()).unwrap();
    for (text, shown) in [
        ("\u{1b}[31mred", None),
        ("two\u{85}lines", None),
        ("a\u{202e}b\u{200b}", Some(r"a\u{202e}b\u{200b} on h, pid 1")),
    ] {
        raw(&server, &[b"SET", key.as_bytes(), good.replace("=a", &format!("={text}")).as_bytes()]);
        let seen = client.lock("n").holder().await.unwrap().unwrap();
        assert_eq!(seen.client().map(ToString::to_string).as_deref(), shown, "{text:?}");
        assert!(seen.to_string().chars().all(|sign| sign.is_ascii_graphic() || sign == ' '), "{seen}");
        assert!(seen.client().is_none_or(|client| client.since < SystemTime::now()));
    }
}

#[tokio::test]
async fn a_bad_name_is_refused_before_anything_is_sent() {
    let nobody = "redis://127.0.0.1:1/";
    for bad in ["", "a\nb", "a\u{7f}", "\u{1b}[31m", &"x".repeat(257)] {
        for refused in [
            Client::builder().register_as(bad).connect(nobody).await.unwrap_err(),
            Client::builder().register_as(bad).connect_lazy(nobody).unwrap_err(),
        ] {
            assert!(matches!(refused, Error::Misuse { .. }), "{refused}");
            assert!(refused.to_string().contains("register_as"), "{refused}");
        }
    }
    let server = Server::start();
    let longest = "ß".repeat(128);
    let client = Client::builder().register_as(&longest).connect(server.url()).await.unwrap();
    registered(&server, &client).await;
    let _guard = client.lock("n").lock().await.unwrap();
    let seen = client.lock("n").holder().await.unwrap().unwrap();
    assert_eq!(seen.client().map(|client| &client.application), Some(&longest));
}

#[test]
fn the_api_for_threads_has_names_too() {
    let server = Server::start();
    let client = blocking::Client::connect_with(named(), server.url()).unwrap();
    let guard = client.lock("n").lock().unwrap();
    let seen = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        client.lock("n").holder().unwrap().unwrap().client().cloned()
    });
    is_this_process(&seen.expect("it registers soon"));
    let described = client.describe("n").unwrap().unwrap();
    is_this_process(described.holders[0].client().unwrap());
    guard.unlock().unwrap();
    client.close();
    assert_eq!(keys(&server), [""; 0]);
}
