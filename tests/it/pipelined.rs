//! Pipelined hand-off: the holder changes first, and the record follows. These are the promises of this mode, and their limits.

use futures_util::poll;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redisson_lock::{Client, ClientBuilder, HandOff, HoldState, Lock, LockGuard, LossReason, Owner};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::proxy::{Direction, Proxy, ProxyLink};
use crate::support::raw::changes;
use crate::support::{FaultyClient, Java, Server, Stopwatch, eventually, subscribers, versions};

struct Bench {
    server: Server,
    client: Client,
}

impl Bench {
    /// No series of hand-offs ends because it has lasted long. A release would then wait for a reply.
    fn long() -> HandOff {
        const LONG: Duration = Duration::from_secs(20);
        HandOff::new().max_time(LONG).max_time_alone(LONG)
    }

    async fn start() -> Self {
        Self::with(Self::long()).await
    }

    async fn with(hand_off: HandOff) -> Self {
        let server = Server::start();
        let builder = Client::builder().hand_off(hand_off.pipelined(true));
        let client = builder.connect(server.url()).await.unwrap();
        // Load the scripts, so that each later request is one send.
        let bench = Self { server, client };
        let [a, b] = bench.owners();
        let guard = a.lock().await.unwrap();
        let next = bench.wait(&b).await;
        guard.unlock().await.unwrap();
        next.await.unwrap().unlock().await.unwrap();
        bench
    }

    /// The third value carries the commands. No request times out.
    async fn behind_proxy(builder: ClientBuilder) -> (Self, Proxy, ProxyLink) {
        let builder = builder.hand_off(Self::long().pipelined(true));
        let FaultyClient { server, proxy, link, client, .. } = FaultyClient::patient_with(builder).await;
        (Self { server, client }, proxy, link)
    }

    fn owners<const N: usize>(&self) -> [Lock; N] {
        std::array::from_fn(|n| {
            self.client.lock("n").with_owner(&Owner::new(format!("{}", char::from(b'a' + n as u8))).unwrap())
        })
    }

    /// Starts a waiter, which is queued once this returns.
    async fn wait(&self, lock: &Lock) -> JoinHandle<LockGuard> {
        let (lock, (standing, stands)) = (lock.clone(), tokio::sync::oneshot::channel());
        let waiting = tokio::spawn(async move {
            let mut taking = std::pin::pin!(lock.lock());
            // The first poll enters the queue.
            let first = poll!(taking.as_mut());
            standing.send(()).unwrap();
            match first {
                std::task::Poll::Ready(guard) => guard.unwrap(),
                std::task::Poll::Pending => taking.await.unwrap(),
            }
        });
        stands.await.unwrap();
        waiting
    }

    fn record(&self) -> HashMap<String, u64> {
        redis::cmd("HGETALL").arg("n").query(&mut self.server.cli()).unwrap()
    }

    async fn record_names(&self, guard: &LockGuard, count: u64) {
        let expected = HashMap::from([(guard.owner().to_owned(), count)]);
        eventually(|| self.record() == expected).await;
    }
}

