//! Replicas: an acquire counts only once replicas have it.

use crate::support::group::Group;
use crate::support::kind::{in_time, versions_for_all_kinds};
use crate::support::product::{Behind, DRAGONFLY, Product, ProductServer, Rule};
use crate::support::{Java, Server, Stopwatch, WarningLog, eventually, since, subscribers};
use redisson_lock::{Client, Error, Phase, Replication};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Long enough for a replica on a busy machine.
const WITHIN: Duration = Duration::from_secs(1);
/// For many waits that all end in vain.
const IN_VAIN: Duration = Duration::from_millis(300);

async fn checking(server: &Server, replication: Replication) -> Client {
    Client::builder().replication(replication.within(WITHIN)).connect(server.url()).await.unwrap()
}

const NO_ROLE: &str = "-ERR unknown command 'ROLE'";
const NO_WAIT: &str = "-NOPERM this user has no permissions to run the 'wait' command";

/// The URLs that find the server by sentinels and as a cluster.
fn urls(server: &ProductServer) -> [String; 2] {
    ["redis-sentinel", "redis-cluster"].map(|scheme| server.url(scheme))
}

/// Runs on one thread, because it reads the log.
#[tokio::test]
async fn the_default_warns_once_where_replicas_cannot_be_queried() {
    const ROLE: &[Rule] = &[Rule::Answer("role", NO_ROLE)];
    const WAIT: &[Rule] = &[Rule::Answer("wait", NO_WAIT)];
    const BOTH: &[Rule] = &[Rule::Answer("role", NO_ROLE), Rule::Answer("wait", NO_WAIT)];
    for (rules, missing) in [(ROLE, "ROLE"), (WAIT, "WAIT"), (BOTH, "ROLE")] {
        let server = ProductServer::start(Product { name: missing, behind: Behind::AllSlots, rules }).await;
        for url in urls(&server) {
            let log = WarningLog::start();
            let client = Client::connect(&url).await.unwrap();
            client.lock("n").lock().await.unwrap().unlock().await.unwrap();
            let before = server.connections();
            server.cut();
            locks_after_reconnect(&server, before, &client).await;
            let warnings = log.lines("replica");
            assert_eq!(warnings.len(), 1, "{url} without {missing}: {warnings:?}");
            assert!(warnings[0].contains("ClientBuilder::replication"), "{warnings:?}");
            assert!(warnings[0].contains(missing), "{warnings:?}");
            client.close().await;
        }
    }
}

