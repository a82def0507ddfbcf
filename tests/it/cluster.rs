//! Redis Cluster: each lock is at the master that currently serves the slot of its name, with and without sharded messages.

use crate::faults::EndlessScript;
use crate::support::any_lock::ClientSet;
use crate::support::cluster::{Cluster, modes, say, slot};
use crate::support::kind::{Kind, in_time};
use crate::support::{Server, Stopwatch, WOKEN, WakeUps, clock::monotonic_ns, eventually, subscribers};
use redisson_lock::{Client, ClientBuilder, Codec, Error, HoldState, Kryo5, LockGuard, LossReason, Owner};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// After a wait of this length, a holder probe wakes a waiter much later than a message.
const SETTLED: Duration = Duration::from_millis(85);
const LEASE: Duration = Duration::from_secs(10);

fn builder(sharded: bool) -> ClientBuilder {
    Client::builder().watchdog_timeout(LEASE).sharded_messages(sharded)
}

async fn connect(cluster: &Cluster, sharded: bool) -> Client {
    builder(sharded).connect(cluster.url()).await.unwrap()
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// Spawns a waiter for the lock, which returns the time at which it acquired it.
fn spawn_waiter(client: &Client, name: &str) -> JoinHandle<u64> {
    let lock = client.lock(name);
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let had = monotonic_ns();
        guard.unlock().await.unwrap();
        had
    })
}

