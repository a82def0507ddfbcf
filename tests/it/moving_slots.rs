//! Slots move to another master and back while clients hold and wait for locks in them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use redisson_lock::{Client, HoldState, LossReason, Replication};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::any_lock::{ClientSet, Held};
use crate::support::cluster::{Cluster, slot};
use crate::support::kind::{Kind, is_idle};
use crate::support::{Server, Stopwatch, eventually, scripts};

/// The number of slots that move, which is also the number of locks that are passed on.
const SLOTS: usize = 100;
/// The number of holds in slots that do not move.
const BYSTANDERS: usize = 20;
/// The lease of the locks that are passed on. A waiter of one of [`DEAF_KINDS`] looks by itself no earlier than that.
const LEASE: Duration = Duration::from_secs(60);
/// The length of each hold of a lock that is passed on.
const HOLD: Duration = Duration::from_millis(200);
/// A waiter of these kinds never probes the holder: it goes by messages, by the end of a lease, and by looks after it
/// subscribed anew.
const DEAF_KINDS: [Kind; 2] = [Kind::Group, Kind::Fair];
/// Longer than a new subscription may take, and far below [`LEASE`].
const MISSED: Duration = Duration::from_secs(5);

/// The behaviour of the tasks that pass a lock on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    PassOn,
    /// The holder keeps the lock.
    Stay,
    /// The holder releases the lock and ends, and so does each later holder.
    Leave,
}

/// A lock that two clients pass to each other. One of them waits at any time.
struct Chain {
    kind: Kind,
    name: String,
    held: AtomicBool,
    passed: watch::Sender<Instant>,
}

/// How long each acquire took from the time when the lock was free.
type Turns = Vec<Duration>;

async fn pass_on(party: Arc<ClientSet>, chain: Arc<Chain>, mut phase: watch::Receiver<Phase>) -> Turns {
    let (lock, mut turns) = (chain.kind.of(&party, &chain.name), Turns::new());
    loop {
        let asked = Instant::now();
        let held = lock.lock().await.unwrap_or_else(|error| panic!("{}: {error}", chain.name));
        let (had, free) = (Instant::now(), asked.max(*chain.passed.borrow()));
        assert!(!chain.held.swap(true, SeqCst), "{} has two holders", chain.name);
        turns.push(had.saturating_duration_since(free));
        tokio::time::sleep(HOLD).await;
        let now = *phase.wait_for(|phase| *phase != Phase::Stay).await.unwrap();
        chain.held.store(false, SeqCst);
        chain.passed.send_replace(Instant::now());
        held.unlock().await.unwrap_or_else(|error| panic!("{}: {error}", chain.name));
        if now == Phase::Leave {
            return turns;
        }
    }
}