/// Holders exclude each other, and many holds share a round trip. The round trip is slowed down, because the number of
/// holds that it has room for depends on the client's speed.
#[tokio::test(flavor = "multi_thread")]
async fn many_holds_share_a_round_trip_and_exclude_each_other() {
    const TASKS: u64 = 16;
    const EACH: u64 = 1_000;
    let bench = Bench::start().await;
    let proxy = Proxy::start(bench.server.port()).await;
    let hand_off = HandOff::new().pipelined(true);
    let client = Client::builder().hand_off(hand_off).connect(proxy.url()).await.unwrap();
    proxy.open_links().iter().for_each(|link| link.delay(Direction::ToClient, Duration::from_millis(5)));
    let counter = Arc::new(AtomicU64::new(0));
    let before = bench.server.scripts();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, counter) = (client.lock("n"), counter.clone());
        tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = lock.lock().await.unwrap();
                // In two steps, with room for others between them.
                let seen = counter.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::Relaxed);
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(counter.load(Ordering::Relaxed), TASKS * EACH);
    let scripts = bench.server.scripts() - before;
    assert!(scripts * 4 < TASKS * EACH, "{scripts} scripts for {} holds", TASKS * EACH);
    eventually(|| bench.record().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_owner_holds_at_once_and_the_record_follows() {
    let bench = Bench::start().await;
    let [a, b, c] = bench.owners();
    let first = a.lock().await.unwrap();
    let (second, third) = (bench.wait(&b).await, bench.wait(&c).await);
    // The server answers nobody, and part of the lease has been used.
    bench.server.stop_signal();
    tokio::time::sleep(Duration::from_millis(20)).await;
    // The deadline is converted between two clocks, so it is as exact as the time between the two readings.
    let (named, lease_ends) = (first.owner().to_owned(), first.deadline() + Duration::from_millis(10));
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    assert_eq!(second.state(), HoldState::Held);
    assert!(second.deadline() <= lease_ends, "the hold outlasts the confirmed lease of the record");
    second.unlock().await.unwrap();
    let third = third.await.unwrap();
    assert!(third.deadline() <= lease_ends, "the hold outlasts the confirmed lease of the record");
    bench.server.cont();
    bench.record_names(&third, 1).await;
    eventually(|| third.deadline() > lease_ends).await;
    assert_ne!(third.owner(), named);
    third.unlock().await.unwrap();
    assert!(bench.record().is_empty());
}

/// The move that is under way names another owner than the one that holds again.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_holds_again_within_a_round_trip_gets_the_record() {
    let bench = Bench::start().await;
    let [a, b] = bench.owners();
    for others in [1, 2, 3] {
        let mut guard = a.lock().await.unwrap();
        bench.server.stop_signal();
        for _ in 0..others {
            let next = bench.wait(&b).await;
            guard.unlock().await.unwrap();
            let between = next.await.unwrap();
            // By then the move is under way, and the lease is older than the difference between the two clocks.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let next = bench.wait(&a).await;
            between.unlock().await.unwrap();
            guard = next.await.unwrap();
        }
        let unconfirmed = guard.deadline() + Duration::from_millis(10);
        bench.server.cont();
        // Before any move the record names this owner, too, so this waits for a confirmed move.
        eventually(|| guard.deadline() > unconfirmed).await;
        assert_eq!(bench.record(), HashMap::from([(guard.owner().to_owned(), 1)]));
        assert_eq!(guard.state(), HoldState::Held);
        guard.unlock().await.unwrap();
        assert!(bench.record().is_empty());
    }
}

/// Hands the lock from `from` to `to`. The move is held on the link, on its way to the server.
async fn with_a_move_in_flight(bench: &Bench, link: &ProxyLink, from: &Lock, to: &Lock) -> LockGuard {
    let guard = from.lock().await.unwrap();
    let next = bench.wait(to).await;
    link.hold(Direction::ToServer);
    let asked = link.count(changes);
    guard.unlock().await.unwrap();
    link.asked(asked + 1, changes).await;
    next.await.unwrap()
}

