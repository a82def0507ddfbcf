//! Group locks and locks on map entries, among Rust tasks and together with Java.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redisson_lock::{Client, Codec, Error, HoldState, Kryo5, Lock, LossReason, Owner, Utf8};
use tokio::task::JoinSet;

use crate::support::kind::{channels, each, keys};
use crate::support::proxy::Words;
use crate::support::raw::{NAME, changes};
use crate::support::{
    FaultyClient, Java, Server, WOKEN, WakeUps, clock::monotonic_ns, eventually, since, versions,
};

const CHANNEL: &str = "redisson_lock__channel:{g}";
/// The hashes of the values `x` and `y`, as Java's default codec encodes them.
const X: &str = "UAtNwcfhLzLiIyViPu3ySw";
const Y: &str = "aontSToqYqQXNA8h9vd9SA";
const ROUNDS: usize = 30;

fn group(client: &Client, values: &[&str]) -> Lock {
    client.group_lock("g", values.iter().map(|value| Kryo5.encode(value)))
}

fn record(server: &Server) -> BTreeMap<String, String> {
    redis::cmd("HGETALL").arg("g").query(&mut server.cli()).unwrap()
}

async fn assert_nothing_left(server: &Server) {
    eventually(|| keys(server).is_empty() && channels(server).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_of_different_values_do_not_exclude_each_other() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Owner::unique();
    let both = group(&client, &["x", "y"]).lock().await.unwrap();
    let started = Instant::now();
    for values in [&["x"][..], &["y"], &["y", "z"], &["z", "x"]] {
        let lock = group(&client, values).with_owner(&other);
        assert!(lock.try_lock().await.unwrap().is_none(), "{values:?}");
        assert!(lock.is_locked().await.unwrap() && !lock.is_held().await.unwrap(), "{values:?}");
        assert_eq!(lock.holder().await.unwrap().unwrap().owner(), both.owner(), "{values:?}");
    }
    let free = group(&client, &["z"]).with_owner(&other);
    assert!(!free.is_locked().await.unwrap() && free.remaining_lease().await.unwrap().is_none());
    let apart = free.lock().await.unwrap();
    let left = group(&client, &["x", "z"]).remaining_lease().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(29).saturating_sub(started.elapsed()), "{left:?}");
    apart.unlock().await.unwrap();
    both.unlock().await.unwrap();
    assert_nothing_left(&server).await;
}