/// Keys of different slots, all at that master.
fn tags(cluster: &Cluster, master: usize, count: usize) -> Vec<String> {
    let mut slots = BTreeSet::new();
    let tags = (0..).map(|n| format!("t{n}"));
    tags.filter(|tag| cluster.master_of(tag) == master && slots.insert(slot(tag))).take(count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn moving_slots_cost_no_hold_and_no_wake_up() {
    let cluster = Cluster::start(3, 0);
    for sharded in [true, false] {
        moved_under_load(&cluster, sharded).await;
    }
}

async fn moved_under_load(cluster: &Cluster, sharded: bool) {
    let tags = tags(cluster, 0, SLOTS);
    let connect = async |lease| {
        let builder = Client::builder().watchdog_timeout(lease).sharded_messages(sharded);
        builder.connect(cluster.url()).await.unwrap()
    };
    let parties =
        [Arc::new(ClientSet::from(connect(LEASE).await)), Arc::new(ClientSet::from(connect(LEASE).await))];
    // These holds are renewed several times meanwhile, at every moment of a move.
    let keeper = ClientSet::from(connect(Duration::from_secs(4)).await);
    let mut kept = Vec::new();
    for tag in &tags {
        kept.push(Kind::Reentrant.of(&keeper, &format!("{{{tag}}}kept")).lock().await.unwrap());
    }

    let (mut bystanders, began) = (Vec::new(), Instant::now());
    for tag in self::tags(cluster, 2, BYSTANDERS) {
        bystanders.push(Kind::Reentrant.of(&parties[0], &tag).lock().await.unwrap());
    }
    // The first renewal is one query, too.
    scripts::load(&cluster.masters[2]);
    cluster.masters[2].commandstats_reset();

    let (phase, followed) = watch::channel(Phase::Stay);
    let mut tasks = JoinSet::new();
    for (tag, kind) in tags.iter().zip(DEAF_KINDS.into_iter().cycle()) {
        let (held, passed) = (AtomicBool::new(false), watch::Sender::new(Instant::now()));
        let chain = Arc::new(Chain { kind, name: format!("{{{tag}}}passed"), held, passed });
        for party in &parties {
            tasks.spawn(pass_on(party.clone(), chain.clone(), followed.clone()));
        }
    }
    drop(followed);
    let one_waits_for_each = async || eventually(|| cluster.channels("redisson*").len() == SLOTS).await;
    one_waits_for_each().await;

    phase.send_replace(Phase::PassOn);
    let (mut doubted, mut states) = (Turns::new(), watch_states(&kept));
    let started = Instant::now();
    for (from, to) in [(0, 1), (1, 0)] {
        // Otherwise two masters may each say of a slot that the other one has it.
        cluster.wait_for_agreement().await;
        for tag in &tags {
            let migration = cluster.migrate_between(tag, from, to);
            // Requests for keys that are not here any more are redirected during this time.
            tokio::time::sleep(Duration::from_millis(2)).await;
            migration.finish();
            doubted.extend(states());
        }
    }
    let moving = started.elapsed();
    drop(states);
    phase.send_replace(Phase::Stay);
    // Each waiter listens at the new place of its slot, and nowhere else.
    one_waits_for_each().await;
    phase.send_replace(Phase::PassOn);
    tokio::time::sleep(5 * HOLD).await;
    phase.send_replace(Phase::Leave);
    let mut turns = Turns::new();
    while let Some(done) = tokio::time::timeout(LEASE / 2, tasks.join_next()).await.expect("no task is stuck")
    {
        turns.extend(done.unwrap());
    }
    turns.sort_unstable();
    let (median, most, longest) =
        (turns[turns.len() / 2], turns[turns.len() * 99 / 100], turns[turns.len() - 1]);
    println!(
        "sharded {sharded}: {} moves in {moving:?}; {} turns: median {median:?}, 99% {most:?}, longest {longest:?}; \
         seen as suspect: {} times, {:?} at most",
        2 * SLOTS,
        turns.len(),
        doubted.len(),
        doubted.iter().max(),
    );
    assert!(longest < MISSED, "a wake-up was missed: {longest:?}");
    // A slot that moves elsewhere causes no query here. Each hold is renewed after a third of the lease, for the first
    // time up to half of that earlier.
    let asked = cluster.masters[2].scripts();
    let renewals = ((began.elapsed().as_secs() + 1) * 6 / LEASE.as_secs()).div_ceil(2).max(1);
    assert!(asked <= BYSTANDERS as u64 * renewals, "{asked} queries about holds that did not move");

    for held in kept.into_iter().chain(bystanders) {
        held.unlock().await.unwrap();
    }
    eventually(|| cluster.channels("redisson*").is_empty()).await;
    for client in parties.iter().map(|party| &***party).chain([&*keeper]) {
        eventually(|| is_idle(client)).await;
    }
    // Marks expire by themselves.
    let left: Vec<_> = cluster.keys().into_iter().filter(|key| !key.contains(":redisson-lock:")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Where messages are sharded, a slot that moves ends subscriptions at its master. That is not a failure of the master,
/// so the client must not leave it alone for longer and longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_loses_slots_is_subscribed_to_again_at_once() {
    const MOVES: usize = 16;
    let cluster = Cluster::start(3, 0);
    let builder = Client::builder().sharded_messages(true);
    let holder = builder.clone().connect(cluster.url()).await.unwrap();
    let waiter = builder.connect(cluster.url()).await.unwrap();
    let tags = tags(&cluster, 0, MOVES + 1);
    let (mut guards, mut tasks) = (Vec::new(), JoinSet::new());
    for tag in &tags {
        guards.push(holder.lock(tag).lock().await.unwrap());
        let lock = waiter.lock(tag);
        tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    }
    let all_are_heard = async || eventually(|| cluster.channels("redisson*").len() == tags.len()).await;
    all_are_heard().await;
    let mut took = Vec::new();
    for tag in tags.iter().skip(1) {
        cluster.migrate_between(tag, 0, 1).finish();
        let moved = Stopwatch::start();
        all_are_heard().await;
        took.push(moved.elapsed());
    }
    println!("{took:?}");
    let last = &mut took[MOVES / 2..];
    last.sort_unstable();
    // The longest wait before a failed server is tried again is 500 ms.
    assert!(last[last.len() / 2] < Duration::from_millis(200), "{took:?}");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    tasks.join_all().await;
    eventually(|| cluster.channels("redisson*").is_empty()).await;
}

/// An acquire in a slot that is being imported takes effect at the new master. The write that its replicas confirm must
/// go there as well, to a slot that is not redirected.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_checked_for_a_slot_that_is_being_imported() {
    for replicas in [0, 1] {
        let cluster = Cluster::start(3, replicas);
        let client = Client::connect(cluster.url()).await.unwrap();
        let name = tags(&cluster, 0, 1).remove(0);
        let migration = cluster.migrate(&name, &[]);
        let sent_on = |server: &Server| -> Option<String> {
            let errors: String = redis::cmd("INFO").arg("errorstats").query(&mut server.cli()).unwrap();
            errors.lines().find(|line| line.contains("MOVED")).map(str::to_owned)
        };
        // By then the client has tried everything that it tries on a new connection.
        client.lock(&tags(&cluster, 1, 1)[0]).lock().await.unwrap().unlock().await.unwrap();
        let before = sent_on(migration.to);
        let guard = client.lock(&name).lock().await.unwrap_or_else(|error| panic!("{replicas}: {error}"));
        assert_eq!(sent_on(migration.to), before, "{replicas}");
        guard.unlock().await.unwrap();
        migration.finish();
    }
}

/// A slot that is being exported takes no new key, so the write that replicas confirm goes to another slot of that
/// master. The first of those slots may have moved, which no connection has noticed yet.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_checked_for_a_slot_that_is_being_exported() {
    let cluster = Cluster::start(3, 1);
    let lowest_of_second = 16384_u16.div_ceil(3);
    let key = (0..).map(|n| format!("k{n}")).find(|key| slot(key) == lowest_of_second).unwrap();
    let within = Replication::any().within(Duration::from_secs(5));
    let client = Client::builder().replication(within).connect(cluster.url()).await.unwrap();
    cluster.migrate_between(&key, 1, 2).finish();
    let tags = tags(&cluster, 1, 2);
    let (master, replica) = (&cluster.masters[1], &cluster.replicas[1]);
    let taking = |name: &str| {
        let lock = client.lock(name);
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    };
    replica.stop_signal();
    let ahead = taking(&tags[0]);
    let waits = || redis::cmd("INFO").arg("clients").query::<String>(&mut master.cli()).unwrap();
    eventually(|| waits().contains("blocked_clients:1")).await;
    // The replicas are asked for this acquire once they have answered for the one ahead.
    let behind = taking(&tags[1]);
    eventually(|| redis::cmd("EXISTS").arg(&tags[1]).query(&mut master.cli()).unwrap()).await;
    let migration = cluster.migrate_between(&tags[1], 1, 0);
    replica.cont();
    for taking in [ahead, behind] {
        taking.await.unwrap();
    }
    migration.finish();
}

/// Records of a slot that is being moved cannot be queried together, because some of them have moved already. Each is
/// renewed by itself, and no more often than otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_stays_in_migration_keeps_its_holds() {
    const LEASE: Duration = Duration::from_millis(1500);
    let cluster = Cluster::start(3, 0);
    let client = Client::builder().watchdog_timeout(LEASE).connect(cluster.url()).await.unwrap();
    let tag = tags(&cluster, 0, 1).remove(0);
    let names = ["first", "second", "third"].map(|name| format!("{{{tag}}}{name}"));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.lock(name).lock().await.unwrap());
    }
    let migration = cluster.migrate(&tag, &[&names[0]]);
    // All holds are suspect from then on, and are queried at the same time.
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut migration.from.cli()).unwrap();
    let until = Instant::now() + 3 * LEASE;
    eventually(|| {
        assert!(guards.iter().all(|guard| guard.state().is_live()));
        Instant::now() > until
    })
    .await;
    let asked = migration.to.calls("asking");
    // Once in a third of a lease, from half a lease on.
    assert!((5..=20).contains(&asked), "{asked} queries in {:?}", 3 * LEASE);
    migration.finish();
    for guard in guards {
        guard.unlock().await.unwrap();
    }
}

