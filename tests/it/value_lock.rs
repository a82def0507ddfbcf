//! The classic lock, `SET name token NX PX lease`, among Rust clients; and what it costs on servers that can delete by
//! value and on those that cannot. See `value_peers` for clients of other languages.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, Lock, LossReason, Owner};
use tokio::task::JoinSet;

use crate::support::wire::NAME;
use crate::support::{Faulty, Server, Wire, eventually, subscribers};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const PROMPT: Duration = Duration::from_millis(500);
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

/// An owner beside the task.
fn other_owner(lock: &Lock) -> Lock {
    lock.with_owner(&Owner::unique())
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
    assert!(other.try_lock().await.unwrap().is_none());
    let (started, wait) = (Instant::now(), Duration::from_millis(150));
    assert!(other.try_lock_for(wait).await.unwrap().is_none());
    let took = started.elapsed();
    assert!((wait..wait + PROMPT).contains(&took), "{took:?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_excludes_each_other() {
    const EACH: u64 = 25;
    let bench = Bench::start().await;
    let mut tasks = JoinSet::new();
    for lock in [bench.lock.clone(), another(&bench.server).await] {
        for _ in 0..4 {
            let (lock, mut cli) = (lock.clone(), bench.server.cli());
            tasks.spawn(async move {
                for _ in 0..EACH {
                    let guard = lock.lock().await.unwrap();
                    let count: Option<u64> = redis::cmd("GET").arg("counter").query(&mut cli).unwrap();
                    tokio::task::yield_now().await;
                    redis::cmd("SET").arg("counter").arg(count.unwrap_or(0) + 1).exec(&mut cli).unwrap();
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(bench.wire.run::<u64>(&["GET", "counter"]), 8 * EACH);
    bench.wire.nothing_else_is_left(&["counter"]).await;
}

#[tokio::test]
async fn its_owner_would_wait_for_himself() {
    let bench = Bench::start().await;
    let guard = bench.lock.lock().await.unwrap();
    for again in [
        bench.lock.lock().await.map(drop),
        bench.lock.try_lock().await.map(drop),
        bench.lock.try_lock_for(Duration::from_secs(60)).await.map(drop),
    ] {
        assert!(matches!(again, Err(Error::WouldDeadlock { kind: "value lock", .. })), "{again:?}");
    }
    let other = other_owner(&bench.lock);
    assert!(other.try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
    tokio::task::yield_now().await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unlock().await.unwrap();
    assert!(released.elapsed() < PROMPT, "{:?}", released.elapsed());
}

#[tokio::test]
async fn a_release_wakes_another_clients_waiter() {
    let bench = Bench::start().await;
    let other = another(&bench.server).await;
    let guard = bench.lock.lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let guard = waiting.await.unwrap();
    assert!(released.elapsed() < PROMPT, "{:?}", released.elapsed());
    assert_eq!(bench.token().as_deref(), Some(guard.owner()));
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_lease_ends_and_the_watchdog_renews() {
    let bench = Bench::start().await;
    let other = another(&bench.server).await;
    let guard = bench.lock.with_lease(Duration::from_millis(200)).lock().await.unwrap();
    let deadline = guard.deadline();
    let next = other.lock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Expired));
    assert!(Instant::now() >= deadline && deadline.elapsed() < PROMPT, "{:?}", deadline.elapsed());
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    assert_eq!(bench.token().as_deref(), Some(next.owner()));

    let first = next.deadline();
    while Instant::now() < first + LEASE {
        assert!(bench.lock.try_lock().await.unwrap().is_none());
        assert_eq!((next.state(), bench.token().as_deref()), (HoldState::Held, Some(next.owner())));
        tokio::time::sleep(LEASE / 20).await;
    }
    next.unlock().await.unwrap();
    assert_eq!(bench.token(), None);
}

/// What others do to the record is told, and what is theirs stays.
#[tokio::test]
async fn a_loss_is_told() {
    let bench = Bench::start().await;
    let other = another(&bench.server).await;
    for by in ["DEL", "SET", "force_unlock"] {
        let take = async || match by {
            "DEL" => bench.wire.run::<()>(&["DEL", NAME]),
            "SET" => bench.wire.run::<()>(&["SET", NAME, "another's", "PX", "60000"]),
            _ => assert!(other.force_unlock().await.unwrap()),
        };
        let reason = if by == "SET" { LossReason::Taken } else { LossReason::Gone };
        let guard = bench.lock.lock().await.unwrap();
        take().await;
        let told = tokio::time::timeout(LEASE, guard.lost()).await.expect("it is told");
        assert_eq!(told, HoldState::Lost(reason), "{by}");
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })), "{by}");
        bench.wire.run::<()>(&["DEL", NAME]);
        // One that nobody renews is told when it is released.
        let guard = bench.lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        take().await;
        match guard.unlock().await {
            Err(Error::Lost { reason: told, holder, .. }) => {
                let holder = holder.map(|holder| holder.owner().to_owned());
                assert_eq!((told, holder.as_deref()), (reason, (by == "SET").then_some("another's")));
            }
            other => panic!("{by}: {other:?}"),
        }
        assert_eq!(bench.token().as_deref(), (by == "SET").then_some("another's"));
        bench.wire.run::<()>(&["DEL", NAME]);
    }
    assert!(!other.force_unlock().await.unwrap());
}

#[tokio::test]
async fn lost_replies_count_once_and_late_requests_touch_no_later_hold() {
    for cut in [true, false] {
        let bench = Faulty::start().await;
        let lock = bench.client.value_lock(NAME);
        bench.lose_reply(cut);
        let guard = lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        assert_eq!(bench.wire.run::<String>(&["GET", NAME]), guard.owner(), "cut {cut}");
        guard.unlock().await.unwrap();
        assert_eq!(bench.wire.told(CHANNEL).len(), 1, "cut {cut}");

        let bench = Faulty::start().await;
        let lock = bench.client.value_lock(NAME);
        let guard = lock.lock().await.unwrap();
        bench.lose_reply(cut);
        let outcome = guard.unlock().await;
        let fine = outcome.is_ok() || !cut && matches!(outcome, Err(Error::Ambiguous { .. }));
        assert!(fine, "cut {cut}: {outcome:?}");
        bench.link.lost_reply().await;
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert!(bench.wire.keys().is_empty(), "cut {cut}");
    }
    let bench = Faulty::start().await;
    let lock = bench.client.value_lock(NAME);
    let guard = bench.hold_and_cut(async { lock.lock().await.unwrap() }).await;
    bench.deliver().await;
    assert_eq!(bench.wire.run::<String>(&["GET", NAME]), guard.owner());
    guard.unlock().await.unwrap();

    let bench = Faulty::start().await;
    let lock = bench.client.value_lock(NAME);
    let guard = lock.lock().await.unwrap();
    bench.hold_and_cut(async { guard.unlock().await.unwrap() }).await;
    let next = lock.lock().await.unwrap();
    bench.deliver().await;
    assert_eq!(bench.wire.run::<String>(&["GET", NAME]), next.owner());
    assert_eq!(next.state(), HoldState::Held);
    next.unlock().await.unwrap();
    assert!(bench.wire.keys().is_empty());
}

/// It is nobody's, and found out by its text.
#[tokio::test]
async fn a_token_that_is_set_late_is_deleted_for_who_waits() {
    let bench = Faulty::start().await;
    let lock = bench.client.value_lock(NAME);
    let others = another(&bench.server).await.lock().await.unwrap();
    let told = bench.hold_and_cut(lock.try_lock()).await;
    assert!(matches!(told, Ok(None)), "{told:?}");
    others.unlock().await.unwrap();
    bench.deliver().await;
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
    // Braces round a name without any.
    for (name, channel) in [("a{b}", "redisson_lock__channel:a{b}"), ("a}", "redisson_lock__channel:{a}}")] {
        let client = Client::connect(bench.server.url()).await.unwrap();
        bench.wire.messages();
        client.value_lock(name).lock().await.unwrap().unlock().await.unwrap();
        assert_eq!(bench.wire.told(channel), ["0"]);
    }
    assert!(matches!(
        Client::connect(bench.server.url()).await.unwrap().value_lock("").lock().await,
        Err(Error::Misuse { .. })
    ));
}

/// Valkey has a command from 9.0 on, Redis another from 8.4 on. Where there is none, the script does it.
#[tokio::test]
async fn a_release_goes_by_the_servers_own_command_where_there_is_one() {
    for (server, command) in [
        (Server::unrestricted(), None),
        (Server::of("REDISSON_LOCK_VALKEY_9"), Some("delifeq")),
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
        let rules = ["on", ">secret", "~*", "&*", "+@all", &format!("-{command}")];
        bench.wire.run::<()>(&[&["ACL", "SETUSER", "app"][..], &rules].concat());
        let client = Client::connect(format!("redis://app:secret@{}", bench.server.address())).await.unwrap();
        bench.wire.messages();
        bench.server.commandstats_reset();
        client.value_lock(NAME).lock().await.unwrap().unlock().await.unwrap();
        assert_eq!((bench.token(), bench.server.calls(command)), (None, 0), "{what}");
        assert_eq!(bench.wire.told(CHANNEL), ["0"], "{what}");
    }
}
