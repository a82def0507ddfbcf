//! Faults of Redisson's own protocols, which this library must not have. The numbers are those of the wire contract.

use std::time::{Duration, Instant};

use redisson_lock::{Client, HoldState, Lock, LockGuard, Owner};
use tokio::task::JoinHandle;

use crate::support::drop_point::ClientRuntime;
use crate::support::kind::{
    Kind, channels, each, in_time, prefix, scripts_reach, subscribed, versions_for_all_kinds, with_versions,
};
use crate::support::proxy::{Direction, Words};
use crate::support::{
    Java, Proxy, Server, Stopwatch, WOKEN, WakeUps, clock::monotonic_ns, eventually, fair_allowance,
};

const NAME: &str = "n";

/// Spawns a task that acquires the lock, and returns the guard and the time of the acquisition.
fn spawn_waiter(lock: &Lock) -> JoinHandle<(LockGuard, u64)> {
    let lock = lock.clone();
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        (guard, monotonic_ns())
    })
}

async fn connect(server: &Server) -> Client {
    Client::connect(server.url()).await.unwrap()
}

fn versions_of(kinds: [Kind; 2]) -> Vec<(&'static str, Kind)> {
    with_versions(kinds, |kind| kind)
}

const FAIR: [Kind; 2] = [Kind::Fair, Kind::NonReentrantFair];

/// The keys of the queue and of the timeouts of a fair lock.
fn queue() -> [String; 2] {
    ["redisson_lock_queue", "redisson_lock_timeout"].map(|key| prefix(key, NAME))
}

fn queued(cli: &mut redis::Connection) -> Vec<String> {
    redis::cmd("LRANGE").arg(&queue()[0]).arg(0).arg(-1).query(cli).unwrap()
}

/// Fault 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_wakes_waiting_readers() {
    const ROUNDS: usize = 15;
    for version in versions_for_all_kinds() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await;
        let (ours, theirs) = (connect(&server).await, connect(&server).await);
        let lock = ours.read_write_lock(NAME);
        let threads = [java.thread("t"), java.thread("u")];
        let (mut of_java, mut of_rust) = (WakeUps::new(), WakeUps::new());
        for _ in 0..ROUNDS {
            let write = lock.write().lock().await.unwrap();
            let read = lock.read().lock().await.unwrap();
            let before = server.scripts();
            let waiting = threads.clone().map(|thread| thread.lock("read", NAME));
            let rust = spawn_waiter(theirs.read_write_lock(NAME).read());
            // Two attempts of each waiter.
            scripts_reach(&server, before + 6).await;
            // Redisson's broadcast wakes only threads that already sleep.
            for thread in &threads {
                thread.asleep().await;
            }
            // The Rust client has probed the holder after 10, 30 and 70 ms; its next probe comes much later.
            tokio::time::sleep(Duration::from_millis(85)).await;
            let unlocking = monotonic_ns();
            write.unlock().await.unwrap();
            for waiting in waiting {
                let entered = in_time("a reader's hold", waiting).await;
                of_java.add(unlocking, entered.done_ns);
                entered.unwrap();
            }
            let (other_reader, entered) = in_time("a reader's hold", rust).await.unwrap();
            of_rust.add(unlocking, entered);
            assert_eq!((read.state(), other_reader.state()), (HoldState::Held, HoldState::Held));
            for thread in &threads {
                thread.unlock("read", NAME).await.unwrap();
            }
            other_reader.unlock().await.unwrap();
            read.unlock().await.unwrap();
            subscribed(&server, 0).await;
        }
        of_java.assert_below(WOKEN, &format!("{version}: a downgrade to a reader of Java"));
        of_rust.assert_below(WOKEN, &format!("{version}: a downgrade to a reader of Rust"));
    }
}

/// Fault 2: after five re-entries, the record of Redisson's writer has a TTL of 149 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_re_entry_adds_no_lease() {
    let server = Server::start();
    let client = connect(&server).await;
    let lock = client.read_write_lock(NAME);
    let mut cli = server.cli();
    let mut guards = Vec::new();
    for _ in 0..6 {
        guards.push(lock.write().lock().await.unwrap());
        let left: i64 = redis::cmd("PTTL").arg(NAME).query(&mut cli).unwrap();
        assert!((29_000..=30_000).contains(&left), "{left} ms with {} levels", guards.len());
    }
    for guard in guards {
        guard.unlock().await.unwrap();
        let left: i64 = redis::cmd("PTTL").arg(NAME).query(&mut cli).unwrap();
        assert!(left <= 30_000, "{left} ms");
    }
}

