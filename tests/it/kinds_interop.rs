//! A Rust task and a Java thread on one lock of each kind, for every version of Redisson that has it.
//!
//! Each side wakes the other, and the data in Redis does not depend on the side of a holder or waiter.

use std::collections::BTreeMap;
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, LockGuard, Owner};
use tokio::task::JoinHandle;

use crate::support::java::{JavaClient, JavaThread, Pending};
use crate::support::keyspace::KeyspaceView;
use crate::support::kind::{
    Kind, assert_nothing_left, each, in_time, scripts_reach, subscribed, with_versions,
};
use crate::support::{Java, Server, WOKEN, WakeUps, clock::monotonic_ns, fair_allowance};

const NAME: &str = "n";
const ROUNDS: usize = 30;
/// The longest back-off step of a spin lock, in Rust and in Java.
const LONGEST_STEP: Duration = Duration::from_millis(128);

fn wake_up_limit(kind: Kind) -> Duration {
    if kind.publishes() { WOKEN } else { WOKEN + LONGEST_STEP }
}

fn rivals() -> Vec<(&'static str, (Kind, Kind))> {
    with_versions(Kind::rivals(), |(holder, _)| holder)
}

/// Waits until one waiter has subscribed or, for a kind without messages, has made several attempts.
async fn wait_for_waiter(waiter: Kind, server: &Server, scripts_before: u64) {
    if waiter.publishes() {
        subscribed(server, 1).await;
    } else {
        scripts_reach(server, scripts_before + 3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_is_woken_by_javas_release_of_each_kind() {
    each(with_versions([()], |()| Kind::Reentrant), |(version, ())| async move {
        for (_, (holder, waiter)) in rivals().into_iter().filter(|(of, _)| *of == version) {
            measure_javas_releases(version, holder, waiter).await;
        }
    })
    .await;
}

async fn measure_javas_releases(version: &str, holder: Kind, waiter: Kind) {
    let server = Server::start();
    let java = Java::get(version).client(&server, 0).await.thread("t");
    let client = Client::connect(server.url()).await.unwrap();
    let mut took = WakeUps::new();
    for _ in 0..ROUNDS {
        java.lock(holder.java(), NAME).await.unwrap();
        let lock = waiter.lock(&client, NAME);
        let before = server.scripts();
        let waiting = tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            let entered = monotonic_ns();
            guard.unlock().await.unwrap();
            entered
        });
        wait_for_waiter(waiter, &server, before).await;
        if !waiter.is_queued() {
            // The client has probed the holder after 10, 30 and 70 ms; its next probe comes much later.
            tokio::time::sleep(Duration::from_millis(85)).await;
        }
        let unlocked = java.unlock(holder.java(), NAME).await;
        took.add(unlocked.started_ns, in_time("the waiter's hold", waiting).await.unwrap());
        unlocked.unwrap();
        subscribed(&server, 0).await;
    }
    let what = format!("{version}: Java's {holder} to Rust's {waiter}");
    took.assert_below(wake_up_limit(waiter), &what);
}

#[tokio::test(flavor = "multi_thread")]
async fn java_is_woken_by_rusts_release_of_each_kind() {
    for (version, (holder, waiter)) in rivals() {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        let mut took = WakeUps::new();
        for _ in 0..ROUNDS {
            let guard = holder.lock(&client, NAME).lock().await.unwrap();
            let before = server.scripts();
            let mut waiting = java.lock(waiter.java(), NAME);
            waiting.started().await;
            wait_for_waiter(waiter, &server, before).await;
            if holder.message() == "1" {
                // With this message Redisson wakes only threads that already sleep. A thread that is about to sleep is not
                // woken until the record's lease is over.
                java.asleep().await;
            }
            let unlocking = monotonic_ns();
            guard.unlock().await.unwrap();
            let entered = in_time("the waiter's hold", waiting).await;
            took.add(unlocking, entered.done_ns);
            entered.unwrap();
            java.unlock(waiter.java(), NAME).await.unwrap();
            subscribed(&server, 0).await;
        }
        let what = format!("{version}: Rust's {holder} to Java's {waiter}");
        took.assert_below(wake_up_limit(waiter), &what);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_sees_the_holds_and_counts_of_the_other() {
    let cases = with_versions(Kind::ALL, |kind| kind);
    each(cases, |(version, kind)| async move {
        let server = Server::start();
        let java_client = Java::get(version).client(&server, 0).await;
        let (java, other) = (java_client.thread("t"), java_client.thread("u"));
        let client = Client::connect(server.url()).await.unwrap();
        let (lock, rival) = (kind.lock(&client, NAME), kind.rival());
        let levels = if kind.is_reentrant() { 3 } else { 1 };

        for _ in 0..levels {
            java.lock(kind.java(), NAME).await.unwrap();
        }
        let holder = lock.holder().await.unwrap().expect("Java holds it");
        assert_eq!(lock.inspect().await.unwrap().holders, std::slice::from_ref(&holder), "{version}, {kind}");
        assert_eq!((holder.count(), holder.client_id()), (levels, java_client.uuid()), "{version}, {kind}");
        let owner = java.owner().await;
        let suffix = if kind == Kind::Write { ":write" } else { "" };
        assert_eq!(holder.owner(), format!("{owner}{suffix}"), "{version}, {kind}");
        assert!(lock.is_locked().await.unwrap() && !lock.is_held().await.unwrap(), "{version}, {kind}");
        assert_eq!(lock.hold_count().await.unwrap(), 0, "{version}, {kind}");
        assert!(rival.lock(&client, NAME).try_lock().await.unwrap().is_none(), "{version}, {kind}");
        for _ in 0..levels {
            java.unlock(kind.java(), NAME).await.unwrap();
        }
        assert!(
            !lock.is_locked().await.unwrap() && lock.holder().await.unwrap().is_none(),
            "{version}, {kind}"
        );

        let mut guards = Vec::new();
        for _ in 0..levels {
            guards.push(lock.lock().await.unwrap());
        }
        while let Some(guard) = guards.pop() {
            assert!(java.is_locked(kind.java(), NAME).await.unwrap(), "{version}, {kind}");
            assert!(!java.is_held(kind.java(), NAME).await.unwrap(), "{version}, {kind}");
            assert!(!java.try_lock(rival.java(), NAME).await.unwrap(), "{version}, {kind}");
            let ttl = other.remain_ttl(kind.java(), NAME).await.unwrap();
            assert!(ttl.is_none_or(|ttl| (28_000..=30_000).contains(&ttl)), "{version}, {kind}: {ttl:?}");
            guard.unlock().await.unwrap();
        }
        assert!(!java.is_locked(kind.java(), NAME).await.unwrap(), "{version}, {kind}");
        assert!(java.try_lock(rival.java(), NAME).await.unwrap(), "{version}, {kind}");
        java.unlock(rival.java(), NAME).await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_of_both_sides_share_and_keep_writers_out() {
    for (version, _) in with_versions([()], |()| Kind::Read) {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await;
        let client = Client::connect(server.url()).await.unwrap();
        let lock = client.read_write_lock(NAME);
        let (t, u) = (java.thread("t"), java.thread("u"));
        t.lock("read", NAME).await.unwrap();
        let ours = lock.read().try_lock().await.unwrap().expect("readers share");
        assert!(u.try_lock("read", NAME).await.unwrap(), "{version}");
        let writer = lock.write().with_owner(&Owner::unique());
        // Whichever reader leaves, the remaining readers keep writers out.
        t.unlock("read", NAME).await.unwrap();
        assert!(writer.try_lock().await.unwrap().is_none(), "{version}");
        assert!(!t.try_lock("write", NAME).await.unwrap(), "{version}");
        u.unlock("read", NAME).await.unwrap();
        assert!(writer.try_lock().await.unwrap().is_none(), "{version}");
        assert!(!t.try_lock("write", NAME).await.unwrap(), "{version}");
        assert_eq!(ours.state(), HoldState::Held);
        t.lock("read", NAME).await.unwrap();
        ours.unlock().await.unwrap();
        assert!(writer.try_lock().await.unwrap().is_none(), "{version}");
        t.unlock("read", NAME).await.unwrap();
        writer.try_lock().await.unwrap().expect("no reader is left").unlock().await.unwrap();
    }
}

/// A holder or waiter of either side.
enum ClientSet<'a> {
    Java(&'a JavaClient, &'static str),
    Rust(&'a Client, Owner),
}

enum PendingHold {
    Java(Pending<()>),
    Rust(JoinHandle<LockGuard>),
}

impl ClientSet<'_> {
    async fn owner_id(&self) -> String {
        match self {
            Self::Java(client, thread) => client.thread(thread).owner().await,
            Self::Rust(client, owner) => format!("{}:owner-{}", client.id(), owner.as_str()),
        }
    }

    fn enter(&self, kind: Kind) -> PendingHold {
        match self {
            Self::Java(client, thread) => PendingHold::Java(client.thread(thread).lock(kind.java(), NAME)),
            Self::Rust(client, owner) => {
                let lock = kind.lock(client, NAME).with_owner(owner);
                PendingHold::Rust(tokio::spawn(async move { lock.lock().await.unwrap() }))
            }
        }
    }

    /// Returns once a waiter of this side can be woken by every message.
    async fn asleep(&self) {
        if let Self::Java(client, thread) = self {
            client.thread(thread).asleep().await;
        }
    }

    async fn hold(&self, kind: Kind) -> Held {
        self.enter(kind).entered(self, kind).await
    }
}

impl PendingHold {
    async fn entered(self, party: &ClientSet<'_>, kind: Kind) -> Held {
        match (self, party) {
            (Self::Rust(entering), _) => Held::Rust(entering.await.unwrap()),
            (Self::Java(entering), ClientSet::Java(client, thread)) => {
                entering.await.unwrap();
                Held::Java(client.thread(thread), kind)
            }
            _ => unreachable!("it is the same party"),
        }
    }
}

enum Held {
    Java(JavaThread, Kind),
    Rust(LockGuard),
}

impl Held {
    async fn leave(self) {
        match self {
            Self::Java(thread, kind) => thread.unlock(kind.java(), NAME).await.unwrap(),
            Self::Rust(guard) => guard.unlock().await.unwrap(),
        }
    }
}

/// For each of the two parties, whether it is a Java thread.
const SIDES: [[bool; 2]; 4] = [[true, true], [true, false], [false, true], [false, false]];

/// A server with clients of both sides.
struct Bench {
    version: &'static str,
    server: Server,
    /// One client for each party, because two parties of one client leave fewer traces in Redis.
    rust: [Client; 2],
    java: JavaClient,
    /// The wait timeout of fair locks. It is fixed in older versions and a setting in newer ones.
    allowance: Duration,
}

impl Bench {
    async fn start(version: &'static str) -> Self {
        let server = Server::start();
        let allowance = fair_allowance(version, Duration::from_secs(300)).1;
        let rust = || Client::builder().fair_lock_wait_timeout(allowance).connect(server.url());
        let rust = [rust().await.unwrap(), rust().await.unwrap()];
        let java = Java::get(version).client(&server, 0).await;
        Self { version, server, rust, java, allowance }
    }

    fn parties(&self, is_java: [bool; 2]) -> [ClientSet<'_>; 2] {
        [0, 1].map(|n| match is_java[n] {
            true => ClientSet::Java(&self.java, ["a", "b"][n]),
            false => ClientSet::Rust(&self.rust[n], Owner::new("job").unwrap()),
        })
    }

    /// Checks that the data after each step of `A` and `B` is the same, whichever of them are Java threads.
    async fn same_on_both_sides(
        &self,
        what: &str,
        steps: impl AsyncFn(&Server, [&ClientSet<'_>; 2], &mut dyn FnMut(&str)),
    ) {
        let mut traces = Vec::new();
        for sides in SIDES {
            let [a, b] = self.parties(sides);
            let (id_a, id_b) = (a.owner_id().await, b.owner_id().await);
            let snapshot = KeyspaceView {
                owners: &[(&id_a, "A"), (&id_b, "B")],
                lease_ms: 30_000,
                allowance_ms: self.allowance.as_millis() as i64,
            };
            let mut trace: Vec<(String, BTreeMap<String, String>)> = Vec::new();
            let mut record = |step: &str| trace.push((step.to_owned(), snapshot.at(&self.server)));
            steps(&self.server, [&a, &b], &mut record).await;
            traces.push((sides, trace));
            subscribed(&self.server, 0).await;
            redis::cmd("FLUSHALL").exec(&mut self.server.cli()).unwrap();
        }
        let (_, among_java) = &traces[0];
        for (sides, trace) in &traces[1..] {
            assert_eq!(trace, among_java, "{}, {what}: {sides:?} differs from Java alone", self.version);
        }
    }
}

/// One bench for each version.
#[derive(Default)]
struct Benches(BTreeMap<&'static str, Bench>);

impl Benches {
    async fn of(&mut self, version: &'static str) -> &Bench {
        if !self.0.contains_key(version) {
            self.0.insert(version, Bench::start(version).await);
        }
        &self.0[version]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_and_waiters_of_both_sides_leave_the_same_data() {
    let mut benches = Benches::default();
    for (version, (holder, waiter)) in rivals() {
        let bench = benches.of(version).await;
        bench
            .same_on_both_sides(&format!("{holder} and {waiter}"), async |server, [a, b], snapshot| {
                let held = a.hold(holder).await;
                snapshot("one holds");
                let before = server.scripts();
                let entering = b.enter(waiter);
                wait_for_waiter(waiter, server, before).await;
                if holder.message() == "1" {
                    scripts_reach(server, before + 2).await;
                    b.asleep().await;
                }
                snapshot("another waits");
                held.leave().await;
                let held = entering.entered(b, waiter).await;
                snapshot("the other holds");
                held.leave().await;
                snapshot("free");
            })
            .await;
    }
}

/// Read locks are left out: the library always writes a count of 1, whereas Redisson counts re-entries.
#[tokio::test(flavor = "multi_thread")]
async fn re_entries_of_both_sides_leave_the_same_data() {
    let kinds = [Kind::Reentrant, Kind::Fair, Kind::Spin, Kind::Write];
    let mut benches = Benches::default();
    for (version, kind) in with_versions(kinds, |kind| kind) {
        let bench = benches.of(version).await;
        // Redisson's writer adds one lease per re-entry.
        let same_ttl = kind != Kind::Write;
        bench
            .same_on_both_sides(&format!("a {kind} again"), async |_, [a, _], snapshot| {
                let outer = a.hold(kind).await;
                snapshot("once");
                let inner = a.hold(kind).await;
                if same_ttl {
                    snapshot("twice");
                }
                inner.leave().await;
                if same_ttl {
                    snapshot("once again");
                }
                outer.leave().await;
                snapshot("free");
                let held = a.hold(kind).await;
                snapshot("once more");
                held.leave().await;
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_downgrades_of_both_sides_leave_the_same_data() {
    for (version, ()) in with_versions([()], |()| Kind::Read) {
        let bench = Bench::start(version).await;
        bench
            .same_on_both_sides("readers and a downgrade", async |_, [a, b], snapshot| {
                let read = a.hold(Kind::Read).await;
                let other_reader = b.hold(Kind::Read).await;
                snapshot("two read");
                read.leave().await;
                snapshot("one reads");
                other_reader.leave().await;
                snapshot("free");
                let write = a.hold(Kind::Write).await;
                let read = a.hold(Kind::Read).await;
                snapshot("a writer reads");
                write.leave().await;
                snapshot("the writer has downgraded");
                let other_reader = b.hold(Kind::Read).await;
                snapshot("another reads, too");
                read.leave().await;
                other_reader.leave().await;
                snapshot("free");
                let write = a.hold(Kind::Write).await;
                a.hold(Kind::Read).await.leave().await;
                snapshot("the writer has read");
                write.leave().await;
                snapshot("free");
            })
            .await;
    }
}

/// No key of the library stays behind when Java has used the lock, too. Java's own unlock latches are ignored.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_left_after_java_used_the_lock() {
    each(rivals(), |(version, (holder, waiter))| async move {
        let server = Server::start();
        let java = Java::get(version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        for _ in 0..3 {
            java.lock(holder.java(), NAME).await.unwrap();
            let lock = waiter.lock(&client, NAME);
            let waited = lock.try_lock_for(Duration::from_millis(300)).await;
            // A slow server may not answer within so short a wait.
            let gave_up = matches!(waited, Ok(None) | Err(Error::TimedOut { .. }));
            assert!(gave_up, "{version}, {waiter}: {waited:?}");
            java.unlock(holder.java(), NAME).await.unwrap();
            drop(lock.lock().await.unwrap());
        }
        let mut cli = server.cli();
        let latches: Vec<String> = redis::cmd("KEYS").arg("*latch*").query(&mut cli).unwrap();
        for latch in latches {
            redis::cmd("DEL").arg(latch).exec(&mut cli).unwrap();
        }
        assert_nothing_left(waiter, NAME, &server, &[&client]).await;
    })
    .await;
}
