//! Connection settings and credentials, and the errors for those that do not work.
//!
//! Each failure returns a typed error in time, and the error says what to do about it.

use crate::support::cluster::Cluster;
use crate::support::group::Group;
use crate::support::kind::{Kind, assert_nothing_left};
use crate::support::{CANARY, Server, Stopwatch, WarningLog, assert_no_canary, eventually, subscribers};
use redisson_lock::{
    Client, ClientBuilder, Credentials, Error, HoldState, Owner, Phase, Replication, Servers,
};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(1500);
const CHANNEL: &str = "redisson_lock__channel:{n}";

/// A password that changes.
#[derive(Clone)]
struct Password(Arc<Mutex<&'static str>>);

impl Password {
    fn new(first: &'static str) -> Self {
        Self(Arc::new(Mutex::new(first)))
    }

    fn credentials(&self) -> impl Fn() -> Credentials + Send + Sync + 'static {
        let this = self.clone();
        move || Credentials::new("app", *this.0.lock().unwrap())
    }

    /// Changes the password at the server and for later connections, and kills the user's connections.
    fn change(&self, server: &Server, to: &'static str) {
        run(server, &format!("ACL SETUSER app resetpass >{to}"));
        *self.0.lock().unwrap() = to;
        run(server, "CLIENT KILL USER app");
    }
}

fn run(server: &Server, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
}

fn builder() -> ClientBuilder {
    Client::builder().response_timeout(TIMEOUT).connect_timeout(TIMEOUT)
}

/// Creates a user with these ACL rules and returns a URL for it.
fn create_user(server: &Server, rules: &str) -> String {
    run(server, &format!("ACL SETUSER app reset on >canary-in-a-coal-mine {rules}"));
    format!("redis://app:canary-in-a-coal-mine@{}", server.address())
}

/// Checks that the call fails within `limit` with this code and this advice, and returns the error.
async fn assert_refused<T: std::fmt::Debug>(
    limit: Duration,
    call: impl Future<Output = Result<T, Error>>,
    code: &str,
    advice: &str,
) -> Error {
    let began = Instant::now();
    let error = tokio::time::timeout(limit, call).await.expect("timed out").unwrap_err();
    assert_eq!(error.code(), Some(code), "{error:?} in {:?} of {limit:?}", began.elapsed());
    assert!(error.to_string().contains(advice), "{error}");
    assert_no_canary(&error);
    error
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_password_is_picked_up_and_holds_are_kept() {
    let server = Server::start();
    let _replica = Server::replica_of(&server);
    run(&server, "ACL SETUSER app on >canary-in-a-coal-mine-first +@all ~* &*");
    let password = Password::new("canary-in-a-coal-mine-first");
    let client = builder()
        .watchdog_timeout(Duration::from_secs(6))
        // Replication uses a connection of its own.
        .replication(Replication::at_least(1))
        .credentials(password.credentials())
        .connect(server.url())
        .await
        .unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("held").lock().await.unwrap();
    for next in ["canary-in-a-coal-mine-second", "canary-in-a-coal-mine-third"] {
        let theirs = other.lock("n").lock().await.unwrap();
        let waiting = tokio::spawn({
            let lock = client.lock("n");
            async move { lock.lock().await }
        });
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        password.change(&server, next);
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        let deadline = guard.deadline();
        theirs.unlock().await.unwrap();
        let served = tokio::time::timeout(WAIT, waiting).await.expect("timed out").unwrap().unwrap();
        served.unlock().await.unwrap();
        eventually(|| guard.deadline() > deadline).await;
        assert_eq!(guard.state(), HoldState::Held);
    }
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn an_outdated_password_is_reported_until_the_callback_returns_a_new_one() {
    let server = Server::start();
    run(&server, "ACL SETUSER app on >canary-in-a-coal-mine-first +@all ~* &*");
    let password = Password::new("canary-in-a-coal-mine-first");
    let client = builder().credentials(password.credentials()).connect(server.url()).await.unwrap();
    password.change(&server, "canary-in-a-coal-mine-second");
    *password.0.lock().unwrap() = "canary-in-a-coal-mine-first";
    let assert_advice =
        |error: Error| assert!(error.to_string().contains("ClientBuilder::credentials"), "{error}");
    assert_advice(client.lock("n").try_lock().await.unwrap_err());
    assert_advice(builder().credentials(password.credentials()).connect(server.url()).await.unwrap_err());
    *password.0.lock().unwrap() = "canary-in-a-coal-mine-second";
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    let shown = format!(
        "{:?} {:?}",
        Credentials::new("app", "canary-in-a-coal-mine-first"),
        builder().credentials(password.credentials())
    );
    assert!(!shown.contains(CANARY), "{shown}");
}

/// The panic fails one connection attempt, which is retried like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_panicking_credentials_callback_fails_one_attempt_only() {
    let server = Server::start();
    run(&server, &format!("ACL SETUSER app on >{CANARY} +@all ~* &*"));
    let panics = Arc::new(AtomicBool::new(true));
    let callback_panics = panics.clone();
    let builder = builder().credentials(move || match callback_panics.load(Ordering::SeqCst) {
        // `resume_unwind` skips the panic report: a backtrace may take longer than the limit of a call.
        true => std::panic::resume_unwind(Box::new(format!("no credentials, and not {CANARY}"))),
        false => Credentials::new("app", CANARY),
    });
    let error = builder.clone().connect(server.url()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Misuse { message, .. } if message.contains("ClientBuilder::credentials")),
        "{error:?}"
    );
    assert_no_canary(&error);

    panics.store(false, Ordering::SeqCst);
    let client = builder.connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("n").lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("n");
        async move { lock.lock().await }
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    panics.store(true, Ordering::SeqCst);
    run(&server, "CLIENT KILL USER app");
    // A call with a time limit returns the reason.
    let limit = TIMEOUT * 2;
    let lock = client.lock("m");
    let error =
        tokio::time::timeout(limit, lock.try_lock_for(TIMEOUT)).await.expect("timed out").unwrap_err();
    assert!(error.to_string().contains("ClientBuilder::credentials"), "{error:?}");
    assert_no_canary(&error);
    panics.store(false, Ordering::SeqCst);
    held.unlock().await.unwrap();
    let served = tokio::time::timeout(WAIT, waiting).await.expect("timed out").unwrap().unwrap();
    served.unlock().await.unwrap();
}

