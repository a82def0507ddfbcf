//! Replicas: acquires that count only once replicas have them, and what a holder is told of when one takes the master's place.

use crate::support::group::Group;
use crate::support::kind::{in_time, of_kinds};
use crate::support::product::{Behind, DRAGONFLY, Imitation, Product, Rule};
use crate::support::{Java, Log, Server, Stopwatch, eventually, since, subscribers};
use redisson_lock::{Client, Error, Phase, Replication};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_millis(300);

async fn checking(server: &Server, replication: Replication) -> Client {
    Client::builder().replication(replication.within(WITHIN)).connect(server.url()).await.unwrap()
}

const NO_ROLE: &str = "-ERR unknown command 'ROLE'";
const NO_WAIT: &str = "-NOPERM this user has no permissions to run the 'wait' command";

/// Found by sentinels, or as a cluster.
async fn urls(server: &mut Imitation) -> [String; 2] {
    [server.sentinel().await, server.url("redis-cluster")]
}

/// Of one thread, because it reads the log.
#[tokio::test]
async fn where_replicas_cannot_be_asked_for_the_default_goes_on_with_one_warning() {
    const ROLE: &[Rule] = &[Rule::Answer("role", NO_ROLE)];
    const WAIT: &[Rule] = &[Rule::Answer("wait", NO_WAIT)];
    const BOTH: &[Rule] = &[Rule::Answer("role", NO_ROLE), Rule::Answer("wait", NO_WAIT)];
    for (rules, missing) in [(ROLE, "ROLE"), (WAIT, "WAIT"), (BOTH, "ROLE")] {
        let mut server = Imitation::start(Product { name: missing, behind: Behind::AllSlots, rules }).await;
        for url in urls(&mut server).await {
            let log = Log::start();
            let client = Client::connect(&url).await.unwrap();
            client.lock("n").lock().await.unwrap().unlock().await.unwrap();
            let before = server.connections();
            server.cut();
            eventually_renewed(&server, before, &client).await;
            let warnings = log.lines("replica");
            assert_eq!(warnings.len(), 1, "{url} without {missing}: {warnings:?}");
            assert!(warnings[0].contains("ClientBuilder::replication"), "{warnings:?}");
            assert!(warnings[0].contains(missing), "{warnings:?}");
            client.close().await;
        }
    }
}

