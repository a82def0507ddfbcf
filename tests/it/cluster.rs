//! A cluster: each lock is at the master of its name's slot, wherever that is by now. Messages are sharded or not.

use crate::support::cluster::{Cluster, modes, say, slot};
use crate::support::contender::Party;
use crate::support::kind::{Kind, in_time};
use crate::support::{Server, Stopwatch, eventually, median};
use redisson_lock::{Client, ClientBuilder, Codec, Error, HoldState, Kryo5, LockGuard, LossReason, Owner};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A wake-up by message is well below this, and one by a look after so much waiting well above.
const WOKEN: Duration = Duration::from_millis(20);
const LOOKED: Duration = Duration::from_millis(85);
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

/// Who waits for that lock, and tells when it had it.
fn waiter(client: &Client, name: &str) -> JoinHandle<Instant> {
    let lock = client.lock(name);
    tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        let had = Instant::now();
        guard.unlock().await.unwrap();
        had
    })
}

/// Ends when one waits for that lock by its message.
async fn waited_for(cluster: &Cluster, name: &str) {
    eventually(|| cluster.subscriptions(&channel(name)) == 1).await;
    tokio::time::sleep(LOOKED).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_at_their_masters_and_exclude() {
    let cluster = Cluster::start(3, 0);
    for &sharded in modes() {
        let (client, other) = (connect(&cluster, sharded).await, connect(&cluster, sharded).await);
        let (mut used, mut took) = ([false; 3], Vec::new());
        for n in 0..20 {
            let name = format!("orders:{n}");
            let at = cluster.master_of(&name);
            used[at] = true;
            let guard = client.lock(&name).lock().await.unwrap();
            let there: bool = redis::cmd("EXISTS").arg(&name).query(&mut cluster.masters[at].cli()).unwrap();
            assert!(there, "{name}");
            assert!(other.lock(&name).try_lock().await.unwrap().is_none());
            let waiting = waiter(&other, &name);
            waited_for(&cluster, &name).await;
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let had = in_time("a turn", waiting).await.unwrap();
            took.push(u64::try_from(had.saturating_duration_since(released).as_nanos()).unwrap());
        }
        assert_eq!(used, [true; 3]);
        let median = median(&mut took);
        println!("sharded {sharded}: median {median:?}");
        assert!(median < WOKEN, "sharded {sharded}: {median:?}");
    }
}

/// All but the red lock, whose servers are to be independent.
#[tokio::test(flavor = "multi_thread")]
async fn each_kind_works_on_a_cluster() {
    let cluster = Cluster::start(3, 0);
    for &sharded in modes() {
        let client = Party::from(connect(&cluster, sharded).await);
        let other = Party::from(connect(&cluster, sharded).await);
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
            tokio::time::sleep(LOOKED).await;
            assert!(!waiting.is_finished(), "{name}");
            if let Some(again) = again {
                again.unlock().await.unwrap();
            }
            assert_eq!(held.state(), HoldState::Held);
            held.unlock().await.unwrap();
            let theirs = in_time("a turn", waiting).await.unwrap().unwrap();
            assert!(kind.rival().of(&client, &name).try_lock().await.unwrap().is_none(), "{name}");
            theirs.unlock().await.unwrap();
        }
        // What stays is a semaphore's own, a fenced lock's number, and marks that expire.
        let made = |key: &String| {
            ["semaphore", "permit", "redisson_lock_token", "redisson-lock:"]
                .iter()
                .any(|stays| key.contains(stays))
        };
        let left: Vec<_> = cluster.keys().into_iter().filter(|key| !made(key)).collect();
        assert!(left.is_empty(), "{left:?}");

        let latch = client.count_down_latch(format!("latch:{sharded}"));
        assert!(latch.try_set_count(1).await.unwrap());
        let waiting = {
            let latch = other.count_down_latch(format!("latch:{sharded}"));
            tokio::spawn(async move { latch.wait().await })
        };
        tokio::time::sleep(LOOKED).await;
        assert!(!waiting.is_finished());
        latch.count_down().await.unwrap();
        in_time("an open latch", waiting).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_at_all_masters_are_renewed_and_losses_told() {
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
async fn a_slot_that_has_moved_is_followed() {
    let cluster = Cluster::start(3, 0);
    for (&sharded, name) in modes().iter().zip(["orders", "payments"]) {
        let (client, other) = (connect(&cluster, sharded).await, connect(&cluster, sharded).await);
        let guard = client.lock(name).lock().await.unwrap();
        let waiting = waiter(&other, name);
        waited_for(&cluster, name).await;
        let migration = cluster.migrate(name, &[name]);
        let to = migration.to.port();
        migration.finish();
        assert!(connect(&cluster, sharded).await.lock(name).try_lock().await.unwrap().is_none());
        // Heard where the slot is by now.
        waited_for(&cluster, name).await;
        let released = Instant::now();
        guard.unlock().await.unwrap();
        let had = in_time("a turn", waiting).await.unwrap();
        let took = had.saturating_duration_since(released);
        println!("sharded {sharded}: {took:?}");
        // Not by the end of its lease.
        assert!(took < Duration::from_secs(1), "sharded {sharded}: {took:?}");
        let guard = client.lock(name).lock().await.unwrap();
        let at = cluster.masters.iter().find(|master| master.port() == to).unwrap();
        let there: bool = redis::cmd("EXISTS").arg(name).query(&mut at.cli()).unwrap();
        assert!(there);
        guard.unlock().await.unwrap();
    }
}

/// What is there yet, and what is gone already; and what is neither, because its keys are here and there.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_is_moving_is_asked_for_at_both_its_masters() {
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
        assert_eq!(there, 2, "the queue, and the fresh one");
        let again = client.lock(&gone).lock().await.unwrap();
        again.unlock().await.unwrap();

        let releasing = tokio::spawn(async move { queued.unlock().await });
        // It is told to try again, until the rest is there.
        tokio::time::sleep(LOOKED).await;
        assert!(!releasing.is_finished());
        migration.finish();
        in_time("a release", releasing).await.unwrap().unwrap();
        in_time("a turn", waiting).await.unwrap().unwrap();
        fresh.unlock().await.unwrap();
        // What replicas are asked by may be there for a millisecond yet.
        let written = |key: &String| key.ends_with(":redisson-lock:written");
        let left: Vec<_> = cluster.keys().into_iter().filter(|key| !written(key)).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_is_waited_for_within_a_calls_limit() {
    let cluster = Cluster::start(3, 0);
    let limit = Duration::from_secs(1);
    let client = Client::builder().response_timeout(limit).connect(cluster.url()).await.unwrap();
    let patient = connect(&cluster, modes()[0]).await;
    let of = |key: &str| slot(key).to_string();
    // One slot that nobody has.
    let (lost, name) = ("payments", "orders");
    assert_ne!(of(lost), of(name));
    for master in &cluster.masters {
        say(master, &["DELSLOTS", &of(lost)]);
    }
    eventually(|| {
        let answer = redis::cmd("GET").arg(name).query::<Option<String>>(&mut cluster.at(name).cli());
        answer.is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    })
    .await;
    let started = Stopwatch::start();
    match client.lock(name).try_lock().await {
        // Whichever comes first: the last answer, or the end of the wait.
        Err(Error::Refused { code, .. }) if code == "CLUSTERDOWN" => {}
        Err(Error::TimedOut { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert!(started.is_within(limit / 2..limit * 2), "{started:?}");

    let waiting = waiter(&patient, name);
    let unserved = waiter(&patient, lost);
    tokio::time::sleep(LOOKED).await;
    assert!(!waiting.is_finished() && !unserved.is_finished());
    say(cluster.at(lost), &["ADDSLOTS", &of(lost)]);
    in_time("a cluster", waiting).await.unwrap();
    in_time("a slot", unserved).await.unwrap();
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
            guards.push((name, guard, waiter(&other, name)));
            waited_for(&cluster, name).await;
        }
        let moved: Vec<_> = names.iter().map(|name| cluster.master_of(name) == 1).collect();
        assert!(moved.contains(&true));
        cluster.masters[1].kill();
        let killed = Instant::now();
        cluster.promoted(1).await;
        for ((name, guard, waiting), moved) in guards.into_iter().zip(moved) {
            // Renewed at the new master: no other has confirmed what was sent since.
            eventually(|| !moved || guard.deadline() > killed + LEASE * 2).await;
            eventually(|| guard.state() == HoldState::Held).await;
            // Its message is heard again.
            waited_for(&cluster, name).await;
            let released = Instant::now();
            guard.unlock().await.unwrap();
            let had = in_time("a turn", waiting).await.unwrap();
            let took = had.saturating_duration_since(released);
            assert!(took < Duration::from_secs(1), "sharded {sharded}, {name}: {took:?}");
        }
        for name in &names {
            client.lock(name).lock().await.unwrap().unlock().await.unwrap();
        }
    }
}

/// What was freed without a message is found by a look, once those who wait listen at another node, or the lock has another
/// master. It is of a kind that is not looked at otherwise, and its lease is long.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_look_again_when_the_node_that_they_listen_at_or_the_locks_is_another() {
    let cases = modes().iter().map(|&sharded| (sharded, true));
    for (sharded, where_they_listen) in cases.chain([(false, false)]) {
        let mut cluster = Cluster::start(3, 1);
        let name = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) != 0).unwrap();
        let values = [Kryo5.encode("x")];
        let (builder, url) = (builder(sharded), cluster.url());
        let (lock, wanted) = (name.clone(), values.clone());
        // Who holds it ends, and tells nobody.
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
        waited_for(&cluster, &name).await;
        let hears = |node: &Server| {
            ["NUMSUB", "SHARDNUMSUB"].iter().any(|how| {
                let (_, count): (String, u64) =
                    redis::cmd("PUBSUB").arg(how).arg(channel(&name)).query(&mut node.cli()).unwrap();
                count == 1
            })
        };
        let heard_at = cluster.masters.iter().position(hears).unwrap();
        assert_eq!(sharded, heard_at == cluster.master_of(&name));
        let mut cli = cluster.at(&name).cli();
        redis::cmd("DEL").arg(&name).exec(&mut cli).unwrap();
        let replicas: u64 = redis::cmd("WAIT").arg(&[1, 10_000]).query(&mut cli).unwrap();
        assert_eq!(replicas, 1);
        tokio::time::sleep(LOOKED).await;
        assert!(!waiting.is_finished());
        let lost = if where_they_listen { heard_at } else { cluster.master_of(&name) };
        cluster.masters[lost].kill();
        in_time("a turn", waiting).await.unwrap().unwrap();
    }
}

/// It knows of no slots, and that says nothing of those that the others have.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_reset_has_no_say() {
    let cluster = Cluster::start(3, 0);
    let name_at = |master: usize| {
        (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) == master).unwrap()
    };
    for master in &cluster.masters {
        redis::cmd("CONFIG")
            .arg(&["SET", "cluster-require-full-coverage", "no"])
            .exec(&mut master.cli())
            .unwrap();
    }
    let hasty = builder(modes()[0]).response_timeout(Duration::from_millis(500));
    let client = hasty.connect(cluster.url()).await.unwrap();
    let guards =
        [client.lock(name_at(1)).lock().await.unwrap(), client.lock(name_at(2)).lock().await.unwrap()];
    say(&cluster.masters[0], &["RESET", "HARD"]);
    let unserved = client.lock(name_at(0));
    for _ in 0..5 {
        // Each has the nodes be asked, one after the other, several times.
        unserved.try_lock().await.unwrap_err();
        assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
    }
    let other = connect(&cluster, modes()[0]).await;
    assert!(other.lock(name_at(1)).try_lock().await.unwrap().is_none());
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// Where names are preferred and there is none, a node is known by its address. (Before Redis 7 there was no such preference.)
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
            let waiting = waiter(&other, &name);
            eventually(|| cluster.subscriptions(&channel(&name)) == 1).await;
            guard.unlock().await.unwrap();
            in_time("a turn", waiting).await.unwrap();
        }
        // Sent on by a redirect that names nobody.
        let guard = client.lock("moving").lock().await.unwrap();
        let migration = cluster.migrate("moving", &["moving"]);
        migration.finish();
        guard.unlock().await.unwrap();
        let back = (cluster.master_of("moving") + 1) % 3;
        cluster.migrate_between("moving", back, cluster.master_of("moving")).finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_a_cluster_cannot_have_are_refused_before_anything_is_sent() {
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
async fn a_node_of_a_cluster_is_no_server_of_its_own() {
    let cluster = Cluster::start(3, 0);
    let node = &cluster.masters[0];
    let elsewhere = (0..).map(|n| format!("orders:{n}")).find(|name| cluster.master_of(name) != 0).unwrap();
    // To probe what the user may do, it uses names that may be another's too.
    let told = match Client::connect(node.url()).await {
        Ok(client) => client.lock(elsewhere).try_lock().await.map(drop),
        Err(error) => Err(error),
    };
    match told {
        Err(Error::Refused { code, message, .. }) => {
            assert_eq!(code, "MOVED");
            assert!(message.contains("redis-cluster://"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    for bad in ["redis-cluster://", "redis-cluster://host:1/3", "redis-cluster://,a", "redis-cluster://a#b"] {
        assert!(matches!(Client::connect(bad).await, Err(Error::Misuse { .. })), "{bad}");
    }
    // One that is there is enough.
    let url = cluster.url().replace("://", "://127.0.0.1:1,");
    Client::connect(url).await.unwrap();
}

/// One address for all slots, as a proxy in front of shards has it: batches are of one slot each, and after the first refusal
/// from the start.
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
    // Twice: the second time nothing is refused any more.
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
        assert!(!doubted, "a batch that was refused was not sent by slot at once");
        if round == 0 {
            refused = crossed();
            assert!(refused > 0, "no batch was refused");
        }
    }
    assert_eq!(crossed(), refused, "the connection forgets that batches are refused");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// Locks whose slots other nodes have can't be had at one node: which scheme to use is said.
#[tokio::test(flavor = "multi_thread")]
async fn one_node_of_several_tells_how_to_name_the_cluster() {
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