/// Fault 3: Redisson's second unlock finds its own marker that the lock is unlocked, and succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn every_unlock_of_a_lost_read_or_write_hold_is_an_error() {
    each([Kind::Read, Kind::Write], |kind| async move {
        let server = Server::start();
        let client = connect(&server).await;
        let lock = kind.lock(&client, NAME);
        let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap()];
        redis::cmd("DEL").arg(NAME).exec(&mut server.cli()).unwrap();
        for guard in guards {
            let outcome = guard.unlock().await;
            assert!(outcome.as_ref().is_err_and(|error| error.is_lost()), "{kind}: {outcome:?}");
        }
        let latches: Vec<String> = redis::cmd("KEYS").arg("*latch*").query(&mut server.cli()).unwrap();
        assert!(latches.is_empty(), "{kind}: {latches:?}");
    })
    .await;
}

/// Fault 5: Redisson's waiter sends 2,000 to 3,500 attempts per second.
#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_behind_a_dead_head_does_not_spin() {
    const DEAD_FOR: Duration = Duration::from_millis(1500);
    each(FAIR, |kind| async move {
        let server = Server::start();
        let (one, two) = (connect(&server).await, connect(&server).await);
        let mut cli = server.cli();
        let [list, timeouts] = queue();
        redis::cmd("RPUSH").arg(&list).arg("dead:1").exec(&mut cli).unwrap();
        let started = Stopwatch::start();
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut cli).unwrap();
        let gone_at = seconds * 1000 + micros / 1000 + DEAD_FOR.as_millis() as u64;
        redis::cmd("ZADD").arg(&timeouts).arg(gone_at).arg("dead:1").exec(&mut cli).unwrap();
        let before = server.scripts();
        let waiting = [&one, &two].map(|client| {
            let lock = kind.lock(client, NAME);
            tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
        });
        for waiting in waiting {
            waiting.await.unwrap();
        }
        let attempts = server.scripts() - before;
        println!("{kind}: {attempts} scripts in {started:?}");
        // Each of the two waiters sends one attempt, one after the subscription, one when the dead waiter expires, some for a clock
        // difference below one step, and the release. The source of a script that the server does not know yet counts, too.
        assert!(attempts <= 24, "{kind}: {attempts} scripts in {started:?}");
        let (early, late) = (DEAD_FOR - Duration::from_millis(50), DEAD_FOR + Duration::from_millis(500));
        assert!(started.is_within(early..late), "{kind}: {started:?}");
    })
    .await;
}

