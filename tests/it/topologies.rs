//! Java and Rust at the same locks next to a replica (Sentinel, replicated, master/slave) and in a cluster, with
//! sharded and with plain messages: every kind, with each side as the holder and as the waiter. `kinds_interop` and its
//! siblings have the rest, on one server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redisson_lock::{Client, Codec, CountDownLatch, Kryo5, Owner, RedLock};

use tokio::task::JoinSet;

use crate::support::any_lock::{AnyLock, ClientSet, Held};
use crate::support::clock::monotonic_ns;
use crate::support::cluster::Cluster;
use crate::support::group::Group;
use crate::support::java::objects::Argument::{Int, Long, Text, Time};
use crate::support::java::{JavaClient, JavaThread, Pending};
use crate::support::keyspace::KeyspaceView;
use crate::support::kind::{Kind, each, in_time, is_idle, versions_for_all_kinds};
use crate::support::topology::{MasterDiscovery, Topology};
use crate::support::{Java, Server, WakeUps, eventually, fair_allowance, since};

/// The number of rounds in each direction.
const ROUNDS: usize = 5;
/// By then we have probed the holder after 10, 30, 70 and 150 ms, and the next probe is as far away again.
const PROBED: Duration = Duration::from_millis(170);
/// A wake-up by message takes less than this, even on a busy machine with replicas that both sides ask. The next probe
/// comes later, and the end of a lease much later.
const WOKEN_WITH_REPLICAS: Duration = Duration::from_millis(100);
/// The longest step of a spin lock's back-off, on both sides.
const LONGEST_STEP: Duration = Duration::from_millis(128);
const ALLOWANCE: Duration = Duration::from_secs(300);

/// The object that one side holds and the other waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The holder's kind, and the waiter's.
    Of(Kind, Kind),
    /// The same for an object of a map entry.
    Entry(Kind, Kind),
    Latch,
}

/// The subjects that this version of Redisson has.
fn subjects(version: &str) -> Vec<Subject> {
    let known = |kind: Kind| match kind {
        Kind::Multi | Kind::Semaphore => true,
        Kind::Group => since(version, 3, 38),
        // Earlier ids are texts.
        Kind::Permit => since(version, 3, 17),
        _ => kind.is_in(version),
    };
    let rivals: Vec<_> = Kind::rivals().filter(|(holder, _)| known(*holder)).collect();
    let of_entries = [Kind::Reentrant, Kind::Fair, Kind::Read, Kind::Write, Kind::Semaphore, Kind::Permit];
    // Earlier versions hash keys with another codec.
    let hashed_alike = since(version, 3, 38);
    let entries = rivals.iter().filter(|(holder, _)| hashed_alike && of_entries.contains(holder));
    let entries: Vec<_> = entries.map(|&(holder, waiter)| Subject::Entry(holder, waiter)).collect();
    let kinds = rivals.into_iter().map(|(holder, waiter)| Subject::Of(holder, waiter));
    kinds.chain(entries).chain([Subject::Latch]).collect()
}

impl Subject {
    /// A text that no other subject's name begins with.
    fn name(self) -> String {
        match self {
            Self::Of(holder, waiter) => format!("{holder}, {waiter}"),
            Self::Entry(holder, waiter) => format!("an entry's {holder}, {waiter}"),
            Self::Latch => "latch".to_owned(),
        }
    }

    fn kinds(self) -> Option<(Kind, Kind)> {
        match self {
            Self::Of(holder, waiter) | Self::Entry(holder, waiter) => Some((holder, waiter)),
            Self::Latch => None,
        }
    }

    fn listens(self) -> bool {
        self.kinds().is_none_or(|(_, waiter)| waiter.publishes())
    }

    fn bound(self) -> Duration {
        if self.listens() { WOKEN_WITH_REPLICAS } else { WOKEN_WITH_REPLICAS + LONGEST_STEP }
    }

    /// Whether the data in Redis can be compared, because it consists of names and leases alone.
    fn is_plain(self) -> bool {
        let apart = [Kind::Group, Kind::Multi, Kind::Permit];
        self.kinds().is_none_or(|(holder, _)| !apart.contains(&holder))
    }
}

/// The name of the kind in the Java peer.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => "group",
        Kind::Multi => "multi",
        Kind::Semaphore => "semaphore",
        Kind::Permit => "permitsemaphore",
        _ => kind.java(),
    }
}

/// The Java side of one subject under one name.
struct JavaHandle {
    thread: JavaThread,
    name: String,
}