/// Data that moved is not lost. A record that is deleted at its new place is merely gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_deleted_after_its_slot_moved_is_reported_gone() {
    let cluster = Cluster::start(3, 0);
    // The hold outlives the move, however slow that is.
    let lease = Duration::from_secs(3);
    let client = Client::builder().watchdog_timeout(lease).connect(cluster.url()).await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let migration = cluster.migrate("orders", &["orders"]);
    let to = migration.to;
    migration.finish();
    let moved = Instant::now();
    // Wait until the hold has been renewed there.
    eventually(|| guard.deadline() > moved + lease).await;
    redis::cmd("DEL").arg("orders").exec(&mut to.cli()).unwrap();
    let lost =
        tokio::time::timeout(Duration::from_secs(5), guard.lost()).await.expect("the loss is reported");
    assert_eq!(lost, HoldState::Lost(LossReason::Gone));
}

/// Returns a function that lists how long each hold was suspect that is confirmed again. It panics if a hold is lost.
fn watch_states(kept: &[Held]) -> impl FnMut() -> Turns {
    let mut doubted = vec![None; kept.len()];
    move || {
        let mut over = Turns::new();
        for (held, doubted) in kept.iter().zip(&mut doubted) {
            match held.state() {
                HoldState::Held => over.extend(doubted.take().map(|since: Instant| since.elapsed())),
                HoldState::Suspect => _ = doubted.get_or_insert_with(Instant::now),
                other => panic!("{other:?}"),
            }
        }
        over
    }
}
