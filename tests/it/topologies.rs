//! Java and Rust at the same locks beside a replica (under sentinels, replicated, master and slave) and in a cluster, where
//! messages are sharded and where they are not: every kind, whoever holds and whoever waits. What is beside that on one server
//! is in `kinds_interop` and its like.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redisson_lock::{Client, Codec, CountDownLatch, Kryo5, Owner, RedLock};

use tokio::task::JoinSet;

use crate::support::clock::monotonic_ns;
use crate::support::cluster::Cluster;
use crate::support::contender::{Contender, Held, Party};
use crate::support::group::Group;
use crate::support::java::objects::Argument::{Int, Long, Text, Time};
use crate::support::java::{JavaClient, JavaThread, Pending};
use crate::support::keyspace::Look;
use crate::support::kind::{Kind, each, in_time, is_idle, of_kinds};
use crate::support::topology::{Topology, Way};
use crate::support::{Java, Server, eventually, fair_allowance, median, since};

/// In each direction.
const ROUNDS: usize = 5;
/// By then we have glanced at a lock after 10, 30, 70 and 150 ms; the next glance is as far away.
const GLANCED: Duration = Duration::from_millis(170);
/// A wake-up by message is below this also on a busy machine, with the replicas that are asked on both sides; the next glance is
/// above, and the end of a lease far above.
const WOKEN: Duration = Duration::from_millis(100);
/// The longest step of the back-off of a spin lock, here and there.
const LONGEST_STEP: Duration = Duration::from_millis(128);
const ALLOWANCE: Duration = Duration::from_secs(300);

/// Who is woken by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    /// The holder's kind, and the waiter's.
    Of(Kind, Kind),
    /// The same of what belongs to a key of a map.
    Entry(Kind, Kind),
    Latch,
}

/// Those that this Redisson has.
fn subjects(version: &str) -> Vec<Subject> {
    let known = |kind: Kind| match kind {
        Kind::Multi | Kind::Semaphore => true,
        Kind::Group => since(version, 3, 38),
        // Before that ids were texts.
        Kind::Permit => since(version, 3, 17),
        _ => kind.is_in(version),
    };
    let rivals: Vec<_> = Kind::rivals().filter(|(holder, _)| known(*holder)).collect();
    let of_entries = [Kind::Reentrant, Kind::Fair, Kind::Read, Kind::Write, Kind::Semaphore, Kind::Permit];
    // Before that, keys were hashed as another codec has them.
    let hashed_alike = since(version, 3, 38);
    let entries = rivals.iter().filter(|(holder, _)| hashed_alike && of_entries.contains(holder));
    let entries: Vec<_> = entries.map(|&(holder, waiter)| Subject::Entry(holder, waiter)).collect();
    let kinds = rivals.into_iter().map(|(holder, waiter)| Subject::Of(holder, waiter));
    kinds.chain(entries).chain([Subject::Latch]).collect()
}

impl Subject {
    /// In a text that is no beginning of another's.
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
        if self.listens() { WOKEN } else { WOKEN + LONGEST_STEP }
    }

    /// What is in Redis can be compared, because it is made of names and leases alone.
    fn is_plain(self) -> bool {
        let apart = [Kind::Group, Kind::Multi, Kind::Permit];
        self.kinds().is_none_or(|(holder, _)| !apart.contains(&holder))
    }
}

/// As the Java peer calls it.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => "group",
        Kind::Multi => "multi",
        Kind::Semaphore => "semaphore",
        Kind::Permit => "permitsemaphore",
        _ => kind.java(),
    }
}

/// One subject under one name, as Java has it.
struct Javas {
    thread: JavaThread,
    name: String,
}

impl Javas {
    /// Ready to be held as that kind.
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

    /// Takes it, or waits until it is open.
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

    /// `entered` is what it got when it entered.
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

/// The same as Rust has it.
#[derive(Clone)]
enum Ours {
    Owned(Contender),
    Latch(CountDownLatch),
}

enum Had {
    Held(Held),
    /// Who closed the latch.
    Closed(CountDownLatch),
    /// Who went through.
    Nothing,
}

impl Ours {
    async fn hold(&self) -> Had {
        match self {
            Self::Owned(lock) => Had::Held(lock.lock().await.unwrap()),
            Self::Latch(latch) => {
                assert!(latch.try_set_count(1).await.unwrap());
                Had::Closed(latch.clone())
            }
        }
    }