/// Two acquires of one client that are checked with a stopped replica.
struct Checks {
    _master: Server,
    replica: Server,
    first: JoinHandle<redisson_lock::Result<()>>,
    second: JoinHandle<redisson_lock::Result<()>>,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Connects on the runtime `client`, and starts each acquire on another. The first waits for the replica, and the second for the end
/// of the check of the first.
fn two_checks(client: &Runtime, first: &Runtime, second: &Runtime) -> Checks {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let replication = Replication::at_least(1).within(Duration::from_secs(60));
    let client = client.block_on(Client::builder().replication(replication).connect(master.url())).unwrap();
    let acquiring = |name: &str, on: &Runtime| {
        let lock = client.lock(name);
        on.spawn(async move { lock.lock().await.map(drop) })
    };
    replica.stop_signal();
    let mut cli = master.cli();
    let first = acquiring("first", first);
    let mut clients = || redis::cmd("INFO").arg("clients").query::<String>(&mut cli).unwrap();
    second.block_on(eventually(|| clients().contains("blocked_clients:1")));
    let pinged = client.clone();
    let waiting = acquiring("second", second);
    second.block_on(eventually(|| redis::cmd("EXISTS").arg("second").query(&mut cli).unwrap()));
    // Replies come in order. By this one, the second acquire has its own, and goes on before this task does.
    let answered = second.spawn(async move {
        pinged.ping().await.unwrap();
        tokio::task::yield_now().await;
    });
    second.block_on(answered).unwrap();
    Checks { _master: master, replica, first, second: waiting }
}

/// The first caller starts the task that serves all callers.
#[test]
fn replicas_are_checked_after_the_runtime_of_a_caller_has_ended() {
    let (clients, callers) = (runtime(), runtime());
    let checks = two_checks(&clients, &callers, &clients);
    drop(callers);
    checks.replica.cont();
    clients.block_on(in_time("an acquire on the client's runtime", checks.second)).unwrap().unwrap();
}

/// A caller does not wait for a task that has ended.
#[test]
fn a_check_of_replicas_ends_with_the_runtime_of_the_client() {
    let (clients, callers) = (runtime(), runtime());
    let checks = two_checks(&clients, &callers, &callers);
    clients.shutdown_background();
    for acquiring in [checks.first, checks.second] {
        let acquired = callers.block_on(in_time("an acquire after the runtime has ended", acquiring));
        acquired.unwrap().unwrap_err();
    }
}

/// Waits for a new connection, and locks on it.
async fn locks_after_reconnect(server: &ProductServer, before: usize, client: &Client) {
    while server.connections() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_number_is_refused_where_replicas_cannot_be_queried() {
    const ROLE: &[Rule] = &[Rule::Answer("role", NO_ROLE)];
    const WAIT: &[Rule] = &[Rule::Answer("wait", NO_WAIT)];
    for (rules, missing, code) in [(ROLE, "ROLE", "ERR"), (WAIT, "WAIT", "NOPERM")] {
        let server = ProductServer::start(Product { name: missing, behind: Behind::AllSlots, rules }).await;
        let [sentinels, cluster] = urls(&server);
        for url in [sentinels, cluster, server.url("redis")] {
            let started = Stopwatch::start();
            let connecting = Client::builder().replication(Replication::at_least(1)).connect(&url);
            let error = connecting.await.expect_err(&url);
            assert!(matches!(error, Error::Refused { phase: Phase::Connect, .. }), "{url}: {error:?}");
            assert_eq!(error.code(), Some(code), "{error}");
            let text = error.to_string();
            assert!(text.contains(missing) && text.contains("Replication::at_least"), "{text}");
            assert!(started.elapsed() < Duration::from_secs(3), "{url}: {:?}", started.elapsed());
        }
    }
}

/// Some servers report a master's role in two parts instead of three.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_reply_of_two_parts_is_accepted() {
    const KVROCKS: Product = Product {
        name: "an offset alone",
        behind: Behind::OneServer,
        rules: &[Rule::Role("*2\r\n$6\r\nmaster\r\n$1\r\n0\r\n")],
    };
    for product in [DRAGONFLY, KVROCKS] {
        let server = ProductServer::start(product).await;
        let client = Client::connect(server.url("redis-sentinel")).await.unwrap();
        client.lock("n").lock().await.unwrap().unlock().await.unwrap();
        let two = Client::builder().replication(Replication::at_least(1).within(WITHIN));
        let client = two.connect(server.url("redis")).await.unwrap();
        match client.lock("n").lock().await {
            Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn exists(server: &Server, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(&mut server.cli()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_acquire_is_undone() {
    // The condition that WAIT waits for differs between versions.
    for master in
        [Server::start(), Server::of("REDISSON_LOCK_REDIS_8_6"), Server::of("REDISSON_LOCK_VALKEY_9_1")]
    {
        assert_undone(master).await;
    }
}

async fn assert_undone(master: Server) {
    let replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    assert!(exists(&replica, "orders"), "the acquire counts, and the replica does not have it");
    guard.unlock().await.unwrap();

    replica.stop_signal();
    let started = Instant::now();
    match lock.try_lock().await {
        Err(Error::NotReplicated { acknowledged: 0, needed: 1, waited: WITHIN, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() >= WITHIN);
    eventually(|| !exists(&master, "orders")).await;
    // Another client finds the lock free.
    let other = Client::connect(master.url()).await.unwrap();
    other.lock("orders").try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    replica.cont();
    eventually_replicated(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_keeps_no_replication_connection() {
    let master = Server::start();
    let _replica = Server::replica_of(&master);
    let mut cli = master.cli();
    let mut connections = || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut cli).unwrap();
        list.lines().count()
    };
    // The connection of the replica, and the one of this query.
    eventually(|| connections() == 2).await;
    let client = checking(&master, Replication::any()).await;
    client.lock("orders").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(connections(), 5, "commands, messages, and waiting for replicas");
    client.close().await;
    eventually(|| connections() == 2).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_for_replicas_that_do_not_exist() {
    let master = Server::start();
    let client = checking(&master, Replication::any()).await;
    // A client that connects sends WAIT for 0 replicas, to find out whether it may.
    master.commandstats_reset();
    let lock = client.lock("orders");
    for _ in 0..3 {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    // A release asks replicas only after its caller has gone on.
    client.close().await;
    assert_eq!((master.calls("set"), master.calls("wait")), (0, 0));

    // A replica that joins is asked from then on.
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let replica = Server::replica_of(&master);
    master.commandstats_reset();
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert!(master.calls("wait") > 0);
    replica.stop_signal();
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, Error::NotReplicated { acknowledged: 0, needed: 1, .. }), "{error}");
}

/// The replica may be about to become master, and a later connection has never seen it.
#[tokio::test(flavor = "multi_thread")]
async fn later_connections_also_miss_a_replica_that_left() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    lock.lock().await.unwrap().unlock().await.unwrap();
    redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).exec(&mut replica.cli()).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut master.cli()).unwrap();
    match lock.lock().await {
        Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// Servers and middleboxes close connections that are idle for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_replication_connection_closed_while_idle_is_reopened() {
    let master = Server::start();
    let _replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    let mut cli = master.cli();
    for _ in 0..3 {
        let written = master.calls("set");
        lock.lock().await.unwrap().unlock().await.unwrap();
        // The release also asks the replicas, after its caller has gone on.
        eventually(|| master.calls("set") >= written + 2).await;
        let mut killed = false;
        eventually(|| {
            let clients: String = redis::cmd("INFO").arg("clients").query(&mut cli).unwrap();
            let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut cli).unwrap();
            let idle = clients.contains("blocked_clients:0");
            for line in list.lines().filter(|line| idle && line.contains(" cmd=wait ")) {
                let id = line.split_once("id=").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0;
                killed |= redis::cmd("CLIENT").arg(&["KILL", "ID", id]).exec(&mut cli).is_ok();
            }
            killed
        })
        .await;
    }
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// Waits until the replica has caught up.
async fn eventually_replicated(client: &Client) {
    let lock = client.lock("another");
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        match lock.lock().await {
            Ok(guard) => return guard.unlock().await.unwrap(),
            Err(error @ Error::NotReplicated { .. }) => assert!(Instant::now() < limit, "{error}"),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Covers every kind whose acquire writes.
#[tokio::test(flavor = "multi_thread")]
async fn replication_is_checked_for_every_kind() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let client = Client::builder()
        .replication(Replication::any().within(IN_VAIN))
        .connect(master.url())
        .await
        .unwrap();
    client.semaphore("permits").try_set_permits(1).await.unwrap();
    client.expirable_semaphore("expirable").try_set_permits(1).await.unwrap();
    replica.stop_signal();
    let both = client.read_write_lock("both");
    let locks = [
        client.lock("plain"),
        client.fair_lock("fair"),
        client.fenced_lock("fenced"),
        client.spin_lock("spin", redisson_lock::BackOff::new()),
        client.non_reentrant_lock("non-reentrant"),
        client.non_reentrant_fair_lock("non-reentrant-fair"),
        both.read().clone(),
        client.read_write_lock("write").write().clone(),
        client.value_lock("value"),
        client.group_lock("group", ["a"]),
    ];
    let refused = |error: Error| assert!(matches!(error, Error::NotReplicated { .. }), "{error}");
    for lock in &locks {
        refused(lock.try_lock().await.unwrap_err());
        refused(lock.try_lock_for(Duration::from_secs(5)).await.unwrap_err());
    }
    refused(client.semaphore("permits").try_acquire().await.unwrap_err());
    refused(client.expirable_semaphore("expirable").try_acquire().await.unwrap_err());
    replica.cont();
    // Everything was released.
    for lock in &locks {
        eventually_free(lock).await;
    }
    assert_eq!(client.semaphore("permits").available_permits().await.unwrap(), 1);
    assert_eq!(client.expirable_semaphore("expirable").available_permits().await.unwrap(), 1);
}

async fn eventually_free(lock: &redisson_lock::Lock) {
    let limit = Instant::now() + Duration::from_secs(20);
    while lock.is_locked().await.unwrap() {
        assert!(Instant::now() < limit, "{lock:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_replicas_can_be_required() {
    let master = Server::start();
    // No replica is connected.
    checking(&master, Replication::any()).await.lock("n").lock().await.unwrap().unlock().await.unwrap();
    match checking(&master, Replication::at_least(1)).await.lock("n").lock().await {
        Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    let replicas = [Server::replica_of(&master), Server::replica_of(&master)];
    let two = checking(&master, Replication::at_least(2)).await;
    two.lock("n").lock().await.unwrap().unlock().await.unwrap();
    replicas[0].stop_signal();
    match two.lock("n").lock().await {
        Err(Error::NotReplicated { acknowledged: 1, needed: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    // One replica is enough for Redisson's rule.
    let any = checking(&master, Replication::any()).await;
    any.lock("n").lock().await.unwrap().unlock().await.unwrap();
    replicas[0].cont();
}

/// Redisson has this fault: its release waits for replicas, and fails in the end although the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_does_not_wait_for_replicas() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let long = Replication::any().within(Duration::from_secs(60));
    let client = Client::builder().replication(long).connect(master.url()).await.unwrap();
    for version in versions_for_all_kinds() {
        let java = Java::get(&version).client(&master, 0).await.thread("t");
        let guard = client.lock("orders").lock().await.unwrap();
        replica.stop_signal();
        let waiting = java.lock("plain", "orders");
        eventually(|| subscribers(&master, "redisson_lock__channel:{orders}") == 1).await;
        in_time("the release", guard.unlock()).await.unwrap();
        in_time("Java's acquire", waiting).await.unwrap();
        java.unlock("plain", "orders").await.unwrap();
        replica.cont();
    }
}

/// Pins the fault of Redisson that the test above names.
#[tokio::test(flavor = "multi_thread")]
async fn redissons_release_fails_although_it_took_effect() {
    let group = Group::start(1);
    for version in versions_for_all_kinds().iter().filter(|version| since(version, 3, 18)) {
        let java = Java::get(version).client_at(&group.for_java(), 0).await.thread("t");
        java.lock("plain", "orders").await.unwrap();
        group.replica.stop_signal();
        java.unlock("plain", "orders").await.unwrap_err();
        assert!(!exists(&group.master, "orders"), "{version}");
        group.replica.cont();
    }
}

/// However many acquires wait for replicas at one time, they share one wait.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_acquires_share_one_wait() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    client.lock("first").lock().await.unwrap().unlock().await.unwrap();
    replica.stop_signal();
    let waits = master.calls("wait");
    let started = Stopwatch::start();
    let acquires: Vec<_> = (0..200)
        .map(|n| {
            let lock = client.lock(format!("orders:{n}"));
            tokio::spawn(async move { lock.lock().await.map(drop) })
        })
        .collect();
    for acquire in acquires {
        assert!(matches!(acquire.await.unwrap(), Err(Error::NotReplicated { .. })));
    }
    assert!(started.elapsed() < WITHIN * 20, "{:?}", started.elapsed());
    assert!(master.calls("wait") - waits <= 10, "{} times", master.calls("wait") - waits);
    replica.cont();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_rule_out_the_check_are_misuse() {
    let server = Server::start();
    let ahead = redisson_lock::HandOff::new().pipelined(true);
    for (builder, url) in [
        (Client::builder().replication(Replication::any()).hand_off(ahead), server.url()),
        (Client::builder().replication(Replication::any().within(Duration::ZERO)), server.url()),
    ] {
        match builder.connect(url).await {
            Err(Error::Misuse { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
