//! The classic lock, `SET name token NX PX lease`: what is its own beside what `kinds` asks of all, and what it costs on servers
//! that can delete by value and on those that cannot. See `value_peers` for clients of other languages.

use std::time::Duration;

use redisson_lock::{Client, Error, Lock, LossReason};

use crate::support::wire::{NAME, changes};
use crate::support::{Faulty, Server, Wire, eventually};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const LEASE: Duration = Duration::from_millis(900);

struct Bench {
    server: Server,
    wire: Wire,
    lock: Lock,
}

impl Bench {
    async fn start() -> Self {
        Self::on(Server::start()).await
    }

    async fn on(server: Server) -> Self {
        let lock = another(&server).await;
        Self { wire: Wire::of(&server), lock, server }
    }

    fn token(&self) -> Option<String> {
        self.wire.run(&["GET", NAME])
    }
}

/// Of a client of its own, whose watchdog has [`LEASE`].
async fn another(server: &Server) -> Lock {
    let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
    client.value_lock(NAME)
}

#[tokio::test]
async fn the_record_is_a_token_with_the_lease() {
    let bench = Bench::start().await;
    let (lock, other) = (&bench.lock, another(&bench.server).await);
    bench.wire.messages();
    let guard = lock.lock().await.unwrap();
    let token = bench.token().unwrap();
    assert_eq!(token, guard.owner());
    let random = token.split_once(':').and_then(|(_client, rest)| rest.split_once('-')).unwrap().0;
    assert!(random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{token}");
    let left = bench.wire.ttl(NAME);
    assert!((1..=LEASE.as_millis() as i64).contains(&left), "{left}");
    assert_eq!((lock.hold_count().await.unwrap(), other.hold_count().await.unwrap()), (1, 0));
    assert!(lock.is_held().await.unwrap() && !other.is_held().await.unwrap());
    assert!(other.is_locked().await.unwrap() && other.remaining_lease().await.unwrap().unwrap() <= LEASE);
    assert_eq!(other.holder().await.unwrap().unwrap().owner(), token);
    guard.unlock().await.unwrap();
    assert_eq!((bench.token(), bench.wire.told(CHANNEL)), (None, vec!["0".to_owned()]));
    // Each hold has a token of its own.
    let guard = lock.with_lease(Duration::from_secs(50)).lock().await.unwrap();
    assert_ne!(bench.token().unwrap(), token);
    let left = bench.wire.ttl(NAME);
    assert!((40_000..=50_000).contains(&left), "{left}");
    drop(guard);
    eventually(|| bench.token().is_none()).await;
    bench.wire.nothing_else_is_left(&[]).await;
}

/// It is nobody's, and found out by its text.
#[tokio::test]
async fn a_token_that_is_set_late_is_deleted_for_who_waits() {
    let bench = Faulty::start().await;
    let lock = bench.client.value_lock(NAME);
    let others = another(&bench.server).await.lock().await.unwrap();
    let told = bench.link.hold_and_cut(changes, lock.try_lock()).await;
    assert!(matches!(told, Ok(None)), "{told:?}");
    others.unlock().await.unwrap();
    bench.link.deliver(changes).await;
    let ghost = bench.wire.run::<String>(&["GET", NAME]);
    let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap().expect("the ghost is let be");
    assert_ne!(guard.owner(), ghost);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_record_of_another_type_is_told_and_left_alone() {
    let bench = Bench::start().await;
    bench.wire.run::<()>(&["HSET", NAME, "field", "value"]);
    let before: Vec<u8> = bench.wire.run(&["DUMP", NAME]);
    bench.wire.messages();
    for (call, error) in [
        ("lock", bench.lock.lock().await.err()),
        ("try_lock", bench.lock.try_lock().await.err()),
        ("holder", bench.lock.holder().await.err()),
        ("force_unlock", bench.lock.force_unlock().await.err()),
    ] {
        assert_eq!(error.as_ref().and_then(Error::code), Some("WRONGTYPE"), "{call}: {error:?}");
    }
    bench.wire.run::<()>(&["DEL", NAME]);
    let guard = bench.lock.lock().await.unwrap();
    bench.wire.run::<()>(&["DEL", NAME]);
    bench.wire.run::<()>(&["HSET", NAME, "field", "value"]);
    assert_eq!(guard.unlock().await.unwrap_err().code(), Some("WRONGTYPE"));
    assert_eq!(bench.wire.run::<Vec<u8>>(&["DUMP", NAME]), before);
    assert!(matches!(
        Client::connect(bench.server.url()).await.unwrap().value_lock("").lock().await,
        Err(Error::Misuse { .. })
    ));
}

/// Valkey has a command from 9.0 on, Redis another from 8.4 on. Where there is none, the script does it.
#[tokio::test]
async fn a_release_goes_by_the_servers_own_command_where_there_is_one() {
    let installed = Server::unrestricted();
    let known = |command: &&str| -> bool {
        let told: Vec<redis::Value> =
            redis::cmd("COMMAND").arg("INFO").arg(command).query(&mut installed.cli()).unwrap();
        matches!(told[..], [redis::Value::Array(_)])
    };
    let its_own = ["delifeq", "delex"].into_iter().find(known);
    for (server, command) in [
        (installed, its_own),
        (Server::of("REDISSON_LOCK_VALKEY_9_1"), Some("delifeq")),
        (Server::of("REDISSON_LOCK_REDIS_8_6"), Some("delex")),
    ] {
        let bench = Bench::on(server).await;
        let what = command.unwrap_or("the script");
        // Known from then on, a script is one call.
        bench.lock.lock().await.unwrap().unlock().await.unwrap();
        bench.server.commandstats_reset();
        bench.wire.messages();
        for _ in 0..3 {
            let guard = bench.lock.lock().await.unwrap();
            assert_eq!(bench.token().as_deref(), Some(guard.owner()), "{what}");
            guard.unlock().await.unwrap();
            assert_eq!(bench.token(), None, "{what}");
        }
        assert_eq!(bench.wire.told(CHANNEL), ["0", "0", "0"], "{what}");
        let calls = ["delifeq", "delex"].map(|command| (command, bench.server.calls(command)));
        let expected = ["delifeq", "delex"].map(|name| (name, if command == Some(name) { 3 } else { 0 }));
        assert_eq!(calls, expected, "{what}");
        assert_eq!(bench.server.scripts(), if command.is_some() { 0 } else { 3 }, "{what}");

        // Another's token stays, and the loss is told.
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.wire.run::<()>(&["SET", NAME, "another's"]);
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Taken, .. })), "{what}: {outcome:?}");
        assert_eq!(bench.token().as_deref(), Some("another's"), "{what}");
        bench.wire.run::<()>(&["DEL", NAME]);
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        bench.wire.run::<()>(&["DEL", NAME]);
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Gone, .. })), "{what}: {outcome:?}");
        bench.wire.messages();

        // Where its user may not use it, the script does it.
        let Some(command) = command else { continue };
        let rules = ["on", ">canary-in-a-coal-mine", "~*", "&*", "+@all", &format!("-{command}")];
        bench.wire.run::<()>(&[&["ACL", "SETUSER", "app"][..], &rules].concat());
        let client = Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", bench.server.address()))
            .await
            .unwrap();
        bench.wire.messages();
        bench.server.commandstats_reset();
        client.value_lock(NAME).lock().await.unwrap().unlock().await.unwrap();
        assert_eq!((bench.token(), bench.server.calls(command)), (None, 0), "{what}");
        assert_eq!(bench.wire.told(CHANNEL), ["0"], "{what}");
    }
}