/// A move goes unanswered and is repeated, and its first send arrives much later. No hold has begun with the owner id that it starts from.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_move_does_not_touch_a_later_hold() {
    let (bench, _proxy, link) = Bench::behind_proxy(Client::builder()).await;
    let [a, b] = bench.owners();
    let second = with_a_move_in_flight(&bench, &link, &a, &b).await;
    let third = bench.wait(&a).await;
    second.unlock().await.unwrap();
    let third = third.await.unwrap();
    link.cut_client();
    bench.record_names(&third, 1).await;
    link.deliver(changes).await;
    assert_eq!(bench.record(), HashMap::from([(third.owner().to_owned(), 1)]));
    third.unlock().await.unwrap();
    assert!(bench.record().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_hold_begins_with_the_target_of_a_move_in_flight() {
    let (bench, _proxy, link) = Bench::behind_proxy(Client::builder()).await;
    let [a, b, c] = bench.owners();
    let mut guard = with_a_move_in_flight(&bench, &link, &a, &b).await;
    let target = guard.owner().to_owned();
    for next in [&c, &b] {
        let next = bench.wait(next).await;
        guard.unlock().await.unwrap();
        guard = next.await.unwrap();
    }
    assert_ne!(guard.owner(), target);
    link.pass(Direction::ToServer);
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_renewal_does_not_extend_a_hold_behind_a_hand_off() {
    let (bench, _proxy, link) =
        Bench::behind_proxy(Client::builder().watchdog_timeout(Duration::from_secs(3))).await;
    let [a, b] = bench.owners();
    let guard = a.lock().await.unwrap();
    let deadline = guard.deadline();
    link.hold_and_cut(changes, async {}).await;
    eventually(|| guard.deadline() > deadline).await;
    let next = bench.wait(&b).await;
    guard.unlock().await.unwrap();
    let between = next.await.unwrap();
    // A re-entry waits until the record has followed, so no move is in flight any more.
    b.lock().await.unwrap().unlock().await.unwrap();
    let next = bench.wait(&a.with_lease(Duration::from_secs(2))).await;
    between.unlock().await.unwrap();
    let guard = next.await.unwrap();
    bench.record_names(&guard, 1).await;
    link.deliver(changes).await;
    let left: u64 = redis::cmd("PTTL").arg("n").query(&mut bench.server.cli()).unwrap();
    assert!(left <= 2000, "{left} ms");
    guard.unlock().await.unwrap();
}

/// The hold begins with the rest of the previous lease. Its own fixed lease counts from its grant.
#[tokio::test(flavor = "multi_thread")]
async fn an_inner_level_does_not_shorten_a_hold_that_was_passed_on() {
    const LEASE: Duration = Duration::from_secs(20);
    let bench = Bench::start().await;
    let [a, b] = bench.owners().map(|lock| lock.with_lease(LEASE));
    let first = a.lock().await.unwrap();
    let next = bench.wait(&b).await;
    bench.server.stop_signal();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let lease_ends = first.deadline() + Duration::from_millis(10);
    first.unlock().await.unwrap();
    let outer = next.await.unwrap();
    assert!(outer.deadline() <= lease_ends);
    bench.server.cont();
    eventually(|| outer.deadline() > lease_ends).await;
    b.lock().await.unwrap().unlock().await.unwrap();
    assert!(outer.deadline() > lease_ends, "{:?} too early", lease_ends - outer.deadline());
    outer.unlock().await.unwrap();
}

/// The server refuses the move until a part of the time has passed.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_move_does_not_lengthen_a_hold_beyond_its_limit() {
    let (limit, late) = (Duration::from_secs(8), Duration::from_secs(1));
    for takes in [Lock::with_max_hold, Lock::with_lease] {
        let bench = Bench::start().await;
        let [a, b] = bench.owners();
        let (a, b) = (a.with_lease(limit - late), takes(&b, limit));
        let guard = a.lock().await.unwrap();
        let next = bench.wait(&b).await;
        bench.server.configure("maxmemory", "1");
        guard.unlock().await.unwrap();
        let guard = next.await.unwrap();
        let latest = Instant::now() + limit;
        tokio::time::sleep(late).await;
        bench.server.configure("maxmemory", "0");
        bench.record_names(&guard, 1).await;
        // Replies come in the order of the requests: once the second call here returns, the move's reply has been handled.
        for _ in 0..2 {
            assert!(b.is_locked().await.unwrap());
        }
        let left: u64 = redis::cmd("PTTL").arg("n").query(&mut bench.server.cli()).unwrap();
        for end in [guard.deadline(), Instant::now() + Duration::from_millis(left)] {
            assert!(end <= latest + late / 4, "{:?} too late", end - latest);
        }
        guard.unlock().await.unwrap();
    }
}

/// A move in flight has given the record a shorter lease than was confirmed last.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_does_not_outlast_the_lease_of_a_move_in_flight() {
    let (bench, proxy, link) = Bench::behind_proxy(Client::builder()).await;
    // Each hold has between a half and the whole of the next one's lease left.
    let leases = [5_900, 10_000, 6_000, 10_000].map(Duration::from_millis);
    let locks: [Lock; 4] = bench.owners();
    let locks: Vec<_> = locks.iter().zip(leases).map(|(lock, lease)| lock.with_lease(lease)).collect();
    let mut guard = locks[0].lock().await.unwrap();
    let asked = link.count(changes);
    link.hold(Direction::ToClient);
    for lock in &locks[1..3] {
        let next = bench.wait(lock).await;
        guard.unlock().await.unwrap();
        guard = next.await.unwrap();
        link.asked(asked + 1, changes).await;
    }
    // The reply to the first move passes, and the second move. Its reply waits.
    proxy.shut_gate_after(2, changes);
    link.pass(Direction::ToClient);
    proxy.stopped().await;
    let next = bench.wait(&locks[3]).await;
    guard.unlock().await.unwrap();
    let guard = next.await.unwrap();
    let left: u64 = redis::cmd("PTTL").arg("n").query(&mut bench.server.cli()).unwrap();
    let latest = Instant::now() + Duration::from_millis(left + 1);
    assert!(guard.deadline() <= latest, "{:?} after the record", guard.deadline() - latest);
    proxy.open_gate();
    guard.unlock().await.unwrap();
}