/// On a new connection.
async fn eventually_renewed(server: &Imitation, before: usize, client: &Client) {
    while server.connections() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_replicas_cannot_be_asked_for_a_number_of_them_is_refused_at_connect() {
    const ROLE: &[Rule] = &[Rule::Answer("role", NO_ROLE)];
    const WAIT: &[Rule] = &[Rule::Answer("wait", NO_WAIT)];
    for (rules, missing, code) in [(ROLE, "ROLE", "ERR"), (WAIT, "WAIT", "NOPERM")] {
        let mut server = Imitation::start(Product { name: missing, behind: Behind::AllSlots, rules }).await;
        let [sentinels, cluster] = urls(&mut server).await;
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

/// Not every server that can be asked gives a master's role in three parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_of_two_parts_is_understood() {
    const KVROCKS: Product = Product {
        name: "an offset alone",
        behind: Behind::OneServer,
        rules: &[Rule::Role("*2\r\n$6\r\nmaster\r\n$1\r\n0\r\n")],
    };
    for product in [DRAGONFLY, KVROCKS] {
        let mut server = Imitation::start(product).await;
        let client = Client::connect(server.sentinel().await).await.unwrap();
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
async fn an_acquire_that_no_replica_has_is_undone() {
    // What WAIT waits for is not the same in all versions.
    for master in
        [Server::start(), Server::of("REDISSON_LOCK_REDIS_8_6"), Server::of("REDISSON_LOCK_VALKEY_9_1")]
    {
        is_undone(master).await;
    }
}

async fn is_undone(master: Server) {
    let replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    assert!(exists(&replica, "orders"), "it counts, and the replica does not have it");
    guard.unlock().await.unwrap();

    replica.stop_signal();
    let started = Instant::now();
    match lock.try_lock().await {
        Err(Error::NotReplicated { acknowledged: 0, needed: 1, waited: WITHIN, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() >= WITHIN);
    eventually(|| !exists(&master, "orders")).await;
    // Another client finds it free.
    let other = Client::connect(master.url()).await.unwrap();
    other.lock("orders").try_lock().await.unwrap().expect("it is free").unlock().await.unwrap();
    replica.cont();
    eventually_replicated(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_client_keeps_no_connection_to_ask_replicas_by() {
    let master = Server::start();
    let _replica = Server::replica_of(&master);
    let mut cli = master.cli();
    let mut connections = || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut cli).unwrap();
        list.lines().count()
    };
    // The replica's, and the one that asks.
    eventually(|| connections() == 2).await;
    let client = checking(&master, Replication::any()).await;
    client.lock("orders").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(connections(), 5, "commands, messages, and waiting for replicas");
    client.close().await;
    eventually(|| connections() == 2).await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_for_replicas_where_there_are_none() {
    let master = Server::start();
    let client = checking(&master, Replication::any()).await;
    // A client that connects asks for none with WAIT, to find out whether it may.
    master.commandstats_reset();
    let lock = client.lock("orders");
    for _ in 0..3 {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    // The release tells of replicas only when its caller has gone on.
    client.close().await;
    assert_eq!((master.calls("set"), master.calls("wait")), (0, 0));

    // One that comes is asked from then on.
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

/// It may be about to take the master's place, and a connection that came after has not met it.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_left_is_missed_by_later_connections_too() {
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

/// Servers and what is between close what is idle for long.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_while_nobody_needed_it_is_made_anew() {
    let master = Server::start();
    let _replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    let lock = client.lock("orders");
    let mut cli = master.cli();
    for _ in 0..3 {
        let written = master.calls("set");
        lock.lock().await.unwrap().unlock().await.unwrap();
        // The release asks, too, when its caller has gone on.
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

/// The replica has to come to itself first.
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

/// The kinds whose acquires write.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_checked() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let client = checking(&master, Replication::any()).await;
    client.semaphore("permits").try_set_permits(1).await.unwrap();
    client.expirable_semaphore("expirable").try_set_permits(1).await.unwrap();
    replica.stop_signal();
    let both = client.read_write_lock("both");
    let locks = [
        client.lock("plain"),
        client.fair_lock("fair"),
        client.fenced_lock("fenced"),
        client.spin_lock("spin", redisson_lock::BackOff::default()),
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
    // All was given back.
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
async fn a_number_of_replicas_can_be_asked_for() {
    let master = Server::start();
    // None is connected.
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
    // One is enough for Redisson's rule.
    let any = checking(&master, Replication::any()).await;
    any.lock("n").lock().await.unwrap().unlock().await.unwrap();
    replicas[0].cont();
}

/// One of Redisson's faults: a release waits for replicas, and in the end it fails though the lock is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_does_not_wait_for_replicas() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let long = Replication::any().within(Duration::from_secs(60));
    let client = Client::builder().replication(long).connect(master.url()).await.unwrap();
    for version in of_kinds() {
        let java = Java::get(&version).client(&master, 0).await.thread("t");
        let guard = client.lock("orders").lock().await.unwrap();
        replica.stop_signal();
        let waiting = java.lock("plain", "orders");
        eventually(|| subscribers(&master, "redisson_lock__channel:{orders}") == 1).await;
        guard.unlock().await.unwrap();
        in_time("the release", waiting).await.unwrap();
        java.unlock("plain", "orders").await.unwrap();
        replica.cont();
    }
}

/// Pins what the test above is about.
#[tokio::test(flavor = "multi_thread")]
async fn redissons_release_fails_though_it_took_effect() {
    let group = Group::start(1);
    for version in of_kinds().iter().filter(|version| since(version, 3, 18)) {
        let java = Java::get(version).client_at(&group.for_java(), 0).await.thread("t");
        java.lock("plain", "orders").await.unwrap();
        group.replica.stop_signal();
        java.unlock("plain", "orders").await.unwrap_err();
        assert!(!exists(&group.master, "orders"), "{version}");
        group.replica.cont();
    }
}

/// However many acquires wait for replicas at one time, they wait once.
#[tokio::test(flavor = "multi_thread")]
async fn many_acquires_share_a_wait() {
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
async fn what_cannot_be_checked_is_a_misuse() {
    let server = Server::start();
    let mut ahead = redisson_lock::HandOff::default();
    ahead.pipelined = true;
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