/// Waits until one client waits for the message of the lock.
async fn wait_for_waiter(cluster: &Cluster, name: &str) {
    eventually(|| cluster.subscriptions(&channel(name)) == 1).await;
    tokio::time::sleep(SETTLED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_lock_is_at_the_master_of_its_slot_and_excludes() {
    let cluster = Cluster::start(3, 0);
    for &sharded in modes() {
        let (client, other) = (connect(&cluster, sharded).await, connect(&cluster, sharded).await);
        let (mut used, mut took) = ([false; 3], WakeUps::new());
        for n in 0..20 {
            let name = format!("orders:{n}");
            let at = cluster.master_of(&name);
            used[at] = true;
            let guard = client.lock(&name).lock().await.unwrap();
            let there: bool = redis::cmd("EXISTS").arg(&name).query(&mut cluster.masters[at].cli()).unwrap();
            assert!(there, "{name}");
            assert!(other.lock(&name).try_lock().await.unwrap().is_none());
            let waiting = spawn_waiter(&other, &name);
            wait_for_waiter(&cluster, &name).await;
            let released = monotonic_ns();
            guard.unlock().await.unwrap();
            took.add(released, in_time("the waiter's hold", waiting).await.unwrap());
        }
        assert_eq!(used, [true; 3]);
        took.assert_below(WOKEN, &format!("sharded {sharded}"));
    }
}

/// All kinds but the red lock, which needs independent servers.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_works_on_a_cluster() {
    let cluster = Cluster::start(3, 0);
    for &sharded in modes() {
        let client = ClientSet::from(connect(&cluster, sharded).await);
        let other = ClientSet::from(connect(&cluster, sharded).await);
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Red) {
            let name = format!("{kind}:{sharded}");
            kind.make(cluster.at(&name), &name);
            let owner = Owner::new("o").unwrap();
            let (lock, rival) = (kind.of(&client, &name).with_owner(&owner), kind.rival().of(&other, &name));
            let held = lock.lock().await.unwrap();
            let again = if kind.is_reentrant() { Some(lock.lock().await.unwrap()) } else { None };
            assert!(rival.try_lock().await.unwrap().is_none(), "{name}");
            let waiting = {
                let rival = rival.clone();
                tokio::spawn(async move { rival.lock().await })
            };
            tokio::time::sleep(SETTLED).await;
            assert!(!waiting.is_finished(), "{name}");
            if let Some(again) = again {
                again.unlock().await.unwrap();
            }
            assert_eq!(held.state(), HoldState::Held);
            held.unlock().await.unwrap();
            let theirs = in_time("the waiter's hold", waiting).await.unwrap().unwrap();
            assert!(kind.rival().of(&client, &name).try_lock().await.unwrap().is_none(), "{name}");
            theirs.unlock().await.unwrap();
        }
        // A semaphore's keys, a fenced lock's last token and marks that expire may stay.
        let may_stay = |key: &String| {
            ["semaphore", "permit", "redisson_lock_token", "redisson-lock:"]
                .iter()
                .any(|stays| key.contains(stays))
        };
        let left: Vec<_> = cluster.keys().into_iter().filter(|key| !may_stay(key)).collect();
        assert!(left.is_empty(), "{left:?}");

        let latch = client.count_down_latch(format!("latch:{sharded}"));
        assert!(latch.try_set_count(1).await.unwrap());
        let waiting = {
            let latch = other.count_down_latch(format!("latch:{sharded}"));
            tokio::spawn(async move { latch.wait().await })
        };
        tokio::time::sleep(SETTLED).await;
        assert!(!waiting.is_finished());
        latch.count_down().await.unwrap();
        in_time("an open latch", waiting).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_at_all_masters_are_renewed_and_losses_reported() {
    const SHORT: Duration = Duration::from_millis(1500);
    let cluster = Cluster::start(3, 0);
    let client = Client::builder().watchdog_timeout(SHORT).connect(cluster.url()).await.unwrap();
    let mut guards = Vec::new();
    for n in 0..30 {
        let name = format!("orders:{n}");
        guards.push((client.lock(&name).lock().await.unwrap(), name));
    }
    let renewed = Instant::now() + SHORT * 2;
    eventually(|| {
        assert!(guards.iter().all(|(guard, _)| guard.state() == HoldState::Held));
        Instant::now() > renewed
    })
    .await;
    for (guard, name) in guards {
        redis::cmd("DEL").arg(&name).exec(&mut cluster.at(&name).cli()).unwrap();
        assert_eq!(in_time("a loss", guard.lost()).await, HoldState::Lost(LossReason::Gone), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_and_waiters_follow_a_slot_that_has_moved() {
    let cluster = Cluster::start(3, 0);
    for (&sharded, name) in modes().iter().zip(["orders", "payments"]) {
        let (client, other) = (connect(&cluster, sharded).await, connect(&cluster, sharded).await);
        let guard = client.lock(name).lock().await.unwrap();
        let waiting = spawn_waiter(&other, name);
        wait_for_waiter(&cluster, name).await;
        let migration = cluster.migrate(name, &[name]);
        let to = migration.to.port();
        migration.finish();
        assert!(connect(&cluster, sharded).await.lock(name).try_lock().await.unwrap().is_none());
        // The subscription follows the slot to its new master.
        wait_for_waiter(&cluster, name).await;
        let mut took = WakeUps::new();
        let released = monotonic_ns();
        guard.unlock().await.unwrap();
        took.add(released, in_time("the waiter's hold", waiting).await.unwrap());
        // The message wakes the waiter, not the end of the lease.
        took.assert_below(Duration::from_secs(1), &format!("sharded {sharded}"));
        let guard = client.lock(name).lock().await.unwrap();
        let at = cluster.masters.iter().find(|master| master.port() == to).unwrap();
        let there: bool = redis::cmd("EXISTS").arg(name).query(&mut at.cli()).unwrap();
        assert!(there);
        guard.unlock().await.unwrap();
    }
}

/// Covers keys that have not moved yet, keys that have moved, and a lock whose keys are split between both masters.
#[tokio::test(flavor = "multi_thread")]
async fn a_moving_slot_is_looked_up_at_both_masters() {
    let cluster = Cluster::start(3, 0);
    for &sharded in modes() {
        let client = connect(&cluster, sharded).await;
        let (gone, stays) = (format!("{{m{sharded}}}gone"), format!("{{m{sharded}}}stays"));
        let (first, second) =
            (client.lock(&gone).lock().await.unwrap(), client.lock(&stays).lock().await.unwrap());
        let fair = client.fair_lock(format!("{{m{sharded}}}fair"));
        let queued = fair.lock().await.unwrap();
        let waiting = {
            let fair = connect(&cluster, sharded).await.fair_lock(format!("{{m{sharded}}}fair"));
            tokio::spawn(async move { fair.lock().await.unwrap().unlock().await })
        };
        let queue = format!("redisson_lock_queue:{{m{sharded}}}fair");
        let master = cluster.at(&gone);
        eventually(|| redis::cmd("LLEN").arg(&queue).query::<u64>(&mut master.cli()).unwrap() == 1).await;

        let migration = cluster.migrate(&gone, &[&gone, &queue]);
        second.unlock().await.unwrap();
        first.unlock().await.unwrap();
        let fresh = client.lock(format!("{{m{sharded}}}fresh")).lock().await.unwrap();
        let there: u64 = redis::cmd("CLUSTER")
            .arg(&["COUNTKEYSINSLOT", &migration.slot])
            .query(&mut migration.to.cli())
            .unwrap();
        assert_eq!(there, 2, "the queue and the new lock");
        let again = client.lock(&gone).lock().await.unwrap();
        again.unlock().await.unwrap();

        let releasing = tokio::spawn(async move { queued.unlock().await });
        // The server answers TRYAGAIN until the remaining keys have moved.
        tokio::time::sleep(SETTLED).await;
        assert!(!releasing.is_finished());
        migration.finish();
        in_time("a release", releasing).await.unwrap().unwrap();
        in_time("the waiter's hold", waiting).await.unwrap().unwrap();
        fresh.unlock().await.unwrap();
        // The wait marker key may exist for another millisecond.
        let is_wait_marker = |key: &String| key.ends_with(":redisson-lock:written");
        let left: Vec<_> = cluster.keys().into_iter().filter(|key| !is_wait_marker(key)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_a_cluster_that_is_down_within_their_limit() {
    let cluster = Cluster::start(3, 0);
    let limit = Duration::from_secs(1);
    let client = Client::builder().response_timeout(limit).connect(cluster.url()).await.unwrap();
    let patient = connect(&cluster, modes()[0]).await;
    let of = |key: &str| slot(key).to_string();
    // No master serves this slot.
    let (lost, name) = ("payments", "orders");
    assert_ne!(of(lost), of(name));
    cluster.unassign(lost);
    eventually(|| {
        let answer = redis::cmd("GET").arg(name).query::<Option<String>>(&mut cluster.at(name).cli());
        answer.is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    })
    .await;
    let started = Stopwatch::start();
    match client.lock(name).try_lock().await {
        // Either the last reply or the end of the wait comes first.
        Err(Error::Refused { code, .. }) if code == "CLUSTERDOWN" => {}
        Err(Error::TimedOut { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(started.is_within(limit / 2..limit * 2), "{started:?}");

    let waiting = spawn_waiter(&patient, name);
    let unserved = spawn_waiter(&patient, lost);
    tokio::time::sleep(SETTLED).await;
    assert!(!waiting.is_finished() && !unserved.is_finished());
    say(cluster.at(lost), &["ADDSLOTS", &of(lost)]);
    in_time("a cluster", waiting).await.unwrap();
    in_time("a slot", unserved).await.unwrap();
}

/// No other request makes the client read the layout meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_soon_finds_the_new_master_of_a_slot_without_one() {
    let cluster = Cluster::start(3, 0);
    let name = "payments";
    let unserved = slot(name).to_string();
    let limit = Duration::from_millis(500);
    let client = Client::builder().response_timeout(limit).connect(cluster.url()).await.unwrap();
    cluster.unassign(name);
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        let error = client.lock(name).try_lock().await.unwrap_err();
        if error.to_string().contains("no master has slot") {
            break;
        }
        assert!(Instant::now() < limit, "{error}");
    }
    let waiting = spawn_waiter(&client, name);
    say(cluster.at(name), &["ADDSLOTS", &unserved]);
    let started = Stopwatch::start();
    waiting.await.unwrap();
    assert!(started.is_within(Duration::ZERO..Duration::from_millis(2500)), "{started:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_its_waiters_outlive_a_failover() {
    for &sharded in modes() {
        let mut cluster = Cluster::start(3, 1);
        let client = builder(sharded).watchdog_timeout(LEASE * 2).connect(cluster.url()).await.unwrap();
        let other = connect(&cluster, sharded).await;
        let names: Vec<_> = (0..12).map(|n| format!("orders:{n}")).collect();
        let mut guards = Vec::new();
        for name in &names {
            let guard = client.lock(name).lock().await.unwrap();
            guards.push((name, guard, spawn_waiter(&other, name)));
            wait_for_waiter(&cluster, name).await;
        }
        let moved: Vec<_> = names.iter().map(|name| cluster.master_of(name) == 1).collect();
        assert!(moved.contains(&true));
        cluster.masters[1].kill();
        let killed = Instant::now();
        cluster.wait_for_promotion(1).await;
        for ((name, guard, waiting), moved) in guards.into_iter().zip(moved) {
            // The new master has renewed the hold: no other server can have confirmed a renewal since the kill.
            eventually(|| !moved || guard.deadline() > killed + LEASE * 2).await;
            eventually(|| guard.state() == HoldState::Held).await;
            // The waiter is subscribed again.
            wait_for_waiter(&cluster, name).await;
            let mut took = WakeUps::new();
            let released = monotonic_ns();
            guard.unlock().await.unwrap();
            took.add(released, in_time("the waiter's hold", waiting).await.unwrap());
            took.assert_below(Duration::from_secs(1), &format!("sharded {sharded}, {name}"));
        }
        for name in &names {
            client.lock(name).lock().await.unwrap().unlock().await.unwrap();
        }
    }
}

/// A holder probe finds a lock that was freed without a message, once its waiters subscribe at another node or the lock has another
/// master. The lock is of a kind that is not probed otherwise, and its lease is long.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_probe_again_when_their_node_or_the_locks_master_changes() {
    let cases = modes().iter().map(|&sharded| (sharded, true));
    for (sharded, subscribed_node_dies) in cases.chain([(false, false)]) {
        let mut cluster = Cluster::start(3, 1);
        let name = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) != 0).unwrap();
        let values = [Kryo5.encode("x")];
        let (builder, url) = (builder(sharded), cluster.url());
        let (lock, wanted) = (name.clone(), values.clone());
        // The holder ends without a release.
        let holder = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let lock = builder.connect(url).await.unwrap().group_lock(&lock, &wanted);
                std::mem::forget(lock.with_lease(Duration::from_secs(600)).lock().await.unwrap());
            });
            runtime.shutdown_background();
        });
        tokio::task::spawn_blocking(|| holder.join().unwrap()).await.unwrap();
        let other = connect(&cluster, sharded).await;
        let waiting = {
            let lock = other.group_lock(&name, &values);
            tokio::spawn(async move { lock.lock().await.unwrap().unlock().await })
        };
        wait_for_waiter(&cluster, &name).await;
        let is_subscribed = |node: &Server| {
            ["NUMSUB", "SHARDNUMSUB"].iter().any(|how| {
                let (_, count): (String, u64) =
                    redis::cmd("PUBSUB").arg(how).arg(channel(&name)).query(&mut node.cli()).unwrap();
                count == 1
            })
        };
        let subscribed_at = cluster.masters.iter().position(is_subscribed).unwrap();
        assert_eq!(sharded, subscribed_at == cluster.master_of(&name));
        let mut cli = cluster.at(&name).cli();
        redis::cmd("DEL").arg(&name).exec(&mut cli).unwrap();
        let replicas: u64 = redis::cmd("WAIT").arg(&[1, 10_000]).query(&mut cli).unwrap();
        assert_eq!(replicas, 1);
        tokio::time::sleep(SETTLED).await;
        assert!(!waiting.is_finished());
        let lost = if subscribed_node_dies { subscribed_at } else { cluster.master_of(&name) };
        cluster.masters[lost].kill();
        // A failed election takes longer than the waiter may.
        cluster.wait_for_promotion(lost).await;
        in_time("the waiter's hold", waiting).await.unwrap().unwrap();
    }
}

/// Without sharded messages, any node delivers them. A node that accepts a connection and answers nothing, or nothing but `BUSY`,
/// delivers none. The lock is of a kind whose holder is not probed, and its lease is long.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_subscribe_at_a_node_that_answers() {
    for frozen in [true, false] {
        let cluster = Cluster::start(3, 0);
        for master in &cluster.masters {
            master.configure("cluster-require-full-coverage", "no");
            master.configure("lua-time-limit", "100");
        }
        let (first, others) = cluster.masters.split_first().unwrap();
        // The first node is listed once for each of its ranges, between which no other node has any.
        let gaps = (0..).map(|n| format!("gaps:{n}")).filter(|name| cluster.master_of(name) == 0);
        gaps.take(30).for_each(|name| cluster.unassign(&name));
        let name = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) == 2).unwrap();
        let values = [Kryo5.encode("x")];
        let hasty = builder(false).response_timeout(Duration::from_millis(500));
        let (holder, other) = (connect(&cluster, false).await, hasty.connect(cluster.url()).await.unwrap());
        let held = holder.group_lock(&name, &values).with_lease(Duration::from_secs(600));
        let held = held.lock().await.unwrap();
        let _script = match frozen {
            true => {
                first.stop_signal();
                None
            }
            false => Some(EndlessScript::start(first).await),
        };
        let waiting = {
            let lock = other.group_lock(&name, &values);
            tokio::spawn(async move { lock.lock().await.map(drop) })
        };
        let subscribed = || others.iter().any(|node| subscribers(node, &channel(&name)) == 1);
        eventually(subscribed).await;
        tokio::time::sleep(SETTLED).await;
        held.unlock().await.unwrap();
        in_time("the waiter's hold", waiting).await.unwrap().unwrap();
    }
}