/// The move arrives and its reply does not. The record names the holder, and must outlast its loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_without_a_reply_keeps_the_record_for_the_minimum_time() {
    let builder = Client::builder().watchdog_timeout(Duration::from_secs(3));
    let (bench, proxy, link) = Bench::behind_proxy(builder).await;
    let [a, b] = bench.owners();
    let (a, b) = (a.with_lease(Duration::from_secs(4)), b.with_min_hold(Duration::from_secs(7)));
    let guard = a.lock().await.unwrap();
    let next = bench.wait(&b).await;
    link.lose_reply_to(changes);
    guard.unlock().await.unwrap();
    let guard = next.await.unwrap();
    link.lost_reply().await;
    proxy.partition();
    assert!(matches!(guard.lost().await, HoldState::Lost(_)));
    proxy.heal();
    proxy.open_links().iter().for_each(ProxyLink::cut);
    // The second attempt follows all releases of the first one's key queue.
    for _ in 0..2 {
        assert!(a.try_lock().await.unwrap().is_none());
    }
    assert_eq!(bench.record(), HashMap::from([(guard.owner().to_owned(), 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_re_entry_waits_until_the_record_has_followed() {
    let bench = Bench::start().await;
    let [a, b] = bench.owners();
    let first = a.lock().await.unwrap();
    let second = bench.wait(&b).await;
    bench.server.stop_signal();
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    let again = bench.wait(&b).await;
    assert!(!again.is_finished());
    bench.server.cont();
    let again = again.await.unwrap();
    bench.record_names(&second, 2).await;
    // A hold with two levels is not handed off.
    let third = bench.wait(&a).await;
    second.unlock().await.unwrap();
    bench.record_names(&again, 1).await;
    assert!(!third.is_finished());
    again.unlock().await.unwrap();
    third.await.unwrap().unlock().await.unwrap();
}

/// The holder at the time of the loss is not notified. The holder at the time when the loss is found is.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_or_taken_record_ends_the_hold_ahead_of_it() {
    let bench = Bench::start().await;
    let other = Client::connect(bench.server.url()).await.unwrap().lock("n");
    let [a, b] = bench.owners();
    for taken in [false, true] {
        // An earlier waiter's subscription would serve the next waiter, without a check of the hold.
        eventually(|| subscribers(&bench.server, "redisson_lock__channel:{n}") == 0).await;
        let first = a.lock().await.unwrap();
        bench.server.commandstats_reset();
        let second = bench.wait(&b).await;
        // The client subscribes for the waiter and checks the hold once. Without a message it does not do so again.
        eventually(|| bench.server.calls("hscan") >= 1).await;
        redis::cmd("DEL").arg("n").exec(&mut bench.server.cli()).unwrap();
        let theirs = if taken { Some(other.lock().await.unwrap()) } else { None };
        // The loss is found while the next holder has the lock.
        bench.server.stop_signal();
        first.unlock().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(second.state(), HoldState::Held);
        bench.server.cont();
        let reason = if taken { LossReason::Taken } else { LossReason::Gone };
        assert_eq!(second.lost().await, HoldState::Lost(reason));
        assert!(second.unlock().await.unwrap_err().is_lost());
        if let Some(theirs) = theirs {
            bench.record_names(&theirs, 1).await;
            theirs.unlock().await.unwrap();
        }
        // The key queue goes on.
        a.lock().await.unwrap().unlock().await.unwrap();
    }
}

/// A server out of memory refuses the move. The hold is valid for as long as the record lives, and is released as usual.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_move_is_retried_and_costs_no_hold() {
    let bench = Bench::start().await;
    let memory = |bytes: &str| bench.server.configure("maxmemory", bytes);
    let [a, b, c] = bench.owners();
    for released_while_full in [false, true] {
        let first = a.lock().await.unwrap();
        let second = bench.wait(&b).await;
        memory("1");
        let named = first.owner().to_owned();
        first.unlock().await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(bench.record(), HashMap::from([(named, 1)]));
        assert_eq!(second.state(), HoldState::Held);
        if released_while_full {
            second.unlock().await.unwrap();
            memory("0");
        } else {
            let third = bench.wait(&c).await;
            memory("0");
            bench.record_names(&second, 1).await;
            second.unlock().await.unwrap();
            third.await.unwrap().unlock().await.unwrap();
        }
        eventually(|| bench.record().is_empty()).await;
    }
}

/// A re-entry needs the record to follow, so it fails with the refusal of the move. For another owner the lock is busy.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_move_is_reported_to_callers_that_need_it() {
    let bench = Bench::start().await;
    let [a, b, c] = bench.owners();
    let first = a.lock().await.unwrap();
    let second = bench.wait(&b).await;
    bench.server.configure("maxmemory", "1");
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    let error = b.try_lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    let error = b.lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    assert!(c.try_lock().await.unwrap().is_none());
    assert_eq!(second.state(), HoldState::Held);
    bench.server.configure("maxmemory", "0");
    bench.record_names(&second, 1).await;
    b.try_lock().await.unwrap().unwrap().unlock().await.unwrap();
    second.unlock().await.unwrap();
}

/// The record still names the first owner when a hand-off that is not pipelined returns the lock to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hand_off_to_the_named_owner_keeps_the_record() {
    let bench = Bench::start().await;
    let memory = |bytes: &str| bench.server.configure("maxmemory", bytes);
    let [a, b] = bench.owners();
    let first = a.lock().await.unwrap();
    let second = bench.wait(&b).await;
    memory("1");
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    // A re-entry reports the refusal of the move. From then on the record is not known to follow.
    assert_eq!(b.try_lock().await.unwrap_err().code(), Some("OOM"));
    let third = bench.wait(&a).await;
    memory("0");
    second.unlock().await.unwrap();
    let third = third.await.unwrap();
    bench.record_names(&third, 1).await;
    assert_eq!(third.state(), HoldState::Held);
    third.unlock().await.unwrap();
    assert!(bench.record().is_empty());
}