impl JavaHandle {
    /// Prepares the subject to be held as that kind.
    async fn of(client: &JavaClient, thread: JavaThread, kind: Option<Kind>, name: &str) -> Self {
        match kind {
            Some(Kind::Group) => thread.group(name, name, &["x", "y"]).await.unwrap(),
            Some(Kind::Multi) => {
                let records = Kind::Multi.records(name);
                let members: Vec<_> = records.iter().map(|record| (client, "plain", &**record)).collect();
                thread.combine("multi", name, &members).await.unwrap();
            }
            _ => {}
        }
        Self { thread, name: name.to_owned() }
    }

    /// Acquires the lock, or waits until the latch is open.
    fn enter(&self, kind: Option<Kind>) -> Pending {
        let call = |word, method, arguments: &[_]| self.thread.method(word, &self.name, method, arguments);
        match kind {
            None => call("latch", "await", &[]),
            Some(kind @ Kind::Semaphore) => call(word(kind), "acquire", &[Int(1)]),
            Some(kind @ Kind::Permit) => call(word(kind), "acquire", &[Time(Duration::from_secs(60))]),
            Some(kind) => self.thread.start(&format!(
                "lock {} {}",
                word(kind),
                crate::support::java::name64(&self.name)
            )),
        }
    }

    /// `entered` is the reply of [`enter`](Self::enter).
    fn leave(&self, kind: Option<Kind>, entered: &str) -> Pending {
        let call = |word, method, arguments: &[_]| self.thread.method(word, &self.name, method, arguments);
        match kind {
            None => call("latch", "countDown", &[]),
            Some(kind @ Kind::Semaphore) => call(word(kind), "release", &[Int(1)]),
            Some(kind @ Kind::Permit) => call(word(kind), "release", &[Text(entered)]),
            Some(kind) => self.thread.start(&format!(
                "unlock {} {}",
                word(kind),
                crate::support::java::name64(&self.name)
            )),
        }
    }

    async fn hold(&self, kind: Option<Kind>) -> String {
        match kind {
            None => {
                let made = self.thread.method("latch", &self.name, "trySetCount", &[Long(1)]).await;
                assert_eq!(made.unwrap(), "true");
                String::new()
            }
            _ => self.enter(kind).await.unwrap(),
        }
    }
}

/// The Rust side of one subject.
#[derive(Clone)]
enum RustHandle {
    Owned(AnyLock),
    Latch(CountDownLatch),
}

enum RustHold {
    Held(Held),
    /// A latch that this side closed.
    Closed(CountDownLatch),
    /// A latch that this side went through.
    Nothing,
}

impl RustHandle {
    async fn hold(&self) -> RustHold {
        match self {
            Self::Owned(lock) => RustHold::Held(lock.lock().await.unwrap()),
            Self::Latch(latch) => {
                assert!(latch.try_set_count(1).await.unwrap());
                RustHold::Closed(latch.clone())
            }
        }
    }

    async fn enter(&self) -> RustHold {
        match self {
            Self::Owned(_) => self.hold().await,
            Self::Latch(latch) => {
                latch.wait().await.unwrap();
                RustHold::Nothing
            }
        }
    }
}

impl RustHold {
    async fn leave(self) {
        match self {
            Self::Held(held) => held.unlock().await.unwrap(),
            Self::Closed(latch) => latch.count_down().await.unwrap(),
            Self::Nothing => {}
        }
    }
}