/// A reset node knows no slots. Its answer says nothing about the slots of the other nodes.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_node_does_not_change_the_slot_map() {
    let cluster = Cluster::start(3, 0);
    let name_at = |master: usize| {
        (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) == master).unwrap()
    };
    for master in &cluster.masters {
        master.configure("cluster-require-full-coverage", "no");
    }
    let hasty = builder(modes()[0]).response_timeout(Duration::from_millis(500));
    let client = hasty.connect(cluster.url()).await.unwrap();
    let guards =
        [client.lock(name_at(1)).lock().await.unwrap(), client.lock(name_at(2)).lock().await.unwrap()];
    say(&cluster.masters[0], &["RESET", "HARD"]);
    let unserved = client.lock(name_at(0));
    for _ in 0..5 {
        // Each attempt asks the nodes for their slots, one after the other, several times.
        unserved.try_lock().await.unwrap_err();
        assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
    }
    let other = connect(&cluster, modes()[0]).await;
    assert!(other.lock(name_at(1)).try_lock().await.unwrap().is_none());
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// If a cluster prefers host names and a node has none, the client uses its address. (Redis before 7 has no such setting.)
#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_name_is_reached_by_its_address() {
    let cluster = Cluster::start(3, 0);
    for master in &cluster.masters {
        let preferred = &["SET", "cluster-preferred-endpoint-type", "hostname"];
        let _ = redis::cmd("CONFIG").arg(preferred).exec(&mut master.cli());
    }
    for &sharded in modes() {
        let (client, other) = (connect(&cluster, sharded).await, connect(&cluster, sharded).await);
        for n in 0..12 {
            let name = format!("orders:{n}");
            let guard = client.lock(&name).lock().await.unwrap();
            let waiting = spawn_waiter(&other, &name);
            eventually(|| cluster.subscriptions(&channel(&name)) == 1).await;
            guard.unlock().await.unwrap();
            in_time("the waiter's hold", waiting).await.unwrap();
        }
        // The redirect names no host.
        let guard = client.lock("moving").lock().await.unwrap();
        let migration = cluster.migrate("moving", &["moving"]);
        migration.finish();
        guard.unlock().await.unwrap();
        let back = (cluster.master_of("moving") + 1) % 3;
        cluster.migrate_between("moving", back, cluster.master_of("moving")).finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_cluster_names_are_refused_before_anything_is_sent() {
    let cluster = Cluster::start(3, 0);
    let client = connect(&cluster, modes()[0]).await;
    cluster.masters.iter().for_each(|master| master.commandstats_reset());
    for bad in ["a{", "a}", "{}x"] {
        assert!(matches!(client.lock(bad).lock().await, Err(Error::Misuse { .. })), "{bad}");
        assert!(matches!(client.fair_lock(bad).is_locked().await, Err(Error::Misuse { .. })), "{bad}");
        assert!(matches!(client.semaphore(bad).acquire().await, Err(Error::Misuse { .. })), "{bad}");
    }
    let latch = client.count_down_latch("a{b}c");
    assert!(matches!(latch.try_set_count(1).await, Err(Error::Misuse { .. })));
    let scripts: u64 = cluster.masters.iter().map(|master| master.scripts() + master.calls("restore")).sum();
    assert_eq!(scripts, 0);
    client.lock("a{b}c").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_node_is_refused_as_a_single_server() {
    let cluster = Cluster::start(3, 0);
    let node = &cluster.masters[0];
    let elsewhere = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) != 0).unwrap();
    // The permission probe of `connect` uses names whose slots may belong to another node.
    let outcome = match Client::connect(node.url()).await {
        Ok(client) => client.lock(elsewhere).try_lock().await.map(drop),
        Err(error) => Err(error),
    };
    match outcome {
        Err(Error::Refused { code, message, .. }) => {
            assert_eq!(code, "MOVED");
            assert!(message.contains("redis-cluster://"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    for bad in ["redis-cluster://", "redis-cluster://host:1/3", "redis-cluster://,a", "redis-cluster://a#b"] {
        assert!(matches!(Client::connect(bad).await, Err(Error::Misuse { .. })), "{bad}");
    }
    // One reachable node is enough.
    let url = cluster.url().replace("://", "://127.0.0.1:1,");
    Client::connect(url).await.unwrap();
}

/// One endpoint serves all slots, as a proxy in front of shards does. After the first refused batch, the connection sends each
/// batch for one slot only.
#[tokio::test(flavor = "multi_thread")]
async fn holds_at_one_endpoint_of_many_slots_are_renewed() {
    const HOLDS: usize = 40;
    let cluster = Cluster::start(1, 0);
    let server = &cluster.masters[0];
    let client =
        Client::builder().watchdog_timeout(Duration::from_millis(1500)).connect(server.url()).await.unwrap();
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        // Pairs share a slot.
        guards.push(client.lock(format!("{n}{{{}}}", n / 2)).lock().await.unwrap());
    }
    let crossed = || {
        let stats: String = redis::cmd("INFO").arg("errorstats").query(&mut server.cli()).unwrap();
        let count = stats.lines().find_map(|line| line.strip_prefix("errorstat_CROSSSLOT:count="));
        count.map_or(0, |count| count.trim().parse::<u64>().unwrap())
    };
    // In the second round no batch is refused any more.
    let mut refused = 0;
    for round in 0..2 {
        let before: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
        let mut doubted = false;
        let renewed = || {
            doubted |= guards.iter().any(|guard| guard.state() == HoldState::Suspect);
            let over = |guard: &LockGuard| matches!(guard.state(), HoldState::Lost(_));
            guards.iter().zip(&before).all(|(guard, before)| over(guard) || guard.deadline() > *before)
        };
        eventually(renewed).await;
        let lost: Vec<_> =
            guards.iter().map(|guard| guard.state()).filter(|state| *state != HoldState::Held).collect();
        assert!(lost.is_empty(), "{} of {HOLDS} holds: {:?}", lost.len(), lost[0]);
        assert!(!doubted, "a refused batch was not resent by slot at once");
        if round == 0 {
            refused = crossed();
            assert!(refused > 0, "no batch was refused");
        }
    }
    assert_eq!(crossed(), refused, "the connection forgot that batches are refused");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// A client of one node cannot acquire locks whose slots other nodes serve. The error names the URL scheme to use.
#[tokio::test(flavor = "multi_thread")]
async fn errors_from_one_node_name_the_cluster_url_scheme() {
    let cluster = Cluster::start(2, 0);
    let client = Client::connect(cluster.masters[0].url()).await.unwrap();
    let names = || (0..).map(|n| format!("n{n}"));
    let (here, there) = (
        names().find(|name| cluster.master_of(name) == 0).unwrap(),
        names().find(|name| cluster.master_of(name) == 1).unwrap(),
    );
    client.lock(&here).lock().await.unwrap().unlock().await.unwrap();
    let errors = [
        client.lock(&there).lock().await.unwrap_err(),
        client.fair_lock(&there).try_lock().await.unwrap_err(),
        client.semaphore(&there).try_acquire().await.unwrap_err(),
        client.lock(&there).is_locked().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), Some("MOVED"), "{error}");
        assert!(error.to_string().contains("redis-cluster://"), "{error}");
    }
}