#[tokio::test]
async fn credentials_in_two_places_are_misuse() {
    let both = builder()
        .credentials(|| Credentials::password("canary-in-a-coal-mine"))
        .connect("redis://:canary-in-a-coal-mine@127.0.0.1:1")
        .await;
    assert!(
        matches!(&both, Err(Error::Misuse { message, .. }) if message.contains("omit one of them")),
        "{both:?}"
    );
}

/// Without the error, the lock would silently stay held until its lease expires.
#[tokio::test]
async fn unlock_reports_a_missing_publish_permission() {
    let server = Server::start();
    for rules in ["+@all ~* resetchannels", "+@all -publish ~* &*"] {
        let client = builder().connect(create_user(&server, rules)).await.unwrap();
        // A fair lock's release publishes to the first waiter only, and this lock has no waiters.
        for kind in [Kind::Reentrant, Kind::Fenced, Kind::Read, Kind::Write] {
            let lock = kind.lock(&client, &format!("{kind:?}"));
            let guard = lock.lock().await.unwrap();
            assert_refused(TIMEOUT, guard.unlock(), "NOPERM", "docs/deployment.md").await;
        }
        run(&server, "FLUSHALL");
    }
}

#[tokio::test]
async fn connect_reports_a_missing_select_permission() {
    let server = Server::start();
    let url = format!("{}/3", create_user(&server, "+@all -select ~* &*"));
    let error = assert_refused(TIMEOUT, builder().connect(url), "NOPERM", "docs/deployment.md").await;
    assert!(error.to_string().contains("select"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_calls_report_a_missing_subscribe_permission() {
    let server = Server::start();
    let other = Client::connect(server.url()).await.unwrap();
    for rules in ["+@all -subscribe ~* &*", "+@all ~* resetchannels"] {
        let client = builder().connect(create_user(&server, rules)).await.unwrap();
        for kind in Kind::locks().filter(|kind| kind.listens()) {
            let theirs = if kind == Kind::Read { Kind::Write } else { kind };
            let held = theirs.lock(&other, "n").lock().await.unwrap();
            let lock = kind.lock(&client, "n");
            // A call that does not wait needs no messages.
            assert!(lock.with_owner(&Owner::unique()).try_lock().await.unwrap().is_none(), "{kind:?}");
            let error = assert_refused(TIMEOUT, lock.lock(), "NOPERM", "docs/deployment.md").await;
            assert!(matches!(error, Error::Refused { phase: Phase::Acquire, .. }), "{kind:?}: {error:?}");
            assert!(error.to_string().contains("subscribe"), "{kind:?}: {error}");
            assert_refused(TIMEOUT, lock.try_lock_for(WAIT), "NOPERM", "docs/deployment.md").await;
            held.unlock().await.unwrap();
            // The failed calls have also left the queue in Redis.
            assert_nothing_left(kind, "n", &server, &[&client, &other]).await;
            run(&server, "FLUSHALL");
        }
        let held = other.semaphore("s");
        held.try_set_permits(1).await.unwrap();
        let held = held.acquire().await.unwrap();
        assert_refused(TIMEOUT, client.semaphore("s").acquire(), "NOPERM", "docs/deployment.md").await;
        held.release().await.unwrap();
        let latch = other.count_down_latch("l");
        latch.try_set_count(1).await.unwrap();
        assert_refused(TIMEOUT, client.count_down_latch("l").wait(), "NOPERM", "docs/deployment.md").await;
        run(&server, "FLUSHALL");

        // Once the user has the permission, the client subscribes again.
        let held = other.lock("n").lock().await.unwrap();
        create_user(&server, "+@all ~* &*");
        let waiting = tokio::spawn({
            let lock = client.lock("n");
            async move { lock.lock().await }
        });
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        held.unlock().await.unwrap();
        waiting.await.unwrap().unwrap().unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_replica_is_refused_with_its_masters_address() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let error =
        assert_refused(TIMEOUT, builder().connect(replica.url()), "READONLY", "name the master").await;
    assert!(error.to_string().contains(&master.address()), "{error}");
    // Without INFO the client learns from its first write that the server is a replica.
    for server in [&master, &replica] {
        create_user(server, "+@all -info ~* &*");
    }
    let url = format!("redis://app:canary-in-a-coal-mine@{}", replica.address());
    assert_refused(TIMEOUT, builder().connect(url), "READONLY", "name the master").await;
}

#[tokio::test]
async fn calls_report_a_master_that_became_a_replica() {
    let (server, master) = (Server::start(), Server::start());
    let client = builder().connect(server.url()).await.unwrap();
    run(&server, &format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let lock = client.lock("n");
    assert_refused(TIMEOUT * 2, lock.try_lock(), "READONLY", "name the master").await;
    assert_refused(TIMEOUT * 2, lock.try_lock_for(TIMEOUT), "READONLY", "name the master").await;
    run(&server, "REPLICAOF NO ONE");
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// One key for each master of the cluster.
fn keys(cluster: &Cluster) -> Vec<String> {
    let key = |master| (0..).map(|n| format!("key{n}")).find(|key| cluster.master_of(key) == master);
    (0..cluster.masters.len())
        .map(|master| key(master).expect("every master serves some of the keys"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_missing_master_of_a_cluster() {
    let mut cluster = Cluster::start(3, 0);
    let keys = keys(&cluster);
    let timeout = Duration::from_millis(700);
    let builder = || builder().response_timeout(timeout);
    let before = builder().connect(cluster.url()).await.unwrap();
    cluster.masters[2].kill();
    let failed = |cluster: &Cluster, with: &str| {
        let info =
            |server: &Server| redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut server.cli()).unwrap();
        cluster.masters[..2].iter().all(|server| info(server).contains(with))
    };
    eventually(|| failed(&cluster, "cluster_state:fail")).await;
    let after = builder().connect(cluster.url()).await.unwrap();
    let missing = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(text.contains("slot") && text.contains(&cluster.masters[2].port().to_string()), "{text}");
    };
    for client in [&before, &after] {
        for key in &keys[..2] {
            let advice = "cluster-require-full-coverage";
            assert_refused(TIMEOUT * 2, client.lock(key).try_lock(), "CLUSTERDOWN", advice).await;
            assert_refused(TIMEOUT * 2, client.lock(key).try_lock_for(timeout), "CLUSTERDOWN", advice).await;
        }
        missing(client.lock(&keys[2]).try_lock().await.unwrap_err());
        missing(client.lock(&keys[2]).try_lock_for(timeout).await.unwrap_err());
    }

    // The other masters serve their slots alone.
    for server in &cluster.masters[..2] {
        server.configure("cluster-require-full-coverage", "no");
    }
    eventually(|| failed(&cluster, "cluster_state:ok")).await;
    for client in [&before, &after] {
        for key in &keys[..2] {
            client.lock(key).lock().await.unwrap().unlock().await.unwrap();
        }
        missing(client.lock(&keys[2]).try_lock().await.unwrap_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mostly_dead_cluster_is_reported_within_the_connect_timeout() {
    let mut cluster = Cluster::start(3, 0);
    let url = cluster.url();
    let connect_error = async || {
        let began = Stopwatch::start();
        let error = builder().connect(&url).await.unwrap_err();
        assert!(began.elapsed() < TIMEOUT * 3 / 2, "{error} after {:?}", began.elapsed());
        error.to_string()
    };
    // The stopped masters are silent, and the client asks them first.
    cluster.masters[0].stop_signal();
    builder().connect(&url).await.unwrap();
    cluster.masters[1].stop_signal();
    let text = connect_error().await;
    assert!(text.contains("of the 3 masters"), "{text}");
    for server in &mut cluster.masters[..2] {
        server.kill();
    }
    let text = connect_error().await;
    assert!(text.contains("of the 3 masters"), "{text}");
    cluster.masters[2].kill();
    connect_error().await;
}

/// Each seed gets its turn before the connect timeout, however many seeds before it are silent.
#[tokio::test(flavor = "multi_thread")]
async fn silent_seeds_do_not_hide_the_last_one() {
    let cluster = Cluster::start(1, 0);
    // The system accepts the connections, and nobody reads them.
    let silent: Vec<_> = (0..12).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let seeds = silent.iter().map(|seed| seed.local_addr().unwrap().to_string());
    let seeds: Vec<_> = seeds.chain([cluster.masters[0].address()]).collect();
    let builder = Client::builder().connect_timeout(Duration::from_secs(2));
    let client = builder.connect(format!("redis-cluster://{}", seeds.join(","))).await.unwrap();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

/// The connection settings of a redis-rs client lead to the same locks.
#[tokio::test]
async fn redis_rs_connection_settings_can_be_reused() {
    let server = Server::start();
    let url = format!("{}/3", create_user(&server, "+@all ~* &*"));
    let yours = redis::Client::open(url.as_str()).unwrap();
    let client = builder().connect_with(Servers::one(yours.get_connection_info().clone())).await.unwrap();
    let other = Client::connect(url).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    assert!(other.lock("n").try_lock().await.unwrap().is_none());
    assert!(Client::connect(server.url()).await.unwrap().lock("n").try_lock().await.unwrap().is_some());
    guard.unlock().await.unwrap();
    let misuse = builder().connect_with(Servers::one("no URL")).await;
    assert!(matches!(misuse, Err(Error::Misuse { .. })), "{misuse:?}");

    let cluster = Cluster::start(3, 0);
    let nodes: Vec<_> = cluster.masters[1..].iter().map(Server::url).collect();
    let client = builder().connect_with(Servers::cluster(nodes)).await.unwrap();
    let other = builder().connect(cluster.url()).await.unwrap();
    for key in keys(&cluster) {
        let guard = client.lock(&key).lock().await.unwrap();
        assert!(other.lock(&key).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
    let bad: [Vec<&str>; 3] = [
        vec![],
        vec!["redis://:canary-in-a-coal-mine-a@127.0.0.1:1", "redis://:canary-in-a-coal-mine-b@127.0.0.1:2"],
        vec!["redis://127.0.0.1:1/1"],
    ];
    for nodes in bad {
        let misuse = builder().connect_with(Servers::cluster(nodes)).await;
        assert!(matches!(misuse, Err(Error::Misuse { .. })), "{misuse:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinel_passwords_are_sent_and_changes_are_picked_up() {
    let group = Group::start(1);
    let sentinel = &group.sentinels[0];
    for server in [&group.master, &group.replica] {
        create_user(server, "+@all ~* &*");
    }
    // The rules that docs/deployment.md gives.
    create_user(sentinel, "+sentinel|master");
    run(sentinel, "ACL SETUSER default resetpass >canary-in-a-coal-mine-first");
    let url = group.url();
    let error = builder().connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert!(error.to_string().contains("sentinel_credentials"), "{error}");
    let wrong = builder()
        .sentinel_credentials(|| Credentials::password("canary-in-a-coal-mine-wrong"))
        .connect(&url)
        .await;
    assert_eq!(wrong.unwrap_err().code(), Some("WRONGPASS"));
    // The sentinels get the master's credentials only if the builder shares them.
    let masters = url.replace("://", "://app:canary-in-a-coal-mine@");
    assert_eq!(builder().connect(&masters).await.unwrap_err().code(), Some("NOAUTH"));
    builder().share_credentials_with_sentinels().connect(&masters).await.unwrap();
    let both = builder().share_credentials_with_sentinels();
    let both = both
        .sentinel_credentials(|| Credentials::password("canary-in-a-coal-mine-first"))
        .connect(&masters)
        .await;
    assert!(matches!(both, Err(Error::Misuse { .. })), "{both:?}");
    let theirs = ["redis://:canary-in-a-coal-mine-first@".to_owned() + &sentinel.address()];
    builder()
        .connect_with(Servers::sentinels(theirs, "orders", "redis://app:canary-in-a-coal-mine@master/1"))
        .await
        .unwrap();

    let password = Password::new("canary-in-a-coal-mine-first");
    let shared = password.clone();
    let client = builder()
        .sentinel_credentials(move || Credentials::password(*shared.0.lock().unwrap()))
        .connect(&masters)
        .await
        .unwrap();
    let mut cli = redis::Client::open(format!("redis://:canary-in-a-coal-mine-first@{}", sentinel.address()))
        .unwrap()
        .get_connection()
        .unwrap();
    redis::cmd("ACL")
        .arg(&["SETUSER", "default", "resetpass", ">canary-in-a-coal-mine-second"])
        .exec(&mut cli)
        .unwrap();
    *password.0.lock().unwrap() = "canary-in-a-coal-mine-second";
    let guard = client.lock("n").lock().await.unwrap();
    // The sentinel refuses a failover until it knows its replica well enough.
    eventually(|| redis::cmd("SENTINEL").arg("FAILOVER").arg("orders").exec(&mut cli).is_ok()).await;
    group.wait_for_promotion().await;
    let owner =
        |server: &Server| redis::cmd("HKEYS").arg("m").query::<Vec<String>>(&mut server.cli()).unwrap();
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < limit, "the client stays with the old master");
        if let Ok(guard) = client.lock("m").lock().await {
            let there = !owner(&group.replica).is_empty();
            guard.unlock().await.unwrap();
            if there {
                break;
            }
        }
    }
    eventually(|| guard.state() == HoldState::Held).await;
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_of_replicated_servers_is_found_and_followed() {
    let master = Server::start();
    let replica = Server::replica_of(&master);
    let url = format!("redis-replicated://{},{},127.0.0.1:1/0", replica.address(), master.address());
    let client = builder().connect(&url).await.unwrap();
    let other = builder().connect(&url).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.lock("n").lock().await });
    eventually(|| subscribers(&master, CHANNEL) == 1).await;
    run(&replica, "REPLICAOF NO ONE");
    run(&master, &format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    // The subscription moves to the new master, too.
    eventually(|| subscribers(&replica, CHANNEL) == 1).await;
    let deadline = guard.deadline();
    eventually(|| guard.state() == HoldState::Held && guard.deadline() > deadline).await;
    guard.unlock().await.unwrap();
    tokio::time::timeout(WAIT, waiting).await.expect("timed out").unwrap().unwrap().unlock().await.unwrap();

    let alone = format!("redis-replicated://{}", master.address());
    let error = builder().connect(alone).await.unwrap_err().to_string();
    assert!(error.contains("it is a replica"), "{error}");
    for bad in [
        "redis-replicated://",
        "redis-replicated://a,,b",
        "redis-replicated://a/x",
        "redis-replicated://a/0?db=3",
        "redis-sentinel://a?db=3#m",
        "redis-sentinel://a/0?db=3#m",
        "redis-cluster://a?db=3",
    ] {
        let misuse = builder().connect(bad).await;
        assert!(matches!(misuse, Err(Error::Misuse { .. })), "{bad}: {misuse:?}");
    }
}

/// Records have an expiry, so every policy that evicts keys may evict them. The test runs on one thread because it reads the log.
#[tokio::test]
async fn every_policy_that_may_evict_a_lock_logs_a_warning() {
    let server = Server::start();
    for policy in [
        "noeviction",
        "volatile-ttl",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
    ] {
        server.configure("maxmemory-policy", policy);
        let log = WarningLog::start();
        Client::connect(server.url()).await.unwrap();
        let warnings = log.lines("evict the records");
        assert_eq!(warnings.len(), usize::from(policy != "noeviction"), "{policy}: {warnings:?}");
        assert!(
            warnings.iter().all(|line| line.contains(policy) && line.contains("maxmemory-policy noeviction"))
        );
    }
}