/// Both sides must ask for it: the owner that releases, and the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_pipelining_owns_the_record() {
    let bench = Bench::start().await;
    let [a, b] = bench.owners();
    for (lets_go, next) in [(false, true), (true, false)] {
        let first = a.with_pipelined_hand_off(lets_go).lock().await.unwrap();
        let second = bench.wait(&b.with_pipelined_hand_off(next)).await;
        // This release needs a reply.
        bench.server.stop_signal();
        let mut releasing = std::pin::pin!(first.unlock());
        assert!(poll!(releasing.as_mut()).is_pending());
        bench.server.cont();
        releasing.await.unwrap();
        let second = second.await.unwrap();
        assert_eq!(bench.record(), HashMap::from([(second.owner().to_owned(), 1)]));
        second.unlock().await.unwrap();
    }
}

/// The previous hold has a fixed lease of less than half of the next one's. A hold that began with the rest of it would not survive a short
/// silence of the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_begins_with_at_least_half_of_its_lease() {
    const LEASE: Duration = Duration::from_secs(30);
    let bench = Bench::start().await;
    let proxy = Proxy::start(bench.server.port()).await;
    let builder = Client::builder().hand_off(HandOff::new().pipelined(true)).watchdog_timeout(LEASE);
    let client = builder.connect(proxy.url()).await.unwrap();
    let bench = Bench { client, ..bench };
    let [a, b] = bench.owners();
    let first = a.with_lease(LEASE * 2 / 5).lock().await.unwrap();
    let second = bench.wait(&b).await;
    // No reply comes before the deadline of the next hold is read.
    proxy.open_links().iter().for_each(|link| link.delay(Direction::ToClient, Duration::from_millis(300)));
    let released = Instant::now();
    first.unlock().await.unwrap();
    let second = second.await.unwrap();
    assert!(second.deadline() >= released + LEASE / 2);
    second.unlock().await.unwrap();
}