/// The data in Redis after each step, for one subject in one direction.
type Trace = Vec<(&'static str, BTreeMap<String, String>)>;

/// A Java client and a Rust client on one set of servers.
struct Bench {
    version: &'static str,
    topology: Arc<Topology>,
    java: JavaClient,
    client: ClientSet,
    /// The beginning of all names.
    base: String,
}

impl Bench {
    async fn of(
        version: &'static str,
        topology: &Arc<Topology>,
        settings: &[&str],
        sharded: Option<bool>,
    ) -> Arc<Self> {
        let java = Java::get(version).client_in(&topology.for_java(), settings).await;
        let allowance = fair_allowance(version, ALLOWANCE).1;
        let builder = Client::builder().fair_lock_wait_timeout(allowance);
        let builder = sharded.iter().fold(builder, |builder, &sharded| builder.sharded_messages(sharded));
        let client = ClientSet::from(builder.connect(topology.url()).await.unwrap());
        let url = topology.url();
        let base = format!("{version} {} {sharded:?}", url.split(':').next().unwrap_or_default());
        Arc::new(Self { version, topology: topology.clone(), java, client, base })
    }

    /// Runs all subjects, several at a time, and returns their traces.
    async fn run(self: &Arc<Self>, rounds: usize) -> BTreeMap<String, Trace> {
        let traces = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
        each(subjects(self.version), |subject| {
            let (this, traces) = (self.clone(), traces.clone());
            async move {
                for to_rust in [true, false] {
                    let trace = this.wake_ups(subject, to_rust, rounds).await;
                    let what = format!("{}, to Rust: {to_rust}", subject.name());
                    traces.lock().unwrap().insert(what, trace);
                }
            }
        })
        .await;
        let mut subscriptions = self.topology.subscriptions();
        eventually(|| subscriptions.count("") == 0).await;
        eventually(|| is_idle(&self.client)).await;
        Arc::into_inner(traces).unwrap().into_inner().unwrap()
    }

    async fn wake_ups(&self, subject: Subject, to_rust: bool, rounds: usize) -> Trace {
        let (mut took, mut trace) = (WakeUps::new(), Trace::new());
        let thread = self.java.thread(&format!("{} {to_rust}", subject.name()).replace(' ', "-"));
        let java_text = thread.owner().await;
        let owner = Owner::unique();
        let our_text = format!("{}:owner-{}", self.client.id(), owner.as_str());
        let mut subscriptions = self.topology.subscriptions();
        for round in 0..rounds {
            let base = format!("{} {} {to_rust}", self.base, subject.name());
            let name = self.topology.name_at(&base, round);
            let (holder, waiter) = match subject.kinds() {
                Some((holder, waiter)) => (Some(holder), Some(waiter)),
                None => (None, None),
            };
            let ours = self.ours(subject, if to_rust { waiter } else { holder }, &name, &owner);
            let javas = self.javas(subject, if to_rust { holder } else { waiter }, &thread, &name).await;
            if let Some(holder) = holder {
                holder.make(self.topology.at(&javas.name), &javas.name);
            }
            let look = KeyspaceView {
                owners: &[(&java_text, "Java"), (&our_text, "Rust"), (&name, "<name>")],
                lease_ms: 30_000,
                allowance_ms: fair_allowance(self.version, ALLOWANCE).1.as_millis() as i64,
            };
            let mut see = |step| {
                if round == 0 && subject.is_plain() {
                    trace.push((step, self.topology.look(&look, &name)));
                }
            };
            if to_rust {
                let entered = javas.hold(holder).await;
                see("Java holds");
                let waiting = tokio::spawn({
                    let ours = ours.clone();
                    async move { (ours.enter().await, monotonic_ns()) }
                });
                if subject.listens() {
                    eventually(|| subscriptions.count(&name) == 1).await;
                }
                tokio::time::sleep(PROBED).await;
                see("Rust waits");
                let left = javas.leave(holder, &entered).await;
                let (had, at) = in_time("Rust's turn", waiting).await.unwrap();
                took.add(left.started_ns, at);
                left.unwrap();
                see("Rust holds");
                had.leave().await;
            } else {
                let had = ours.hold().await;
                see("Rust holds");
                let mut waiting = javas.enter(waiter);
                waiting.started().await;
                if subject.listens() {
                    eventually(|| subscriptions.count(&name) == 1).await;
                }
                if subject.listens() && waiter.is_some() {
                    thread.asleep().await;
                }
                see("Java waits");
                let leaving = monotonic_ns();
                had.leave().await;
                let entered = in_time("Java's turn", waiting).await;
                took.add(leaving, entered.done_ns);
                let entered = entered.unwrap();
                see("Java holds");
                if waiter.is_some() {
                    javas.leave(waiter, &entered).await.unwrap();
                }
            }
            see("nobody holds");
            eventually(|| subscriptions.count(&name) == 0).await;
        }
        let what = format!("{}, {}, to Rust: {to_rust}", self.base, subject.name());
        // A single wake-up may be slow.
        took.assert_below(if rounds == 1 { Duration::MAX } else { subject.bound() }, &what);
        trace
    }

    fn ours(&self, subject: Subject, kind: Option<Kind>, name: &str, owner: &Owner) -> RustHandle {
        let entry = || self.client.map_entry(name, Kryo5.encode("key"));
        let ours = match (subject, kind.unwrap_or(Kind::Reentrant)) {
            (Subject::Latch, _) => return RustHandle::Latch(self.client.count_down_latch(name)),
            (Subject::Of(..), kind) => kind.of(&self.client, name),
            (_, Kind::Reentrant) => AnyLock::Lock(entry().lock()),
            (_, Kind::Fair) => AnyLock::Lock(entry().fair_lock()),
            (_, Kind::Read) => AnyLock::Lock(entry().read_write_lock().read().clone()),
            (_, Kind::Write) => AnyLock::Lock(entry().read_write_lock().write().clone()),
            (_, Kind::Semaphore) => AnyLock::Semaphore(entry().semaphore()),
            (_, Kind::Permit) => AnyLock::Permit(entry().expirable_semaphore()),
            (_, other) => panic!("a map entry has no {other}"),
        };
        RustHandle::Owned(ours.with_owner(owner))
    }

    async fn javas(
        &self,
        subject: Subject,
        kind: Option<Kind>,
        thread: &JavaThread,
        name: &str,
    ) -> JavaHandle {
        let name = match (subject, kind) {
            (Subject::Entry(..), Some(kind)) => thread.of_entry(word(kind), name, "key").await.unwrap(),
            _ => name.to_owned(),
        };
        JavaHandle::of(&self.java, thread.clone(), kind, &name).await
    }
}

/// Asserts that the data in Redis does not depend on the number of servers.
fn compare(version: &str, on_one: &BTreeMap<String, Trace>, traces: &BTreeMap<String, Trace>) {
    for (what, trace) in traces {
        assert_eq!(trace, &on_one[what], "{version}, {what}: here, and on one server");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wake_each_other_with_a_replica_for_each_kind() {
    let one = Arc::new(Topology::One(Server::start()));
    let group = Arc::new(Group::start(3));
    for version in versions_for_all_kinds() {
        let version: &'static str = version.leak();
        let on_one = Bench::of(version, &one, &[], None).await.run(1).await;
        for (way, rounds) in [
            (MasterDiscovery::Sentinels, ROUNDS),
            (MasterDiscovery::Replicated, 1),
            (MasterDiscovery::MasterSlave, 1),
        ] {
            let topology = Arc::new(Topology::Group(group.clone(), way));
            let traces = Bench::of(version, &topology, &[], None).await.run(rounds).await;
            compare(version, &on_one, &traces);
        }
    }
}

/// The ways to send messages, as settings of each side. By default, Redisson shards them where the cluster can, as we
/// do. Before 3.22 it had no sharded messages.
fn message_modes(version: &str) -> Vec<(Option<bool>, &'static [&'static str])> {
    match version {
        _ if since(version, 3, 29) => vec![(None, &[]), (Some(false), &["shardedSubscriptionMode=OFF"])],
        _ if since(version, 3, 22) => vec![(None, &[])],
        _ => vec![(Some(false), &[])],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wake_each_other_in_a_cluster_for_each_kind() {
    let one = Arc::new(Topology::One(Server::start()));
    let cluster = Arc::new(Topology::Cluster(Cluster::start(3, 1)));
    for version in versions_for_all_kinds() {
        let version: &'static str = version.leak();
        let on_one = Bench::of(version, &one, &[], None).await.run(1).await;
        for (sharded, settings) in message_modes(version) {
            let bench = Bench::of(version, &cluster, settings, sharded).await;
            compare(version, &on_one, &bench.run(ROUNDS).await);
        }
    }
}

/// Each lock is taken by some Java threads and by as many Rust tasks, which add to a counter in two steps.
#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_exclude_each_other_in_a_sharded_cluster() {
    const EACH: usize = 8;
    let cluster = Arc::new(Topology::Cluster(Cluster::start(3, 1)));
    for version in versions_for_all_kinds().into_iter().filter(|version| since(version, 3, 38)) {
        let version: &'static str = version.leak();
        // These share one record. Each side takes them by turns.
        let mut of_one_record = vec![Kind::Reentrant, Kind::Fenced, Kind::Spin];
        of_one_record.extend(Some(Kind::NonReentrant).filter(|kind| kind.is_in(version)));
        let apart = [Kind::Fair, Kind::Write, Kind::Multi, Kind::Group, Kind::Semaphore, Kind::Permit];
        let crowds = apart.into_iter().map(|kind| vec![kind]).chain([of_one_record]);
        // A replica may report an old value of the counter.
        let settings = ["shardedSubscriptionMode=ON", "readMode=MASTER"];
        let bench = Bench::of(version, &cluster, &settings, Some(true)).await;
        let mut running = JoinSet::new();
        for (number, kinds) in crowds.enumerate() {
            let name = cluster.name_at(&format!("{version} {}", kinds[0]), number);
            let counter = format!("counted {name}");
            kinds[0].make(cluster.at(&name), &name);
            let counting = redis::Client::open(cluster.at(&counter).url()).unwrap();
            let mut crowd = JoinSet::new();
            for n in 0..4 {
                let kind = kinds[n % kinds.len()];
                let thread = bench.java.thread(&format!("{}-{n}", kind).replace(' ', "-"));
                JavaHandle::of(&bench.java, thread.clone(), Some(kind), &name).await;
                let hold = Duration::from_millis(1);
                let looping = thread.loop_(word(kind), &name, EACH as u32, &counter, hold);
                crowd.spawn(async move { _ = looping.await.unwrap() });
                let lock = kind.of(&bench.client, &name);
                let mut counting = counting.get_multiplexed_async_connection().await.unwrap();
                let counter = counter.clone();
                crowd.spawn(async move {
                    for _ in 0..EACH {
                        let held = lock.lock().await.unwrap();
                        let before: Option<usize> =
                            redis::cmd("GET").arg(&counter).query_async(&mut counting).await.unwrap();
                        tokio::time::sleep(hold).await;
                        let after = before.unwrap_or(0) + 1;
                        redis::cmd("SET").arg(&counter).arg(after).exec_async(&mut counting).await.unwrap();
                        held.unlock().await.unwrap();
                    }
                });
            }
            running.spawn(async move {
                crowd.join_all().await;
                // Where Java's loop takes the hold for a shared one, it only checks that nobody adds to the counter meanwhile.
                let counters = if word(kinds[0]).ends_with("semaphore") { 4 } else { 8 };
                (kinds[0], counter, counters * EACH)
            });
        }
        for (kind, counter, expected) in running.join_all().await {
            let mut cli = cluster.at(&counter).cli();
            let counted: usize = redis::cmd("GETDEL").arg(&counter).query(&mut cli).unwrap();
            assert_eq!(counted, expected, "{version}, {kind}: increments were lost");
        }
        let mut subscriptions = cluster.subscriptions();
        eventually(|| subscriptions.count("") == 0).await;
    }
}

/// The members are on a single server, on a server under sentinels, and in a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_red_lock_spans_servers_of_all_topologies() {
    const LEASE: Duration = Duration::from_secs(2);
    let topologies = [
        Topology::One(Server::start()),
        Topology::Group(Arc::new(Group::start(3)), MasterDiscovery::Sentinels),
        Topology::Cluster(Cluster::start(3, 1)),
    ];
    let mut clients = Vec::new();
    for topology in &topologies {
        clients.push(Client::builder().watchdog_timeout(LEASE).connect(topology.url()).await.unwrap());
    }
    for version in versions_for_all_kinds() {
        let mut peers = Vec::new();
        for topology in &topologies {
            peers.push(Java::get(&version).client_at(&topology.for_java(), 0).await);
        }
        let members: Vec<_> = peers.iter().map(|peer| (peer, "plain", "n")).collect();
        let thread = peers[0].thread("t");
        thread.combine("red", "r", &members).await.unwrap();
        let red = RedLock::new(clients.iter().map(|client| client.lock("n"))).unwrap();
        let red = red.with_node_timeout(LEASE);
        let held =
            |cli: &Topology| -> bool { redis::cmd("EXISTS").arg("n").query(&mut cli.at("n").cli()).unwrap() };
        // A red lock may be acquired before the last of its members is free.
        let by_most = || topologies.iter().filter(|at| held(at)).count() >= 2;

        thread.lock("red", "r").await.unwrap();
        assert!(by_most(), "{version}");
        assert!(red.try_lock().await.is_ok_and(|guard| guard.is_none()), "{version}");
        let waiting = tokio::spawn({
            let red = red.clone();
            async move { red.lock().await.unwrap() }
        });
        tokio::time::sleep(PROBED).await;
        assert!(!waiting.is_finished(), "{version}");
        thread.unlock("red", "r").await.unwrap();
        // The servers count a lease after the client connected to them.
        let guard = tokio::time::timeout(LEASE * 5, waiting).await.expect("it is free").unwrap();
        assert!(by_most(), "{version}");
        assert!(!thread.try_lock("red", "r").await.unwrap(), "{version}");
        let waiting = thread.lock("red", "r");
        guard.unlock().await.unwrap();
        in_time("Java's turn", waiting).await.unwrap();
        thread.unlock("red", "r").await.unwrap();
        eventually(|| !topologies.iter().any(held)).await;
    }
}