    async fn enter(&self) -> Had {
        match self {
            Self::Owned(_) => self.hold().await,
            Self::Latch(latch) => {
                latch.wait().await.unwrap();
                Had::Nothing
            }
        }
    }
}

impl Had {
    async fn leave(self) {
        match self {
            Self::Held(held) => held.unlock().await.unwrap(),
            Self::Closed(latch) => latch.count_down().await.unwrap(),
            Self::Nothing => {}
        }
    }
}

/// What is in Redis step by step, of each subject in each direction.
type Trace = Vec<(&'static str, BTreeMap<String, String>)>;

/// Two clients at one set of servers.
struct Bench {
    version: &'static str,
    topology: Arc<Topology>,
    java: JavaClient,
    client: Party,
    /// What names begin with.
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
        let client = Party::from(builder.connect(topology.url()).await.unwrap());
        let url = topology.url();
        let base = format!("{version} {} {sharded:?}", url.split(':').next().unwrap_or_default());
        Arc::new(Self { version, topology: topology.clone(), java, client, base })
    }

    /// All subjects, several at a time; what was seen of them.
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
        let mut ears = self.topology.ears();
        eventually(|| ears.heard("") == 0).await;
        eventually(|| is_idle(&self.client)).await;
        Arc::into_inner(traces).unwrap().into_inner().unwrap()
    }

    async fn wake_ups(&self, subject: Subject, to_rust: bool, rounds: usize) -> Trace {
        let (mut took, mut trace) = (Vec::new(), Trace::new());
        let thread = self.java.thread(&format!("{} {to_rust}", subject.name()).replace(' ', "-"));
        let java_text = thread.owner().await;
        let owner = Owner::unique();
        let our_text = format!("{}:owner-{}", self.client.id(), owner.as_str());
        let mut ears = self.topology.ears();
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
            let look = Look {
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
                    eventually(|| ears.heard(&name) == 1).await;
                }
                tokio::time::sleep(GLANCED).await;
                see("Rust waits");
                let left = javas.leave(holder, &entered).await;
                let (had, at) = in_time("Rust's turn", waiting).await.unwrap();
                took.push(at.saturating_sub(left.started_ns));
                left.unwrap();
                see("Rust holds");
                had.leave().await;
            } else {
                let had = ours.hold().await;
                see("Rust holds");
                let mut waiting = javas.enter(waiter);
                waiting.started().await;
                if subject.listens() {
                    eventually(|| ears.heard(&name) == 1).await;
                }
                // By some messages Redisson wakes only threads that sleep already, which no event tells.
                tokio::time::sleep(Duration::from_millis(30)).await;
                see("Java waits");
                let leaving = monotonic_ns();
                had.leave().await;
                let entered = in_time("Java's turn", waiting).await;
                took.push(entered.done_ns.saturating_sub(leaving));
                let entered = entered.unwrap();
                see("Java holds");
                if waiter.is_some() {
                    javas.leave(waiter, &entered).await.unwrap();
                }
            }
            see("nobody does");
            eventually(|| ears.heard(&name) == 0).await;
        }
        let (median, worst) = (median(&mut took), Duration::from_nanos(*took.last().unwrap()));
        let what = format!("{}, {}, to Rust: {to_rust}", self.base, subject.name());
        println!("{what}: median {median:?}, worst {worst:?}");
        assert!(rounds == 1 || median < subject.bound(), "{what}: {median:?}, {worst:?}");
        trace
    }

    fn ours(&self, subject: Subject, kind: Option<Kind>, name: &str, owner: &Owner) -> Ours {
        let entry = || self.client.map_entry(name, Kryo5.encode("key"));
        let ours = match (subject, kind.unwrap_or(Kind::Reentrant)) {
            (Subject::Latch, _) => return Ours::Latch(self.client.count_down_latch(name)),
            (Subject::Of(..), kind) => kind.of(&self.client, name),
            (_, Kind::Reentrant) => Contender::Lock(entry().lock()),
            (_, Kind::Fair) => Contender::Lock(entry().fair_lock()),
            (_, Kind::Read) => Contender::Lock(entry().read_write_lock().read().clone()),
            (_, Kind::Write) => Contender::Lock(entry().read_write_lock().write().clone()),
            (_, Kind::Semaphore) => Contender::Semaphore(entry().semaphore()),
            (_, Kind::Permit) => Contender::Permit(entry().expirable_semaphore()),
            (_, other) => panic!("no key of a map has a {other}"),
        };
        Ours::Owned(ours.with_owner(owner))
    }

    async fn javas(&self, subject: Subject, kind: Option<Kind>, thread: &JavaThread, name: &str) -> Javas {
        let name = match (subject, kind) {
            (Subject::Entry(..), Some(kind)) => thread.of_entry(word(kind), name, "key").await.unwrap(),
            _ => name.to_owned(),
        };
        Javas::of(&self.java, thread.clone(), kind, &name).await
    }
}

