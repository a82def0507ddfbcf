//! The classic lock, `SET name token NX PX lease`: its own rules in addition to those that `kinds` checks for every kind, and
//! its cost on servers that can delete by value and on servers that cannot. `value_peers` covers clients in other
//! languages.

use std::time::Duration;

use redis::Value;
use redisson_lock::{Client, Error, Lock, LossReason};

use crate::support::cluster::Cluster;
use crate::support::raw::{NAME, changes};
use crate::support::scripts::VALUE_HAND_OFF;
use crate::support::{FaultyClient, RawRedis, Server, eventually};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const LEASE: Duration = Duration::from_millis(900);

struct Bench {
    server: Server,
    raw: RawRedis,
    lock: Lock,
}

impl Bench {
    async fn start() -> Self {
        Self::on(Server::start()).await
    }

    async fn on(server: Server) -> Self {
        let lock = lock_of_new_client(&server).await;
        Self { raw: RawRedis::of(&server), lock, server }
    }

    fn token(&self) -> Option<String> {
        self.raw.run(&["GET", NAME])
    }
}

/// The lock of a new client, whose watchdog has [`LEASE`].
async fn lock_of_new_client(server: &Server) -> Lock {
    let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
    client.value_lock(NAME)
}

#[tokio::test]
async fn the_record_is_a_token_with_the_lease() {
    let bench = Bench::start().await;
    let (lock, other) = (&bench.lock, lock_of_new_client(&bench.server).await);
    bench.raw.messages();
    let guard = lock.lock().await.unwrap();
    let token = bench.token().unwrap();
    assert_eq!(token, guard.owner());
    let random = token.split_once(':').and_then(|(_client, rest)| rest.split_once('-')).unwrap().0;
    assert!(random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    let left = bench.raw.ttl(NAME);
    assert!((1..=LEASE.as_millis() as i64).contains(&left), "{left}");
    assert_eq!((lock.hold_count().await.unwrap(), other.hold_count().await.unwrap()), (1, 0));
    assert!(lock.is_held().await.unwrap() && !other.is_held().await.unwrap());
    assert!(other.is_locked().await.unwrap() && other.remaining_lease().await.unwrap().unwrap() <= LEASE);
    assert_eq!(other.holder().await.unwrap().unwrap().owner(), token);
    guard.unlock().await.unwrap();
    assert_eq!((bench.token(), bench.raw.messages_on(CHANNEL)), (None, vec!["0".to_owned()]));
    // Each hold has a token of its own.
    let guard = lock.with_lease(Duration::from_secs(50)).lock().await.unwrap();
    assert_ne!(bench.token().unwrap(), token);
    let left = bench.raw.ttl(NAME);
    assert!((40_000..=50_000).contains(&left), "{left}");
    drop(guard);
    eventually(|| bench.token().is_none()).await;
    bench.raw.assert_nothing_else_left(&[]).await;
}

/// Each state that the script can find.
#[test]
fn the_hand_off_script_replaces_only_the_token_that_it_names() {
    let server = Server::start();
    let mut cli = server.cli();
    let refusal = |word: &str| Value::Array(vec![Value::BulkString(word.as_bytes().to_vec())]);
    let cases = [
        // The token, repeated; the reply, the token then, and whether the lease begins anew.
        (Some("from"), "0", Value::Int(0), Some("to"), true),
        (Some("from"), "1", Value::Int(0), Some("to"), true),
        (Some("to"), "1", Value::Int(0), Some("to"), true),
        (Some("to"), "0", refusal("OTHER"), Some("to"), false),
        (Some("other"), "0", refusal("OTHER"), Some("other"), false),
        (Some("other"), "1", refusal("OTHER"), Some("other"), false),
        (None, "0", refusal("GONE"), None, false),
        (None, "1", refusal("GONE"), None, false),
    ];
    for (token, repeated, reply, left, begins) in cases {
        for life in [10_000, 90_000] {
            redis::cmd("FLUSHALL").exec(&mut cli).unwrap();
            if let Some(token) = token {
                redis::cmd("SET").arg(NAME).arg(token).arg("PX").arg(life).exec(&mut cli).unwrap();
            }
            let mut script = redis::cmd("EVAL");
            script.arg(VALUE_HAND_OFF).arg(1).arg(NAME);
            script.arg("from").arg("to").arg(30_000).arg(CHANNEL).arg(repeated);
            let case = format!("{token:?}, {repeated}, {life}");
            assert_eq!(script.query::<Value>(&mut cli).unwrap(), reply, "{case}");
            let now: Option<String> = redis::cmd("GET").arg(NAME).query(&mut cli).unwrap();
            assert_eq!(now.as_deref(), left, "{case}");
            let ttl: i64 = redis::cmd("PTTL").arg(NAME).query(&mut cli).unwrap();
            // A repeat never shortens a lease, which a renewal may have extended.
            let expected = match begins {
                true if token == Some("to") => 30_000.max(life),
                true => 30_000,
                false => life,
            };
            assert!(left.is_none() || (expected - 5_000..=expected).contains(&ttl), "{case}: {ttl} ms");
        }
    }
}

/// No hold has this token, and its text shows that.
#[tokio::test]
async fn a_late_token_is_deleted_for_waiters() {
    let bench = FaultyClient::patient().await;
    let lock = bench.client.value_lock(NAME);
    let others = lock_of_new_client(&bench.server).await.lock().await.unwrap();
    let outcome = bench.link.hold_and_cut(changes, lock.try_lock()).await;
    assert!(matches!(outcome, Ok(None)), "{outcome:?}");
    others.unlock().await.unwrap();
    bench.link.deliver(changes).await;
    let orphan = bench.raw.run::<String>(&["GET", NAME]);
    let guard =
        lock.try_lock_for(Duration::from_secs(5)).await.unwrap().expect("the orphaned token is deleted");
    assert_ne!(guard.owner(), orphan);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_record_of_another_type_is_an_error_and_is_left_alone() {
    let bench = Bench::start().await;
    bench.raw.run::<()>(&["HSET", NAME, "field", "value"]);
    let before: Vec<u8> = bench.raw.run(&["DUMP", NAME]);
    bench.raw.messages();
    for (call, error) in [
        ("lock", bench.lock.lock().await.err()),
        ("try_lock", bench.lock.try_lock().await.err()),
        ("holder", bench.lock.holder().await.err()),
        ("force_unlock", bench.lock.force_unlock().await.err()),
    ] {
        assert_eq!(error.as_ref().and_then(Error::code), Some("WRONGTYPE"), "{call}: {error:?}");
    }
    bench.raw.run::<()>(&["DEL", NAME]);
    let guard = bench.lock.lock().await.unwrap();
    bench.raw.run::<()>(&["DEL", NAME]);
    bench.raw.run::<()>(&["HSET", NAME, "field", "value"]);
    assert_eq!(guard.unlock().await.unwrap_err().code(), Some("WRONGTYPE"));
    assert_eq!(bench.raw.run::<Vec<u8>>(&["DUMP", NAME]), before);
    assert!(matches!(
        Client::connect(bench.server.url()).await.unwrap().value_lock("").lock().await,
        Err(Error::Misuse { .. })
    ));
}

/// In a cluster, most nodes do not have the slot of the key with which the client tries the command.
#[tokio::test]
async fn each_master_of_a_cluster_uses_its_delete_by_value_command() {
    let cluster = Cluster::of(3, 0, |arguments| Server::of_with_args("REDISSON_LOCK_VALKEY_9_1", arguments));
    let client = Client::connect(cluster.url()).await.unwrap();
    // The client tries its commands when it connects.
    cluster.masters.iter().for_each(Server::commandstats_reset);
    for at in 0..3 {
        let name = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) == at).unwrap();
        client.value_lock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    let calls = |master: &Server| (master.calls("delifeq"), master.scripts());
    assert_eq!(cluster.masters.iter().map(calls).collect::<Vec<_>>(), [(1, 0); 3]);
}

/// Valkey has such a command from 9.0 on, and Redis another one from 8.4 on. Elsewhere a script does it.
#[tokio::test]
async fn a_release_uses_the_servers_delete_by_value_command() {
    let installed = Server::unrestricted();
    let known = |command: &&str| -> bool {
        let info: Vec<redis::Value> =
            redis::cmd("COMMAND").arg("INFO").arg(command).query(&mut installed.cli()).unwrap();
        matches!(info[..], [redis::Value::Array(_)])
    };
    let its_own = ["delifeq", "delex"].into_iter().find(known);
    for (server, command) in [
        (installed, its_own),
        (Server::of("REDISSON_LOCK_VALKEY_9_1"), Some("delifeq")),
        (Server::of("REDISSON_LOCK_REDIS_8_6"), Some("delex")),
    ] {
        let bench = Bench::on(server).await;
        let what = command.unwrap_or("the script");
        // Load the script, so that each release is one call.
        bench.lock.lock().await.unwrap().unlock().await.unwrap();
        bench.server.commandstats_reset();
        bench.raw.messages();
        for _ in 0..3 {
            let guard = bench.lock.lock().await.unwrap();
            assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{what}");
            guard.unlock().await.unwrap();
            assert_eq!(bench.token(), None, "{what}");
        }
        assert_eq!(bench.raw.messages_on(CHANNEL), ["0", "0", "0"], "{what}");
        let calls = ["delifeq", "delex"].map(|command| (command, bench.server.calls(command)));
        let expected = ["delifeq", "delex"].map(|name| (name, if command == Some(name) { 3 } else { 0 }));
        assert_eq!(calls, expected, "{what}");
        assert_eq!(bench.server.scripts(), if command.is_some() { 0 } else { 3 }, "{what}");

        // Another client's token stays, and the loss is reported.
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.raw.run::<()>(&["SET", NAME, "another's"]);
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Taken, .. })), "{what}: {outcome:?}");
        assert_eq!(bench.token().as_deref(), Some("another's"), "{what}");
        bench.raw.run::<()>(&["DEL", NAME]);
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.raw.run::<()>(&["DEL", NAME]);
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Gone, .. })), "{what}: {outcome:?}");
        bench.raw.messages();

        // Where the user may not use the command, the script does it.
        let Some(command) = command else { continue };
        let rules = ["on", ">canary-in-a-coal-mine", "~*", "&*", "+@all", &format!("-{command}")];
        bench.raw.run::<()>(&[&["ACL", "SETUSER", "app"][..], &rules].concat());
        let client = Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", bench.server.address()))
            .await
            .unwrap();
        bench.raw.messages();
        bench.server.commandstats_reset();
        client.value_lock(NAME).lock().await.unwrap().unlock().await.unwrap();
        assert_eq!((bench.token(), bench.server.calls(command)), (None, 0), "{what}");
        assert_eq!(bench.raw.messages_on(CHANNEL), ["0"], "{what}");
    }
}