/// An owner's holds may overlap in part, and end in any order.
#[tokio::test]
async fn each_value_is_counted_separately() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let [x, y, both] = [&["x"][..], &["y"], &["y", "x", "y"]].map(|values| group(&client, values));
    let first = both.lock().await.unwrap();
    let second = x.lock().await.unwrap();
    let counts = async || {
        let count = async |lock: &Lock| lock.hold_count().await.unwrap();
        (count(&x).await, count(&y).await, count(&both).await)
    };
    assert_eq!(counts().await, (2, 1, 1));
    let fields = record(&server);
    let owner = first.owner();
    assert_eq!((&*fields[X], &*fields[Y], fields.len()), (owner, owner, 6));
    assert_eq!(fields[&format!("{X}:{owner}:lock_count")], "2");
    first.unlock().await.unwrap();
    assert_eq!(counts().await, (1, 0, 0));
    assert_eq!(record(&server).len(), 3);
    second.unlock().await.unwrap();
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_on_overlapping_values_is_excluded_for_each_value() {
    let server = Server::start();
    let clients =
        [Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap()];
    let counters: Arc<[AtomicU64; 3]> = Arc::default();
    let mut tasks = JoinSet::new();
    for task in 0..6_usize {
        let (client, counters) = (clients[task % 2].clone(), counters.clone());
        tasks.spawn(async move {
            let wanted = [task % 3, (task + 1) % 3];
            let lock = group(&client, &wanted.map(|value| ["x", "y", "z"][value]));
            for _ in 0..50 {
                let guard = lock.lock().await.unwrap();
                let seen = wanted.map(|value| counters[value].load(Ordering::Relaxed));
                tokio::task::yield_now().await;
                for (value, seen) in wanted.into_iter().zip(seen) {
                    counters[value].store(seen + 1, Ordering::Relaxed);
                }
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(counters.each_ref().map(|counter| counter.load(Ordering::Relaxed)), [200; 3]);
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_one_value_ends_the_hold_and_expired_values_are_free() {
    let server = Server::start();
    // The next renewal finds the loss, long before the lease expires.
    let lease = Duration::from_secs(2);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let lock = group(&client, &["x", "y"]);
    let guard = lock.lock().await.unwrap();
    redis::cmd("HDEL").arg("g").arg(Y).exec(&mut server.cli()).unwrap();
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Taken));
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    eventually(|| !record(&server).contains_key(X)).await;

    let fixed = lock.with_lease(Duration::from_millis(100)).lock().await.unwrap();
    assert_eq!(fixed.lost().await, HoldState::Lost(LossReason::Expired));
    // Expired values are free.
    let next = lock.with_owner(&Owner::unique()).try_lock().await.unwrap().expect("the lock is free");
    next.unlock().await.unwrap();
    assert!(matches!(group(&client, &[]).lock().await, Err(Error::Misuse { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wait_for_each_other_in_a_group() {
    for version in versions().into_iter().filter(|version| since(version, 3, 38)) {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        for (alias, values) in [("x", &["x"][..]), ("xy", &["x", "y"]), ("z", &["z"])] {
            java.group(alias, "g", values).await.unwrap();
        }
        let client = Client::connect(server.url()).await.unwrap();
        let lock = group(&client, &["x", "y"]);
        let (mut to_rust, mut to_java) = (WakeUps::new(), WakeUps::new());
        for _ in 0..ROUNDS {
            java.lock("group", "xy").await.unwrap();
            let waiting = tokio::spawn({
                let lock = lock.clone();
                async move { (lock.lock().await.unwrap(), monotonic_ns()) }
            });
            eventually(|| channels(&server) == [CHANNEL]).await;
            let unlocked = java.unlock("group", "xy").await;
            let (guard, entered) = waiting.await.unwrap();
            to_rust.add(unlocked.started_ns, entered);
            unlocked.unwrap();

            // Java can acquire other values meanwhile.
            java.lock("group", "z").await.unwrap();
            java.unlock("group", "z").await.unwrap();
            let waiting = java.lock("group", "x");
            eventually(|| channels(&server) == [CHANNEL]).await;
            let unlocking = monotonic_ns();
            guard.unlock().await.unwrap();
            let entered = waiting.await;
            to_java.add(unlocking, entered.done_ns);
            entered.unwrap();
            java.unlock("group", "x").await.unwrap();
            eventually(|| channels(&server).is_empty()).await;
        }
        to_rust.assert_below(WOKEN, &format!("{version}: to Rust"));
        to_java.assert_below(WOKEN, &format!("{version}: to Java"));
        assert_nothing_left(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_groups_record_is_the_same_as_javas() {
    for version in versions().into_iter().filter(|version| since(version, 3, 38)) {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        java.group("xy", "g", &["x", "y"]).await.unwrap();
        let client = Client::connect(server.url()).await.unwrap();
        let lock = group(&client, &["x", "y"]);
        let snapshot = |owner: &str| -> (Vec<(String, String)>, bool) {
            let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut server.cli()).unwrap();
            let now = seconds * 1000 + micros / 1000;
            let fields = record(&server).into_iter().map(|(field, value)| {
                let ends = field.ends_with("expire_time").then(|| value.parse::<i64>().unwrap() - now);
                let value = match ends {
                    // The library's leases end at the next whole millisecond.
                    Some(29_000..=30_001) => "in a lease".to_owned(),
                    _ => value.replace(owner, "owner"),
                };
                (field.replace(owner, "owner"), value)
            });
            let mut fields: Vec<_> = fields.collect();
            fields.sort();
            let ttl: i64 = redis::cmd("PTTL").arg("g").query(&mut server.cli()).unwrap();
            (fields, (29_000..=30_000).contains(&ttl))
        };
        let owner = java.owner().await;
        java.lock("group", "xy").await.unwrap();
        let once = snapshot(&owner);
        assert!(lock.is_locked().await.unwrap() && lock.try_lock().await.unwrap().is_none(), "{version}");
        assert_eq!(lock.holder().await.unwrap().unwrap().owner(), owner, "{version}");
        java.lock("group", "xy").await.unwrap();
        let twice = snapshot(&owner);
        java.unlock("group", "xy").await.unwrap();
        java.unlock("group", "xy").await.unwrap();

        let first = lock.lock().await.unwrap();
        assert_eq!(snapshot(first.owner()), once, "{version}");
        assert!(!java.try_lock("group", "xy").await.unwrap(), "{version}");
        let second = lock.lock().await.unwrap();
        assert_eq!(snapshot(first.owner()), twice, "{version}");
        second.unlock().await.unwrap();
        assert_eq!(snapshot(first.owner()), once, "{version}");
        first.unlock().await.unwrap();
        assert!(java.try_lock("group", "xy").await.unwrap(), "{version}");
        java.unlock("group", "xy").await.unwrap();
    }
}

/// A renewal by either side leaves the other side's holds in the same record alone.
#[tokio::test(flavor = "multi_thread")]
async fn holds_of_both_sides_outlive_their_leases_in_one_group() {
    // Two thirds of a lease are left at each renewal, and neither side stalls for so long.
    const LEASE: Duration = Duration::from_secs(3);
    let versions = versions().into_iter().filter(|version| since(version, 3, 38));
    each(versions.map(|version| &*version.leak()), |version: &'static str| async move {
        let server = Server::start();
        let java = Java::get(version).client(&server, LEASE.as_millis() as u64).await.thread("t");
        java.group("x", "g", &["x"]).await.unwrap();
        java.lock("group", "x").await.unwrap();
        let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
        let guard = group(&client, &["y"]).lock().await.unwrap();
        let until = guard.deadline() + 2 * LEASE;
        while guard.deadline() < until {
            // A late reply to a renewal makes the hold suspect for a moment.
            assert!(guard.state().is_live(), "{version}: {:?}", guard.state());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(group(&client, &["x"]).try_lock().await.unwrap().is_none(), "{version}");
        java.unlock("group", "x").await.unwrap();
        guard.unlock().await.unwrap();
        assert_nothing_left(&server).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_map_entry_names_the_same_objects_as_java() {
    for version in versions().into_iter().filter(|version| since(version, 3, 10)) {
        let server = Server::start();
        let java = Java::get(&version).client_with(&server, 0, &["codec=StringCodec"]).await.unwrap();
        let thread = java.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        for (map, key) in [("m", "x"), ("a{b}", "ordérs"), ("a}", "")] {
            let entry = client.map_entry(map, Utf8.encode(key));
            let locks = [
                ("plain", entry.lock()),
                ("fair", entry.fair_lock()),
                ("read", entry.read_write_lock().read().clone()),
                ("write", entry.read_write_lock().write().clone()),
            ];
            for (kind, lock) in locks {
                let name = thread.of_entry(kind, map, key).await.unwrap();
                let guard = lock.lock().await.unwrap();
                assert_eq!(guard.name(), name, "{version}");
                assert!(name.contains(entry.hash()), "{version}");
                guard.unlock().await.unwrap();
            }
            let name = thread.of_entry("semaphore", map, key).await.unwrap();
            assert!(thread.semaphore(&name).try_set_permits(3).await.unwrap(), "{version}");
            assert_eq!(entry.semaphore().available_permits().await.unwrap(), 3, "{version}");
            let name = thread.of_entry("permitsemaphore", map, key).await.unwrap();
            assert!(thread.permits(&name).try_set_permits(2).await.unwrap(), "{version}");
            assert_eq!(entry.expirable_semaphore().available_permits().await.unwrap(), 2, "{version}");
            let name = thread.of_entry("latch", map, key).await.unwrap();
            assert!(thread.latch(&name).try_set_count(1).await.unwrap(), "{version}");
            assert_eq!(entry.count_down_latch().count().await.unwrap(), 1, "{version}");
        }
    }
}

/// Six Java threads and six Rust tasks add to one counter, which they read and write in two steps. All their value sets contain `x`.
#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_crowd_counts_exactly_in_a_group() {
    const EACH: u32 = 10;
    let lease = Duration::from_secs(2);
    for version in versions().into_iter().filter(|version| since(version, 3, 38)) {
        let server = Server::start();
        let java = Java::get(&version).client(&server, lease.as_millis() as u64).await;
        let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
        let (mut java_side, mut rust_side) = (JoinSet::new(), JoinSet::new());
        for n in 0..6 {
            // Half of them lock `x`, the others `x` and `y`, so all of them contend for `x`.
            let values = if n % 2 == 0 { &["x"][..] } else { &["x", "y"] };
            let thread = java.thread(&format!("t{n}"));
            thread.group("all", "g", values).await.unwrap();
            let running = thread.loop_("group", "all", EACH, "counter", Duration::from_millis(1));
            java_side.spawn(async move { running.await.unwrap() });
            let lock = group(&client, values);
            let counting = redis::Client::open(server.url()).unwrap();
            rust_side.spawn(async move {
                let mut counting = counting.get_multiplexed_async_connection().await.unwrap();
                for _ in 0..EACH {
                    let guard = lock.lock().await.unwrap();
                    let before: Option<u32> =
                        redis::cmd("GET").arg("counter").query_async(&mut counting).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let after = before.unwrap_or(0) + 1;
                    redis::cmd("SET").arg("counter").arg(after).exec_async(&mut counting).await.unwrap();
                    guard.unlock().await.unwrap();
                }
            });
        }
        java_side.join_all().await;
        rust_side.join_all().await;
        let counter: u32 = redis::cmd("GETDEL").arg("counter").query(&mut server.cli()).unwrap();
        assert_eq!(counter, 12 * EACH, "{version}: increments were lost");
        assert_nothing_left(&server).await;
    }
}

/// Holds of one owner overlap in part, and some of them began before the owner's id was rotated.
#[tokio::test]
async fn an_owner_acquires_further_values_after_its_id_was_rotated() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let [x, both] = [&["x"][..], &["x", "y"]].map(|values| group(&client, values));
    let first = x.lock().await.unwrap();
    let lost = client.lock("other").lock().await.unwrap();
    let () = redis::cmd("DEL").arg("other").query(&mut server.cli()).unwrap();
    lost.unlock().await.unwrap_err();
    let second = both.try_lock().await.unwrap().expect("an owner waits for itself");
    assert_eq!((x.hold_count().await.unwrap(), both.hold_count().await.unwrap()), (2, 1));
    first.unlock().await.unwrap();
    assert_eq!((x.hold_count().await.unwrap(), both.hold_count().await.unwrap()), (1, 1));
    assert!(x.with_owner(&Owner::unique()).try_lock().await.unwrap().is_none());
    second.unlock().await.unwrap();
    assert_nothing_left(&server).await;
}

/// The renewal of a hold that has ended arrives late. The owner has another id by then.
#[tokio::test]
async fn a_late_renewal_does_not_extend_the_next_hold_of_the_owner() {
    for of in [
        |client: &Client| group(client, &["x"]),
        |client: &Client| client.read_write_lock("g").read().clone(),
    ] {
        let builder = Client::builder().watchdog_timeout(Duration::from_secs(3));
        let bench = FaultyClient::patient_with(builder).await;
        let (lock, is_script) = (of(&bench.client), |words: &Words| words[0] == b"EVALSHA");
        let guard = lock.lock().await.unwrap();
        let deadline = guard.deadline();
        bench.link.hold_and_cut(is_script, async {}).await;
        eventually(|| guard.deadline() > deadline).await;
        guard.unlock().await.unwrap();
        let lease = Duration::from_secs(2);
        let guard = lock.with_lease(lease).lock().await.unwrap();
        bench.link.deliver(is_script).await;
        let left = lock.remaining_lease().await.unwrap();
        // The script of a group rounds the end of a lease up.
        assert!(left <= Some(lease + Duration::from_millis(1)), "{left:?}");
        guard.unlock().await.unwrap();
    }
}

/// A hold is lost while its owner has another one, so the record lives on.
#[tokio::test]
async fn a_lost_hold_leaves_nothing_in_the_record() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let [y, both] = [&["y"][..], &["x", "y"]].map(|values| group(&client, values));
    // Longer than the two requests that follow.
    let short = both.with_lease(Duration::from_secs(1)).lock().await.unwrap();
    let lasting = y.lock().await.unwrap();
    assert_eq!(y.hold_count().await.unwrap(), 2);
    assert_eq!(short.lost().await, HoldState::Lost(LossReason::Expired));
    // Three fields for `y`.
    eventually(|| record(&server).len() == 3).await;
    assert_eq!(y.hold_count().await.unwrap(), 1);
    lasting.unlock().await.unwrap();
    assert_nothing_left(&server).await;
}

/// Redisson takes an expired value without the fields of its former owner. They must not stay as long as others use the group.
#[tokio::test]
async fn a_hold_that_was_taken_leaves_nothing_in_the_record() {
    let server = Server::start();
    // The next renewal finds the loss.
    let client =
        Client::builder().watchdog_timeout(Duration::from_secs(2)).connect(server.url()).await.unwrap();
    let guard = group(&client, &["x"]).lock().await.unwrap();
    take_as_redisson(&server);
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Taken));
    eventually(|| record(&server).keys().all(|field| !field.contains(guard.owner()))).await;
    assert_eq!(record(&server).len(), 3);
}

/// The release of the earlier hold never arrived. Meanwhile a Java client took the value, and released it or let it expire.
#[tokio::test]
async fn an_acquire_does_not_count_an_earlier_hold_that_was_taken() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = group(&client, &["x"]);
    for released in [true, false] {
        let guard = lock.lock().await.unwrap();
        let owner = guard.owner().to_owned();
        guard.unlock().await.unwrap();
        leave_expired_hold(&server, &owner);
        if !released {
            leave_expired_hold(&server, "java:1");
            redis::cmd("HSET").arg("g").arg(&[X, "java:1"]).exec(&mut server.cli()).unwrap();
        }
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.owner(), owner);
        assert_eq!(record(&server).len(), 3, "released {released}");
        assert_eq!(lock.hold_count().await.unwrap(), 1, "released {released}");
        guard.unlock().await.unwrap();
        assert_nothing_left(&server).await;
    }
}

/// Writes the fields of a hold on the value `x` that has expired.
fn leave_expired_hold(server: &Server, owner: &str) {
    let fields = [format!("{X}:{owner}:expire_time"), format!("{X}:{owner}:lock_count")];
    redis::cmd("HSET")
        .arg("g")
        .arg(&[&*fields[0], "1000", &*fields[1], "5"])
        .exec(&mut server.cli())
        .unwrap();
}

/// Gives the value `x` to another owner, as Redisson does after the hold has expired.
fn take_as_redisson(server: &Server) {
    let fields = [X.to_owned(), format!("{X}:java:1:expire_time"), format!("{X}:java:1:lock_count")];
    let values = ["java:1", "99999999999999", "1"];
    let words: Vec<_> = fields.iter().map(String::as_str).zip(values).collect();
    redis::cmd("HSET").arg("g").arg(&words).exec(&mut server.cli()).unwrap();
    redis::cmd("PERSIST").arg("g").exec(&mut server.cli()).unwrap();
}

/// The first reply is lost, and the hold has ended before the repeat arrives. Meanwhile the caller has gone, and another
/// hold keeps the record.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_acquire_leaves_nothing_in_the_record() {
    const LEASE: Duration = Duration::from_millis(100);
    let bench = FaultyClient::of(Client::builder()).await;
    let others = Client::connect(bench.server.url()).await.unwrap();
    let _other = others.group_lock(NAME, [Kryo5.encode("y")]).lock().await.unwrap();
    let lock = bench.client.group_lock(NAME, [Kryo5.encode("x")]).with_lease(LEASE);
    // The first request passes.
    bench.proxy.shut_gate_after(1, changes);
    bench.lose_reply(true);
    let taking = tokio::spawn(async move { lock.lock().await.map(drop) });
    bench.proxy.stopped().await;
    let record = || bench.raw.run::<BTreeMap<String, String>>(&["HGETALL", NAME]);
    assert_eq!(record().len(), 6);
    taking.abort();
    assert!(taking.await.unwrap_err().is_cancelled());
    tokio::time::sleep(LEASE * 2).await;
    bench.proxy.open_gate();
    eventually(|| record().len() == 3).await;
}

/// The server refuses a release. The owner's next release of the same value makes up for it.
#[tokio::test]
async fn a_refused_release_leaves_no_hold_behind_the_next_one() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let may_publish = |rule: &str| {
        let rules = ["SETUSER", "default", rule];
        redis::cmd("ACL").arg(&rules).exec(&mut server.cli()).unwrap();
    };
    let lock = group(&client, &["x"]);
    let refused = lock.lock().await.unwrap();
    may_publish("-publish");
    assert_eq!(refused.unlock().await.unwrap_err().code(), Some("NOPERM"));
    may_publish("+publish");
    assert_eq!(record(&server).len(), 3);
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_nothing_left(&server).await;
}

/// The client knows that the values are busy from the attempt of an earlier waiter of the same owner.
#[tokio::test]
async fn a_short_wait_behind_an_old_waiter_ends_as_busy() {
    let server = Server::start();
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let held = group(&other, &["x"]).lock().await.unwrap();
    let lock = group(&client, &["x"]).with_owner(&Owner::unique());
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    eventually(|| client.stats().waiting == 1 && channels(&server).len() == 1).await;
    // A reply of the last 15 ms would count for the next caller.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(lock.try_lock_for(Duration::from_millis(500)).await.unwrap().is_none());
    held.unlock().await.unwrap();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
}