/// Fault 6: the timeout of the first waiter passes while the lock is held, and every other client would remove it.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_fair_waiter_keeps_its_place() {
    // The waiter renews its place after a third of this, so the machine may stall for the rest.
    const SHORT: Duration = Duration::from_secs(2);
    each(versions_of(FAIR), |(version, kind)| async move {
        let server = Server::start();
        // Older versions have a longer wait timeout, which cannot be set.
        let (setting, _) = fair_allowance(version, SHORT);
        // A place lasts for the rest of the holder's lease and the wait timeout. Both together must end during this test.
        let watchdog = SHORT.as_millis() as u64;
        let java =
            Java::get(version).client_with(&server, watchdog, setting.as_deref().as_slice()).await.unwrap();
        let (holder, behind) = (java.thread("holder"), java.thread("behind"));
        let builder = Client::builder().watchdog_timeout(Duration::from_secs(1));
        let client = builder.fair_lock_wait_timeout(SHORT).connect(server.url()).await.unwrap();
        let mut cli = server.cli();
        holder.lock(kind.java(), NAME).await.unwrap();
        let waiting = spawn_waiter(&kind.lock(&client, NAME));
        eventually(|| queued(&mut cli).len() == 1).await;
        let ours = queued(&mut cli).remove(0);
        // The waiter renews its place for longer than its wait timeout.
        let until = Instant::now() + SHORT * 5 / 2;
        while Instant::now() < until {
            // Each attempt of another client removes expired waiters.
            assert!(!behind.try_lock(kind.java(), NAME).await.unwrap(), "{version}, {kind}");
            assert_eq!(queued(&mut cli), std::slice::from_ref(&ours), "{version}, {kind}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let next = behind.lock(kind.java(), NAME);
        eventually(|| queued(&mut cli).len() == 2).await;
        assert_eq!(queued(&mut cli)[0], ours, "{version}, {kind}");
        holder.unlock(kind.java(), NAME).await.unwrap();
        let (guard, entered) = waiting.await.unwrap();
        guard.unlock().await.unwrap();
        let next = next.await;
        assert!(entered < next.done_ns, "{version}, {kind}: the waiter was overtaken");
        next.unwrap();
        behind.unlock(kind.java(), NAME).await.unwrap();
    })
    .await;
}

/// Fault 6 where it cannot be prevented, because another client's clock is ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_removed_as_dead_queues_again() {
    const LEASE: Duration = Duration::from_secs(1);
    // With a record, its expiry sets the time of the retry. Without one, only the timeout of the dead first waiter would.
    let cases = FAIR.into_iter().flat_map(|kind| [(kind, true), (kind, false)]);
    each(cases, |(kind, held)| async move {
        let server = Server::start();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let (mut cli, [list, timeouts]) = (server.cli(), queue());
        if held {
            redis::cmd("HSET").arg(NAME).arg("somebody:1").arg(1).exec(&mut cli).unwrap();
            redis::cmd("PEXPIRE").arg(NAME).arg(2500).exec(&mut cli).unwrap();
        } else {
            let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut cli).unwrap();
            redis::cmd("RPUSH").arg(&list).arg("dead:1").exec(&mut cli).unwrap();
            redis::cmd("ZADD")
                .arg(&timeouts)
                .arg((seconds + 300) * 1000)
                .arg("dead:1")
                .exec(&mut cli)
                .unwrap();
        }
        let waiting = spawn_waiter(&kind.lock(&client, NAME));
        eventually(|| channels(&server).len() == 1 && !queued(&mut cli).is_empty()).await;
        redis::cmd("DEL").arg(&list).arg(&timeouts).exec(&mut cli).unwrap();
        let (started, limit) = (Stopwatch::start(), if held { 2500 } else { 1000 });
        let (guard, _) = in_time("the waiter's hold", waiting).await.unwrap();
        let took = started.elapsed();
        assert!(took < Duration::from_millis(limit + 500), "{kind}, held {held}: {took:?}");
        guard.unlock().await.unwrap();
        eventually(|| queued(&mut cli).is_empty()).await;
    })
    .await;
}

/// Fault 7: Redisson reports success to the holder.
#[tokio::test(flavor = "multi_thread")]
async fn releasing_an_expired_fair_lock_is_an_error() {
    each(versions_of(FAIR), |(version, kind)| async move {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await.thread("t");
        let client = connect(&server).await;
        let guard = kind.lock(&client, NAME).with_lease(Duration::from_secs(60)).lock().await.unwrap();
        let waiting = java.lock(kind.java(), NAME);
        eventually(|| channels(&server).len() == 1).await;
        redis::cmd("DEL").arg(NAME).exec(&mut server.cli()).unwrap();
        // The release reports the loss, and the waiter is woken.
        let outcome = guard.unlock().await;
        assert!(outcome.as_ref().is_err_and(|error| error.is_lost()), "{version}, {kind}: {outcome:?}");
        let woken = Stopwatch::start();
        waiting.await.unwrap();
        assert!(woken.elapsed() < Duration::from_secs(5), "{version}, {kind}: {:?}", woken.elapsed());
        // The release also reports the loss when a successor holds the lock.
        let late = kind.lock(&client, "late").with_lease(Duration::from_millis(200)).lock().await.unwrap();
        java.lock(kind.java(), "late").await.unwrap();
        let outcome = late.unlock().await;
        assert!(outcome.as_ref().is_err_and(|error| error.is_lost()), "{version}, {kind}: {outcome:?}");
        assert!(java.is_held(kind.java(), "late").await.unwrap(), "{version}, {kind}");
    })
    .await;
}

/// Fault 8: Redisson's holder queries the token later, and may read that of its successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_guard_keeps_its_token_when_a_successor_raises_it() {
    each(with_versions([()], |()| Kind::Fenced), |(version, ())| async move {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await.thread("t");
        let client = connect(&server).await;
        let lock = client.fenced_lock(NAME);
        let guard = lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        assert_eq!((guard.token(), inner.token()), (Some(1), Some(1)), "{version}");
        drop(inner);
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!(java.lock_and_get_token(NAME).await.unwrap(), 2, "{version}");
        assert_eq!(java.token(NAME).await.unwrap(), Some(2), "{version}");
        assert_eq!(guard.token(), Some(1), "{version}");
        assert!(guard.unlock().await.unwrap_err().is_lost(), "{version}");
        java.unlock("fenced", NAME).await.unwrap();
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.token(), Some(3), "{version}");
        // Java reads the same token, and its next token follows it.
        assert_eq!(java.token(NAME).await.unwrap(), Some(3), "{version}");
        guard.unlock().await.unwrap();
        assert_eq!(java.lock_and_get_token(NAME).await.unwrap(), 4, "{version}");
        java.unlock("fenced", NAME).await.unwrap();
    })
    .await;
}

