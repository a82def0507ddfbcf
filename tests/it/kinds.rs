//! Every kind of lock among Rust tasks: exclusion, re-entry, order of service, and names in Redis. Each test runs for each kind.

use futures_util::poll;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Owner};
use tokio::task::JoinSet;

use crate::support::any_lock::ClientSet;
use crate::support::kind::{Kind, assert_nothing_left, channels, each, keys, prefix};
use crate::support::{Messages, Server, Stopwatch, eventually};

const NAME: &str = "n";

pub async fn clients(kind: Kind, server: &Server) -> (ClientSet, ClientSet) {
    tokio::join!(ClientSet::of(kind, server), ClientSet::of(kind, server))
}

/// A counter that loses additions if two writers overlap, and that counts its readers.
#[derive(Default)]
struct SharedCounter {
    value: AtomicU64,
    readers: AtomicUsize,
    most_readers: AtomicUsize,
}

impl SharedCounter {
    async fn write(&self, pause: Duration) {
        let value = self.value.load(Ordering::Relaxed);
        tokio::time::sleep(pause).await;
        assert_eq!(self.readers.load(Ordering::SeqCst), 0, "a reader overlaps a writer");
        self.value.store(value + 1, Ordering::Relaxed);
    }

    async fn read(&self, pause: Duration) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        let value = self.value.load(Ordering::Relaxed);
        tokio::time::sleep(pause).await;
        assert_eq!(self.value.load(Ordering::Relaxed), value, "a writer overlaps a reader");
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_two_clients_is_excluded_by_the_rules_of_its_kind() {
    const ROUNDS: u64 = 25;
    each(Kind::ALL, |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = clients(kind, &server).await;
        let page = Arc::new(SharedCounter::default());
        let mut tasks = JoinSet::new();
        let crowd =
            if kind.is_exclusive() { [kind; 4] } else { [Kind::Read, Kind::Read, Kind::Read, Kind::Write] };
        for client in [&one, &two] {
            for (n, kind) in crowd.into_iter().enumerate() {
                let (lock, page) = (kind.of(client, NAME), page.clone());
                tasks.spawn(async move {
                    for round in 0..ROUNDS {
                        let guard = lock.lock().await.unwrap();
                        assert_eq!(guard.state(), HoldState::Held);
                        let pause = Duration::from_micros((round * 7 + n as u64 * 3) % 5 * 100);
                        if kind.is_exclusive() {
                            page.write(pause).await;
                        } else {
                            page.read(pause).await;
                        }
                        guard.unlock().await.unwrap();
                    }
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let writers = crowd.iter().filter(|kind| kind.is_exclusive()).count() as u64;
        assert_eq!(page.value.load(Ordering::Relaxed), 2 * writers * ROUNDS, "{kind}");
        let together = page.most_readers.load(Ordering::SeqCst);
        assert!(kind.is_exclusive() || together > 1, "no two readers overlapped");
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_lock_times_out_on_time_and_a_freed_one_is_acquired() {
    each(Kind::rivals(), |(holder, waiter)| async move {
        let server = waiter.server(NAME);
        let (one, two) = clients(waiter, &server).await;
        let guard = holder.of(&one, NAME).lock().await.unwrap();
        let before = keys(&server);
        // The lock is busy for another owner of the same client, too.
        for client in [&one, &two] {
            let lock = waiter.of(client, NAME).with_owner(&Owner::unique());
            let attempted = Stopwatch::start();
            assert!(lock.try_lock().await.unwrap().is_none(), "{waiter}");
            let took = attempted.elapsed();
            assert!(took < Duration::from_secs(1), "{waiter}: one attempt took {took:?}");
            // Long enough for the server to answer, even if this machine stalls for a moment.
            let wait = Duration::from_millis(400);
            let started = Stopwatch::start();
            assert!(lock.try_lock_for(wait).await.unwrap().is_none(), "{waiter}");
            assert!(started.is_within(wait..wait + Duration::from_millis(50)), "{waiter}: {started:?}");
            // A waiter that gave up has left every queue.
            eventually(|| keys(&server) == before && channels(&server).is_empty()).await;
        }
        let lock = waiter.of(&two, NAME);
        let waiting = tokio::spawn(async move { lock.try_lock_for(Duration::from_secs(20)).await });
        if waiter.listens() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        guard.unlock().await.unwrap();
        waiting.await.unwrap().unwrap().expect("the lock was freed in time").unlock().await.unwrap();
        let free = waiter.of(&two, NAME).try_lock().await.unwrap().expect("the lock is free");
        free.unlock().await.unwrap();
        assert_nothing_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_may_re_enter_a_lock_of_a_reentrant_kind() {
    each(Kind::locks().filter(|kind| kind.is_reentrant()), |kind| async move {
        let server = Server::start();
        let (one, two) = clients(kind, &server).await;
        let lock = kind.lock(&one, NAME);
        let mut guards = vec![lock.lock().await.unwrap()];
        guards.push(lock.try_lock().await.unwrap().expect("the owner holds the lock"));
        guards.push(
            lock.try_lock_for(Duration::from_secs(5)).await.unwrap().expect("the owner holds the lock"),
        );
        let token = guards[0].token();
        assert!(guards.iter().all(|guard| guard.token() == token), "{kind}: a re-entry got a new token");
        assert_eq!(token.is_some(), kind == Kind::Fenced);
        let rival = kind.rival().lock(&two, NAME);
        while let Some(guard) = guards.pop() {
            let levels = guards.len() as u64 + 1;
            assert_eq!(lock.hold_count().await.unwrap(), levels, "{kind}");
            let recorded = if kind.counts() { levels } else { 1 };
            assert_eq!(kind.holders(&mut server.cli(), NAME), one_holder(guard.owner(), recorded), "{kind}");
            assert!(lock.is_held().await.unwrap() && lock.is_locked().await.unwrap(), "{kind}");
            assert!(rival.try_lock().await.unwrap().is_none(), "{kind}: acquired with {levels} levels left");
            assert_eq!(guard.state(), HoldState::Held, "{kind}");
            guard.unlock().await.unwrap();
        }
        assert_eq!((lock.hold_count().await.unwrap(), lock.is_held().await.unwrap()), (0, false), "{kind}");
        assert!(!lock.is_locked().await.unwrap(), "{kind}");
        rival.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_would_wait_for_itself_fails_at_once() {
    let cases = Kind::locks().filter(|kind| !kind.is_reentrant()).map(|kind| (kind, kind));
    each(cases.chain([(Kind::Read, Kind::Write)]), |(held, wanted)| async move {
        let server = Server::start();
        let (one, two) = clients(held, &server).await;
        let guard = held.lock(&one, NAME).lock().await.unwrap();
        let before = keys(&server);
        let lock = wanted.lock(&one, NAME);
        let started = Stopwatch::start();
        for outcome in [
            lock.lock().await.map(Some),
            lock.try_lock().await,
            lock.try_lock_for(Duration::from_secs(20)).await,
        ] {
            match outcome {
                Err(Error::WouldDeadlock { name, kind, .. }) => {
                    assert_eq!((name.as_str(), kind), (NAME, wanted.to_string().as_str()));
                }
                other => panic!("{wanted}: {other:?}"),
            }
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{wanted}: {:?}", started.elapsed());
        assert_eq!(guard.state(), HoldState::Held, "{held}");
        assert_eq!(held.holders(&mut server.cli(), NAME), one_holder(guard.owner(), 1), "{held}");
        assert_eq!(keys(&server), before, "{held}");
        // Another owner of the same client may wait.
        let other = lock.with_owner(&Owner::unique());
        assert!(other.try_lock().await.unwrap().is_none(), "{held}");
        guard.unlock().await.unwrap();
        other.lock().await.unwrap().unlock().await.unwrap();
        assert_nothing_left(held, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_frees_the_lock_for_a_waiter() {
    each(Kind::rivals(), |(holder, waiter)| async move {
        let server = waiter.server(NAME);
        let (one, two) = clients(waiter, &server).await;
        drop(holder.of(&one, NAME).lock().await.unwrap());
        assert_nothing_left(holder, NAME, &server, &[&one]).await;

        let guard = holder.of(&one, NAME).lock().await.unwrap();
        let lock = waiter.of(&two, NAME);
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if waiter.listens() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        let dropped = Stopwatch::start();
        drop(guard);
        let guard = waiting.await.unwrap();
        // The release wakes the waiter, not the end of the lease.
        assert!(dropped.elapsed() < Duration::from_secs(5), "{holder} to {waiter}: {:?}", dropped.elapsed());
        drop(guard);
        assert_nothing_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// One owner holds both sides of a read/write lock, while other owners try to acquire each side.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_read_and_then_downgrade() {
    let server = Server::start();
    let (one, two) = clients(Kind::Write, &server).await;
    let (ours, others) = (one.read_write_lock(NAME), two.read_write_lock(NAME));
    let write = ours.write().lock().await.unwrap();
    let read = ours.read().lock().await.unwrap();
    let inner = ours.read().lock().await.unwrap();
    assert!(others.read().try_lock().await.unwrap().is_none());
    // `is_locked` of the write lock sees writers only; that of the read lock sees readers only.
    assert!(ours.write().is_locked().await.unwrap() && ours.read().is_locked().await.unwrap());
    write.unlock().await.unwrap();
    assert!(!ours.write().is_locked().await.unwrap() && ours.read().is_locked().await.unwrap());
    let other_reader = others.read().try_lock().await.unwrap().expect("readers share");
    assert!(others.write().with_owner(&Owner::unique()).try_lock().await.unwrap().is_none());
    assert_eq!([read.state(), inner.state(), other_reader.state()], [HoldState::Held; 3]);
    // The last reader, whichever it is, keeps writers out.
    for guard in [read, other_reader, inner] {
        assert!(others.write().with_owner(&Owner::unique()).try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
    // A writer's read level may also end before its write level.
    let write = ours.write().lock().await.unwrap();
    ours.read().lock().await.unwrap().unlock().await.unwrap();
    assert!(others.read().try_lock().await.unwrap().is_none(), "the writer still holds the lock");
    write.unlock().await.unwrap();
    assert_nothing_left(Kind::Write, NAME, &server, &[&one, &two]).await;
}

/// Waiters of all clients are served in the order of arrival. For kinds without a queue in Redis, this holds within one client.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_of_arrival() {
    each(Kind::ALL.into_iter().filter(|kind| kind.is_in_order()), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = clients(kind, &server).await;
        let guard = kind.of(&two, NAME).lock().await.unwrap();
        let served = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..12 {
            let client = if kind.is_queued() && n % 2 == 1 { &two } else { &one };
            let (lock, served) = (kind.of(client, NAME), served.clone());
            let (queued, in_queue) = tokio::sync::oneshot::channel();
            tasks.spawn(async move {
                let mut locking = std::pin::pin!(lock.lock());
                // The first poll joins the client's own queue.
                assert!(poll!(locking.as_mut()).is_pending());
                queued.send(()).unwrap();
                let guard = locking.await.unwrap();
                served.lock().unwrap().push(n);
                guard.unlock().await.unwrap();
            });
            in_queue.await.unwrap();
            if let [queue, timeouts] = kind.keys_of_a_waiter(NAME).as_slice() {
                eventually(|| length(&server, "LLEN", queue) == n + 1).await;
                assert_eq!(length(&server, "ZCARD", timeouts), n + 1, "{kind}");
            }
        }
        guard.unlock().await.unwrap();
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        assert_eq!(*served.lock().unwrap(), (0..12).collect::<Vec<_>>(), "{kind}");
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// A call that does not wait joins no queue, and does not overtake the waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_try_does_not_overtake_a_queue() {
    each(Kind::locks().filter(|kind| kind.is_queued()), |kind| async move {
        let server = Server::start();
        let (one, two) = clients(kind, &server).await;
        let [queue, timeouts] = &kind.keys_of_a_waiter(NAME)[..] else { panic!("two keys") };
        // A slow waiter is first in the queue, and the lock is free for it.
        let mut cli = server.cli();
        redis::cmd("RPUSH").arg(queue).arg("slow:1").exec(&mut cli).unwrap();
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut cli).unwrap();
        redis::cmd("ZADD").arg(timeouts).arg((seconds + 60) * 1000).arg("slow:1").exec(&mut cli).unwrap();
        for client in [&one, &two] {
            assert!(kind.lock(client, NAME).try_lock().await.unwrap().is_none(), "{kind}");
        }
        assert_eq!((length(&server, "LLEN", queue), length(&server, "ZCARD", timeouts)), (1, 1), "{kind}");
        redis::cmd("DEL").arg(queue).arg(timeouts).exec(&mut cli).unwrap();
        kind.lock(&one, NAME).try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_closed_leaves_the_queue() {
    each(Kind::locks().filter(|kind| kind.is_queued()), |kind| async move {
        let server = Server::start();
        let (one, two) = clients(kind, &server).await;
        let guard = kind.lock(&one, NAME).lock().await.unwrap();
        let waiting = tokio::spawn({
            let lock = kind.lock(&two, NAME);
            async move { lock.lock().await }
        });
        let queue = kind.keys_of_a_waiter(NAME)[0].clone();
        eventually(|| length(&server, "LLEN", &queue) == 1).await;
        two.close().await;
        assert_eq!(length(&server, "LLEN", &queue), 0, "{kind}");
        assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })), "{kind}");
        guard.unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &server, &[&one]).await;
    })
    .await;
}

const NAMES: [&str; 9] =
    ["n", "a{b}c", "{x}", "a}", "a{", "{}x", "two words", "schloß 鎖 🔒", "line\nbreak \"quoted\" *?[x]"];

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_channels_are_named_as_redisson_names_them() {
    // Fixed examples of the naming rule.
    for (name, channel) in [
        ("n", "redisson_lock__channel:{n}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
        ("{x}", "redisson_lock__channel:{x}"),
        ("a}", "redisson_lock__channel:{a}}"),
    ] {
        assert_eq!(prefix("redisson_lock__channel", name), channel);
    }
    each(Kind::locks(), |kind| async move {
        let server = Server::start();
        let (one, two) = clients(kind, &server).await;
        let mut messages = Messages::of(&server);
        for name in NAMES {
            let (holder, waiter) = (kind.rival(), kind);
            let guard = holder.lock(&one, name).lock().await.unwrap();
            let held: BTreeSet<_> =
                holder.keys_of_a_hold(name, guard.owner()).into_iter().chain([name.to_owned()]).collect();
            assert_eq!(keys(&server), held, "{holder}, {name:?}");

            let owner = Owner::unique();
            let owner_id = format!("{}:owner-{}", two.id(), owner.as_str());
            let lock = waiter.lock(&two, name).with_owner(&owner);
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            let all = || keys(&server).into_iter().collect::<Vec<_>>();
            let with_waiter: BTreeSet<_> =
                held.into_iter().chain(waiter.keys_of_a_waiter(name)).collect::<BTreeSet<_>>();
            if let Some(channel) = waiter.channel(name, &owner_id) {
                eventually(|| channels(&server) == [channel.clone()]).await;
            }
            assert_eq!(keys(&server), with_waiter, "{waiter}, {name:?}: {:?}", all());

            guard.unlock().await.unwrap();
            let guard = waiting.await.unwrap();
            assert_eq!(guard.name(), name);
            let held: BTreeSet<_> =
                waiter.keys_of_a_hold(name, guard.owner()).into_iter().chain([name.to_owned()]).collect();
            assert_eq!(keys(&server), held, "{waiter}, {name:?}");
            guard.unlock().await.unwrap();
            assert_nothing_left(kind, name, &server, &[&one, &two]).await;

            let mut expected = Vec::new();
            if let Some(channel) = holder.channel(name, &owner_id) {
                expected.push((channel, holder.message().to_owned()));
            }
            if waiter.messages_without_waiters() > 0
                && let Some(channel) = waiter.channel(name, &owner_id)
            {
                expected.push((channel, waiter.message().to_owned()));
            }
            assert_eq!(messages.heard(), expected, "{kind}, {name:?}");
            redis::cmd("FLUSHALL").exec(&mut server.cli()).unwrap();
        }
    })
    .await;
}

fn one_holder(owner: &str, levels: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(owner.to_owned(), levels)])
}

fn length(server: &Server, command: &str, key: &str) -> usize {
    redis::cmd(command).arg(key).query(&mut server.cli()).unwrap()
}

/// The loss of one hold rotates the owner ids of a client. Other holds keep their ids, and their owners can still re-enter them.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_re_enters_its_hold_after_its_id_was_rotated() {
    each(Kind::locks().filter(|kind| kind.is_reentrant()), |kind| async move {
        let server = kind.server(NAME);
        let client = Client::connect(server.url()).await.unwrap();
        let lock = kind.lock(&client, NAME);
        let first = lock.lock().await.unwrap();
        let lost = client.lock("other").lock().await.unwrap();
        kind.erase(&server, "other");
        lost.unlock().await.unwrap_err();
        assert!(lock.is_held().await.unwrap(), "{kind}: the owner does not see its hold");
        let second = lock.try_lock().await.unwrap().expect("an owner waits for itself");
        assert_eq!((second.owner(), lock.hold_count().await.unwrap()), (first.owner(), 2), "{kind}");
        first.unlock().await.unwrap();
        assert_eq!(lock.hold_count().await.unwrap(), 1, "{kind}");
        second.unlock().await.unwrap();
        // The old id ends with the last hold.
        let fresh = lock.lock().await.unwrap();
        assert!(fresh.owner().contains('~'), "{kind}: {}", fresh.owner());
        fresh.unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &server, &[&client]).await;
    })
    .await;
}

/// One request reports what the single ones report, and how many wait.
#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_reports_holders_lease_and_waiters() {
    each(Kind::locks(), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = tokio::join!(Client::connect(server.url()), Client::connect(server.url()));
        let (lock, two) = (kind.lock(&one.unwrap(), NAME), two.unwrap());
        let free = lock.inspect().await.unwrap();
        assert!(free.holders.is_empty() && free.remaining_lease.is_none(), "{kind}: {free:?}");
        assert_eq!(free.waiters, Some(0), "{kind}");

        let guard = lock.lock().await.unwrap();
        let held = lock.inspect().await.unwrap();
        assert_eq!(held.holders, Vec::from_iter(lock.holder().await.unwrap()), "{kind}");
        let (left, lease) = (held.remaining_lease.unwrap(), Duration::from_secs(30));
        // The leases of a group end at the next whole millisecond.
        assert!((lease / 2..=lease + Duration::from_millis(1)).contains(&left), "{kind}: {left:?}");

        // Two waiters of another client, which listens once.
        let rival = if kind == Kind::Read { Kind::Write } else { kind };
        let waiters: Vec<_> = (0..2)
            .map(|_| rival.lock(&two, NAME))
            .map(|lock| tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() }))
            .collect();
        let expected = if kind.is_queued() { 2 } else { u64::from(kind.listens()) };
        let counted = async { while lock.inspect().await.unwrap().waiters != Some(expected) {} };
        tokio::time::timeout(Duration::from_secs(20), counted).await.expect("the waiters are counted");
        guard.unlock().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert!(lock.inspect().await.unwrap().holders.is_empty(), "{kind}");
    })
    .await;
}

#[tokio::test]
async fn an_inspection_reports_all_readers() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let sides = client.read_write_lock(NAME);
    let (first, second) = (Owner::unique(), Owner::unique());
    let guards = [
        sides.read().with_owner(&first).lock().await.unwrap(),
        sides.read().with_owner(&second).lock().await.unwrap(),
    ];
    for side in [sides.read(), sides.write()] {
        let holders = side.inspect().await.unwrap().holders;
        let owners: BTreeSet<&str> = holders.iter().map(|holder| holder.owner()).collect();
        assert_eq!(owners, guards.iter().map(|guard| guard.owner()).collect());
    }
}