/// Many tasks hand the lock on among themselves. A Java waiter still gets it within the bound on hand-offs, plus its own requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_java_waiter_gets_its_turn_despite_local_hand_offs() {
    const ROUNDS: u32 = 20;
    /// Redisson attempts, subscribes, attempts again, and attempts once more after the message.
    const REQUESTS: u32 = 4;
    // The defaults of `HandOff`.
    let (max_time, max_time_alone) = (Duration::from_millis(20), Duration::from_millis(200));
    for version in versions() {
        let bench = Bench::with(HandOff::new()).await;
        let java = Java::get(&version).client(&bench.server, 0).await.thread("t");
        java.is_locked("plain", "n").await.unwrap();
        let mut tasks = JoinSet::new();
        let taken = Arc::new(AtomicU64::new(0));
        for _ in 0..64 {
            let (lock, taken) = (bench.client.lock("n"), taken.clone());
            tasks.spawn(async move {
                loop {
                    let guard = lock.lock().await.unwrap();
                    taken.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        let (mut waits, mut requests) = (Vec::new(), Vec::new());
        // The first wait of a JVM also loads classes.
        for round in 0..=ROUNDS {
            let before = taken.load(Ordering::Relaxed);
            eventually(|| taken.load(Ordering::Relaxed) > before + 100).await;
            let asked = Stopwatch::start();
            java.is_locked("plain", "n").await.unwrap();
            requests.push(asked.elapsed());
            let asked = Stopwatch::start();
            java.lock("plain", "n").await.unwrap();
            waits.extend((round > 0).then(|| asked.elapsed()));
            java.unlock("plain", "n").await.unwrap();
        }
        tasks.shutdown().await;
        waits.sort_unstable();
        requests.sort_unstable();
        let [median, late, longest] =
            [waits.len() / 2, waits.len() * 9 / 10, waits.len() - 1].map(|at| waits[at]);
        let (request, late_request) = (requests[requests.len() / 2], requests[requests.len() * 9 / 10]);
        println!(
            "{version}: Java waited {median:?}, at most {longest:?}, a request took {request:?}: {waits:?}"
        );
        assert!(median <= max_time + REQUESTS * request, "{version}: {waits:?}, a request took {request:?}");
        // The watch does not see the pauses of the JVM. They lengthen few waits, and requests alike.
        let limit = max_time_alone + REQUESTS * late_request;
        assert!(late <= limit, "{version}: {waits:?}, requests took {requests:?}");
        assert!(longest < Duration::from_secs(5), "{version}: {waits:?}");
    }
}