/// Fault 9: the message goes to a waiter that is dropped before the message arrives, or before it can act on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_fair_waiter_passes_its_message_on() {
    const ROUNDS: usize = 10;
    let is_script = |words: &Words| words[0] == b"EVALSHA";
    for (version, kind) in versions_of(FAIR) {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await.thread("t");
        let (holder, next) = (connect(&server).await, connect(&server).await);
        let proxy = Proxy::start(server.port()).await;
        let leaving = Client::connect(proxy.url()).await.unwrap();
        let (commands, messages) = (proxy.link(0).await, proxy.link(1).await);
        let mut cli = server.cli();
        for received in [false, true] {
            let (mut of_java, mut of_rust) = (WakeUps::new(), WakeUps::new());
            for round in 0..ROUNDS {
                let sent = commands.count(is_script);
                let guard = kind.lock(&holder, NAME).lock().await.unwrap();
                let first = spawn_waiter(&kind.lock(&leaving, NAME));
                eventually(|| queued(&mut cli).len() == 1 && channels(&server).len() == 1).await;
                // Its attempts before and after the subscription. A later one could acquire the lock without a message.
                commands.answered(sent + 2, is_script).await;
                let (mut java_next, mut rust_next) = (None, None);
                if round % 2 == 0 {
                    java_next = Some(java.lock(kind.java(), NAME));
                } else {
                    rust_next = Some(spawn_waiter(&kind.lock(&next, NAME)));
                }
                eventually(|| queued(&mut cli).len() == 2 && channels(&server).len() == 2).await;
                // No further request of the waiter reaches the server, so it cannot acquire the lock before it is dropped.
                commands.hold(Direction::ToServer);
                if !received {
                    messages.hold(Direction::ToClient);
                }
                guard.unlock().await.unwrap();
                if received {
                    commands.asked(sent + 3, is_script).await;
                }
                first.abort();
                assert!(first.await.unwrap_err().is_cancelled());
                let left = monotonic_ns();
                commands.pass(Direction::ToServer);
                if let Some(waiting) = java_next {
                    let entered = in_time("Java's hold", waiting).await;
                    of_java.add(left, entered.done_ns);
                    entered.unwrap();
                    java.unlock(kind.java(), NAME).await.unwrap();
                }
                if let Some(waiting) = rust_next {
                    let (guard, entered) = in_time("the hold of the next waiter", waiting).await.unwrap();
                    of_rust.add(left, entered);
                    guard.unlock().await.unwrap();
                }
                messages.pass(Direction::ToClient);
                eventually(|| channels(&server).is_empty() && queued(&mut cli).is_empty()).await;
            }
            let what = format!("{version}, {kind}: passed on, received {received}");
            of_java.assert_below(WOKEN, &format!("{what}, to Java"));
            of_rust.assert_below(WOKEN, &format!("{what}, to Rust"));
        }
    }
}