/// Neither can tell from what is in Redis how many servers there are.
fn compare(version: &str, on_one: &BTreeMap<String, Trace>, traces: &BTreeMap<String, Trace>) {
    for (what, trace) in traces {
        assert_eq!(trace, &on_one[what], "{version}, {what}: here, and on one server");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wake_each_other_beside_a_replica_with_each_kind() {
    let one = Arc::new(Topology::One(Server::start()));
    let group = Arc::new(Group::start(3));
    for version in of_kinds() {
        let version: &'static str = version.leak();
        let on_one = Bench::of(version, &one, &[], None).await.run(1).await;
        for (way, rounds) in [(Way::Sentinels, ROUNDS), (Way::Replicated, 1), (Way::MasterSlave, 1)] {
            let topology = Arc::new(Topology::Group(group.clone(), way));
            let traces = Bench::of(version, &topology, &[], None).await.run(rounds).await;
            compare(version, &on_one, &traces);
        }
    }
}

/// How the messages of both sides can be, as settings of each. By itself Redisson has them sharded where the cluster can, as we
/// do; but before 3.22 it knew no such messages.
fn ways(version: &str) -> Vec<(Option<bool>, &'static [&'static str])> {
    match version {
        _ if since(version, 3, 29) => vec![(None, &[]), (Some(false), &["shardedSubscriptionMode=OFF"])],
        _ if since(version, 3, 22) => vec![(None, &[])],
        _ => vec![(Some(false), &[])],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_wake_each_other_in_a_cluster_with_each_kind() {
    let one = Arc::new(Topology::One(Server::start()));
    let cluster = Arc::new(Topology::Cluster(Cluster::start(3, 1)));
    for version in of_kinds() {
        let version: &'static str = version.leak();
        let on_one = Bench::of(version, &one, &[], None).await.run(1).await;
        for (sharded, settings) in ways(version) {
            let bench = Bench::of(version, &cluster, settings, sharded).await;
            compare(version, &on_one, &bench.run(ROUNDS).await);
        }
    }
}

/// Each is taken by some Java threads and by as many Rust tasks, which add to a counter in two steps.
#[tokio::test(flavor = "multi_thread")]
async fn mixed_crowds_count_exactly_in_a_sharded_cluster() {
    const EACH: usize = 8;
    let cluster = Arc::new(Topology::Cluster(Cluster::start(3, 1)));
    for version in of_kinds().into_iter().filter(|version| since(version, 3, 38)) {
        let version: &'static str = version.leak();
        // Of one record; each side takes them in turn.
        let mut of_one_record = vec![Kind::Reentrant, Kind::Fenced, Kind::Spin];
        of_one_record.extend(Some(Kind::NonReentrant).filter(|kind| kind.is_in(version)));
        let apart = [Kind::Fair, Kind::Write, Kind::Multi, Kind::Group, Kind::Semaphore, Kind::Permit];
        let crowds = apart.into_iter().map(|kind| vec![kind]).chain([of_one_record]);
        // What a replica says of the counter may be of before.
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
                Javas::of(&bench.java, thread.clone(), Some(kind), &name).await;
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
                // Java's loop only looks at the counter where it takes it for shared: that nobody adds to it meanwhile.
                let counters = if word(kinds[0]).ends_with("semaphore") { 4 } else { 8 };
                (kinds[0], counter, counters * EACH)
            });
        }
        for (kind, counter, expected) in running.join_all().await {
            let mut cli = cluster.at(&counter).cli();
            let counted: usize = redis::cmd("GETDEL").arg(&counter).query(&mut cli).unwrap();
            assert_eq!(counted, expected, "{version}, {kind}: increments were lost");
        }
        let mut ears = cluster.ears();
        eventually(|| ears.heard("") == 0).await;
    }
}

/// Its servers are a single one, one under sentinels, and a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_red_lock_spans_servers_of_all_topologies() {
    const LEASE: Duration = Duration::from_secs(2);
    let topologies = [
        Topology::One(Server::start()),
        Topology::Group(Arc::new(Group::start(3)), Way::Sentinels),
        Topology::Cluster(Cluster::start(3, 1)),
    ];
    let mut clients = Vec::new();
    for topology in &topologies {
        clients.push(Client::builder().watchdog_timeout(LEASE).connect(topology.url()).await.unwrap());
    }
    for version in of_kinds() {
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
        // Who is quick gets it while the last of the members is not free yet.
        let by_most = || topologies.iter().filter(|at| held(at)).count() >= 2;

        thread.lock("red", "r").await.unwrap();
        assert!(by_most(), "{version}");
        assert!(red.try_lock().await.is_ok_and(|guard| guard.is_none()), "{version}");
        let waiting = tokio::spawn({
            let red = red.clone();
            async move { red.lock().await.unwrap() }
        });
        tokio::time::sleep(GLANCED).await;
        assert!(!waiting.is_finished(), "{version}");
        thread.unlock("red", "r").await.unwrap();
        // Once they count, which is a lease after they were met.
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