/// Redisson 3.44 to 3.52 has a bug that a count of 2 triggers: its renewal stops, and the first release ends every hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_re_entry_does_not_stop_javas_renewal_of_its_read_hold() {
    const LEASE: u64 = 1500;
    each(with_versions([()], |()| Kind::Read), |(version, ())| async move {
        let server = Server::start();
        let java_client = Java::get(version).client(&server, LEASE).await;
        let (java, other) = (java_client.thread("t"), java_client.thread("u"));
        let builder = Client::builder().watchdog_timeout(Duration::from_millis(LEASE));
        let client = builder.connect(server.url()).await.unwrap();
        let lock = client.read_write_lock(NAME);
        java.lock("read", NAME).await.unwrap();
        let (outer, inner) = (lock.read().lock().await.unwrap(), lock.read().lock().await.unwrap());
        assert_eq!(lock.read().hold_count().await.unwrap(), 2);

        let mut cli = server.cli();
        let key = Kind::Read.keys_of_a_hold(NAME, &java.owner().await).expect("a read hold has a key");
        let ttl = |cli: &mut redis::Connection| -> i64 { redis::cmd("PTTL").arg(&key).query(cli).unwrap() };
        for renewal in 0..3 {
            let mut before = ttl(&mut cli);
            // The TTL falls until a renewal raises it.
            eventually(|| {
                let now = ttl(&mut cli);
                assert!(now > 0, "{version}: Java's hold expired {renewal} renewals after the re-entry");
                let renewed = now > before;
                before = now;
                renewed
            })
            .await;
        }
        let record = |cli: &mut redis::Connection| -> std::collections::BTreeMap<String, String> {
            redis::cmd("HGETALL").arg(NAME).query(cli).unwrap()
        };
        let mut expected = std::collections::BTreeMap::from([
            (java.owner().await, "1".to_owned()),
            (outer.owner().to_owned(), "1".to_owned()),
            ("mode".to_owned(), "read".to_owned()),
        ]);
        assert_eq!(record(&mut cli), expected, "{version}");
        // The release of another reader ends none of these holds.
        other.lock("read", NAME).await.unwrap();
        other.unlock("read", NAME).await.unwrap();
        inner.unlock().await.unwrap();
        assert_eq!(record(&mut cli), expected, "{version}");
        assert_eq!(outer.state(), HoldState::Held);
        assert!(java.is_held("read", NAME).await.unwrap(), "{version}");
        expected.remove(outer.owner());
        outer.unlock().await.unwrap();
        assert_eq!(record(&mut cli), expected, "{version}");
        let writer = lock.write().with_owner(&Owner::unique());
        assert!(writer.try_lock().await.unwrap().is_none(), "{version}");
        java.unlock("read", NAME).await.unwrap();
        writer.try_lock().await.unwrap().expect("no reader is left").unlock().await.unwrap();
    })
    .await;
}

/// Waiters that die without leaving the queue: the runtime of one ended, the process of the other was killed.
#[tokio::test(flavor = "multi_thread")]
async fn dead_waiters_of_a_fair_lock_are_skipped() {
    const SHORT: Duration = Duration::from_millis(600);
    // Versions without the setting wait 300 s, which is too long for a test.
    let cases = versions_of(FAIR)
        .into_iter()
        .filter(|(version, _)| fair_allowance(version, SHORT).1 <= Duration::from_secs(5));
    each(cases, |(version, kind)| async move {
        let server = Server::start();
        let (setting, allowance) = fair_allowance(version, SHORT);
        let settings = setting.as_deref();
        let builder = || Client::builder().fair_lock_wait_timeout(SHORT).watchdog_timeout(SHORT * 2);
        let (killed, lives) = (Java::spawn(version), Java::get(version));
        let holder = builder().connect(server.url()).await.unwrap();
        let guard = kind.lock(&holder, NAME).lock().await.unwrap();
        let mut cli = server.cli();

        let (client_runtime, proxy) = (ClientRuntime::new(), Proxy::start(server.port()).await);
        let ended = client_runtime.connect(builder(), &proxy).await;
        let dead = client_runtime.handle().spawn({
            let lock = kind.lock(&ended, NAME);
            async move { drop(lock.lock().await) }
        });
        eventually(|| queued(&mut cli).len() == 1).await;
        let java = killed.client_with(&server, 1200, settings.as_slice()).await.unwrap().thread("t");
        let dying = java.lock(kind.java(), NAME);
        eventually(|| queued(&mut cli).len() == 2).await;
        let next = spawn_waiter(&kind.lock(&builder().connect(server.url()).await.unwrap(), NAME));
        eventually(|| queued(&mut cli).len() == 3).await;

        // Neither waiter can leave the queue.
        proxy.partition();
        client_runtime.end().await;
        drop((ended, dead));
        killed.kill();
        assert!(dying.await.result.is_err());
        let freed = Stopwatch::start();
        guard.unlock().await.unwrap();
        let (guard, _) = next.await.unwrap();
        let took = freed.elapsed();
        // Not earlier, because Java also removes dead waiters from the queue.
        let last = lives.client_with(&server, 1200, settings.as_slice()).await.unwrap().thread("t");
        let last_waiting = last.lock(kind.java(), NAME);
        eventually(|| queued(&mut cli).len() == 1).await;
        guard.unlock().await.unwrap();
        last_waiting.await.unwrap();
        last.unlock(kind.java(), NAME).await.unwrap();
        println!("{version}, {kind}: served {took:?} after the release, behind two dead waiters");
        // One expiry of the record, and the wait timeout of each of the two dead waiters.
        let limit = SHORT * 2 + SHORT + allowance + Duration::from_millis(500);
        assert!(took < limit, "{version}, {kind}: {took:?}");
        eventually(|| queued(&mut cli).is_empty()).await;
    })
    .await;
}
