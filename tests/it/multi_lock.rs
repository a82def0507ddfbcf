//! `MultiLock`: all of several locks, or none.

use crate::faults::EndlessScript;
use crate::support::drop_point::{
    CutAt, DropBench, LEASE as LEASE_THERE, NAME, Tally, drop_at, for_each_cut, shut_gate,
};
use crate::support::proxy::{Direction, Proxy, Words};
use crate::support::{
    Java, Server, Stopwatch, WOKEN, WakeUps, clock::monotonic_ns, eventually, subscribers, versions,
};
use redisson_lock::{
    Client, Error, HoldState, Lock, LossReason, MultiLock, MultiLockGuard, Owner, blocking, redis,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

const LEASE: Duration = Duration::from_millis(1500);
/// The response time of a distant server.
const FAR: Duration = Duration::from_millis(100);

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
    // Redisson leaves these keys for its own retries.
    keys.retain(|key| !key.starts_with("redisson_unlock_latch"));
    keys.sort();
    keys
}

fn ttl(server: &Server, name: &str) -> i64 {
    redis::cmd("PTTL").arg(name).query(&mut server.cli()).unwrap()
}

fn channels(server: &Server) -> Vec<String> {
    redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).unwrap()
}

fn of(client: &Client, names: &[&str]) -> MultiLock {
    MultiLock::new(names.iter().map(|name| client.lock(name))).unwrap()
}

/// Waits for the end of the hold, which must come.
async fn lost(guard: &MultiLockGuard) -> HoldState {
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("the hold ends")
}

#[tokio::test]
async fn all_members_are_held_by_one_owner_and_released() {
    let (one, two) = (Server::start(), Server::start());
    let (here, there) =
        (Client::connect(one.url()).await.unwrap(), Client::connect(two.url()).await.unwrap());
    let rw = here.read_write_lock("rw");
    let locks =
        [here.lock("a"), there.fenced_lock("f"), rw.write().clone(), here.fair_lock("fair"), there.lock("a")];
    let all = MultiLock::new(locks).unwrap();
    let guard = all.lock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    assert_eq!(guard.members().len(), 5);
    let ids: Vec<_> =
        guard.members().iter().map(|member| member.owner().split(':').nth(1).unwrap()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(keys(&one), ["a", "fair", "rw"]);
    assert!(keys(&two).starts_with(&["a".into(), "f".into()]), "{:?}", keys(&two));
    let token = guard.members().iter().find_map(|member| member.token());
    assert_eq!(token, Some(1));
    assert_eq!(guard.deadline(), guard.members().iter().map(|member| member.deadline()).min().unwrap());

    // The same owner takes them again, together or alone. Another owner finds them busy.
    let again = all.try_lock().await.unwrap().expect("it is the same owner");
    assert_eq!(here.lock("a").hold_count().await.unwrap(), 2);
    let other = all.with_owner(&Owner::unique());
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.try_lock_for(Duration::from_millis(30)).await.unwrap().is_none());
    again.unlock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    let status = guard.status();
    guard.unlock().await.unwrap();
    assert_eq!(status.state(), HoldState::Released);
    assert_eq!(status.validity(), Duration::ZERO);
    assert!(keys(&one).is_empty());

    // Dropped guards are released in the background.
    drop(other.lock().await.unwrap());
    eventually(|| keys(&one).is_empty() && keys(&two).iter().all(|key| key.contains("token"))).await;
    eventually(|| channels(&one).is_empty() && channels(&two).is_empty()).await;
}

#[tokio::test]
async fn misuse_is_reported_before_anything_is_sent() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let rw = client.read_write_lock("rw");
    let bad: [Vec<Lock>; 5] = [
        vec![],
        vec![client.lock("a"), client.lock("b"), client.lock("a")],
        vec![rw.read().clone(), rw.write().clone()],
        vec![client.lock("a"), client.lock("b").with_owner(&Owner::unique())],
        vec![client.lock("a"), client.lock("")],
    ];
    for locks in bad {
        let shown = format!("{locks:?}");
        assert!(matches!(MultiLock::new(locks), Err(Error::Misuse { .. })), "{shown}");
    }
    let multi = of(&client, &["a", "b"]);
    let busy = client.lock("c").with_owner(&Owner::unique()).lock().await.unwrap();
    let behind_busy =
        MultiLock::new([client.lock("c"), client.lock("d").with_lease(Duration::ZERO)]).unwrap();
    assert!(matches!(behind_busy.lock().await, Err(Error::Misuse { .. })));
    busy.unlock().await.unwrap();
    for wrong in [
        multi.with_lease(Duration::ZERO).lock().await,
        multi.try_lock_for(Duration::MAX).await.map(|_| unreachable!()),
    ] {
        assert!(matches!(wrong, Err(Error::Misuse { .. })), "{wrong:?}");
    }
    assert!(keys(&server).is_empty());

    // An owner that would wait for itself gets an error, and the locks taken before that are released.
    let held = client.non_reentrant_lock("n").lock().await.unwrap();
    let multi = MultiLock::new([client.lock("a"), client.non_reentrant_lock("n")]).unwrap();
    assert!(matches!(multi.lock().await, Err(Error::WouldDeadlock { .. })));
    assert_eq!(keys(&server), ["n"]);
    held.unlock().await.unwrap();
}

/// A round trip may take longer than locks are held while another member is busy.
#[tokio::test]
async fn distant_servers_do_not_prevent_an_acquire() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let near = Client::connect(server.url()).await.unwrap();
    let far = Client::connect(proxy.url()).await.unwrap();
    // The holder is another client, because a client knows its own holds without a request.
    let multi = |client: &Client| of(client, &["a", "b", "c"]);
    multi(&far).lock().await.unwrap().unlock().await.unwrap();
    for link in proxy.open_links() {
        link.delay(Direction::ToClient, FAR);
    }
    for _ in 0..3 {
        let guard = multi(&far).try_lock().await.unwrap().expect("nobody holds one");
        guard.unlock().await.unwrap();
    }
    let started = Stopwatch::start();
    multi(&far).lock().await.unwrap().unlock().await.unwrap();
    let taken = started.elapsed();
    assert!(taken < 5 * FAR, "one round trip for each lock and one for the release: {taken:?}");

    let held = near.lock("b").lock().await.unwrap();
    assert!(multi(&far).try_lock().await.unwrap().is_none());
    assert!(multi(&far).try_lock_for(10 * FAR).await.unwrap().is_none());
    held.unlock().await.unwrap();
    eventually(|| keys(&server).is_empty()).await;
}

/// Each request is answered in time, but all of them together take longer than one may take, and longer than a quarter of the lease.
#[tokio::test]
async fn many_distant_members_are_acquired() {
    const MEMBERS: usize = 15;
    let (limit, delay) = (Duration::from_millis(300), Duration::from_millis(30));
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let builder = Client::builder().response_timeout(limit).watchdog_timeout(LEASE);
    let far = builder.connect(proxy.url()).await.unwrap();
    far.lock("n").lock().await.unwrap().unlock().await.unwrap();
    for link in proxy.open_links() {
        link.delay(Direction::ToClient, delay);
    }
    let names: Vec<_> = (0..MEMBERS).map(|n| format!("{n:02}")).collect();
    let multi = MultiLock::new(names.iter().map(|name| far.lock(name))).unwrap();
    let started = Instant::now();
    let locking = tokio::time::timeout(Duration::from_secs(5), multi.lock());
    let guard = locking.await.expect("nobody holds one").unwrap();
    let took = started.elapsed();
    assert!(took > limit.max(LEASE / 4), "{took:?}");
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    eventually(|| keys(&server).is_empty()).await;
}

/// An attempt that fails has released its locks by the time it returns.
#[tokio::test]
async fn one_busy_member_leaves_none_held() {
    let server = Server::start();
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    for busy in ["a", "b", "c"] {
        let held = other.lock(busy).lock().await.unwrap();
        let multi = of(&client, &["c", "a", "b"]);
        assert!(multi.try_lock().await.unwrap().is_none());
        assert_eq!(keys(&server), [busy]);
        let (wait, started) = (Duration::from_millis(250), Stopwatch::start());
        assert!(multi.try_lock_for(wait).await.unwrap().is_none());
        assert!(started.is_within(wait..Duration::from_millis(400)), "{started:?}");
        eventually(|| keys(&server) == [busy]).await;
        held.unlock().await.unwrap();
    }
    eventually(|| channels(&server).is_empty()).await;
}

/// Asserts that the record of `b` still has its original lease of 20 s.
fn kept_since(started: Instant, server: &Server) {
    let left = ttl(server, "b");
    let gone = started.elapsed().as_millis() as i64;
    // Two processes measure the time, in whole milliseconds.
    assert!((20_000 - gone - 5..=20_000).contains(&left), "{left} after {gone}");
}

/// Redisson's protocol has this fault (number 13); ours must not.
#[tokio::test]
async fn records_of_other_owners_keep_their_expiry() {
    let server = Server::start();
    let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let started = Instant::now();
    let held = other.lock("b").with_lease(Duration::from_secs(20)).lock().await.unwrap();
    for lease in [None, Some(Duration::from_secs(2)), Some(Duration::from_secs(60))] {
        let multi = of(&client, &["a", "b", "c"]);
        let multi = lease.map_or(multi.clone(), |lease| multi.with_lease(lease));
        assert!(multi.try_lock().await.unwrap().is_none());
        assert!(multi.try_lock_for(Duration::from_millis(250)).await.unwrap().is_none());
        kept_since(started, &server);
    }
    held.unlock().await.unwrap();

    // A member was lost, and another client holds it by now: neither renewals nor the release touch it.
    let guard = of(&client, &["a", "b"]).lock().await.unwrap();
    redis::cmd("DEL").arg("b").exec(&mut server.cli()).unwrap();
    let started = Instant::now();
    let held = other.lock("b").with_lease(Duration::from_secs(20)).lock().await.unwrap();
    assert_eq!(lost(&guard).await, HoldState::Lost(LossReason::Taken));
    kept_since(started, &server);
    match guard.unlock().await {
        Err(Error::NotHeld { name, reason, holder: Some(holder), .. }) => {
            assert_eq!((name.as_str(), holder.owner()), ("b", held.owner()));
            assert_eq!(reason, Some(LossReason::Taken));
        }
        other => panic!("{other:?}"),
    }
    kept_since(started, &server);
    assert_eq!(keys(&server), ["b"]);
    held.unlock().await.unwrap();
}

#[tokio::test]
async fn one_lost_member_ends_the_hold_and_frees_the_rest() {
    let (one, two) = (Server::start(), Server::start());
    let builder = Client::builder().watchdog_timeout(LEASE);
    let (here, there) =
        (builder.clone().connect(one.url()).await.unwrap(), builder.connect(two.url()).await.unwrap());
    let multi = MultiLock::new([here.lock("a"), there.lock("b"), here.lock("c")]).unwrap();
    let guard = multi.lock().await.unwrap();
    let states = guard.status().states().collect::<Vec<_>>();
    let states = tokio::spawn(states);
    // The locks are renewed while nothing happens.
    let first = guard.deadline();
    eventually(|| guard.deadline() > first + LEASE).await;
    assert_eq!(guard.state(), HoldState::Held);

    let started = Stopwatch::start();
    assert!(there.lock("b").force_unlock().await.unwrap());
    assert_eq!(lost(&guard).await, HoldState::Lost(LossReason::Gone));
    assert!(started.elapsed() < LEASE);
    // The rest is freed while the guard still exists.
    eventually(|| keys(&one).is_empty()).await;
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Gone));
    let observed = states.await.unwrap();
    assert_eq!(
        (observed.first(), observed.last()),
        (Some(&HoldState::Held), Some(&guard.state())),
        "{observed:?}"
    );
    assert!(guard.unlock().await.unwrap_err().is_lost());

    // With a fixed lease, the loss shows at the unlock, which releases the others.
    let guard = multi.with_lease(Duration::from_secs(20)).lock().await.unwrap();
    assert!(there.lock("b").force_unlock().await.unwrap());
    match guard.unlock().await {
        Err(Error::Lost { name, reason: LossReason::Gone, .. }) => assert_eq!(name, "b"),
        other => panic!("{other:?}"),
    }
    assert!(keys(&one).is_empty());

    // `run` stops its body at once.
    let operator = there.lock("b");
    let outcome = multi
        .run(|status| async move {
            assert_eq!(status.state(), HoldState::Held);
            operator.force_unlock().await.unwrap();
            tokio::time::sleep(Duration::from_secs(20)).await
        })
        .await;
    assert!(matches!(&outcome, Err(Error::Lost { name, .. }) if name == "b"), "{outcome:?}");
    assert_eq!(multi.run(async |_| 42).await.unwrap(), 42);
    assert!(keys(&one).is_empty() && keys(&two).is_empty());
}

#[tokio::test]
async fn the_earliest_member_deadline_is_the_deadline() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let short = Duration::from_millis(400);
    let multi =
        MultiLock::new([client.lock("a"), client.lock("b").with_lease(short), client.lock("c")]).unwrap();
    let started = Stopwatch::start();
    let guard = multi.lock().await.unwrap();
    assert!(guard.validity() <= short && guard.deadline() <= Instant::now() + short);
    assert_eq!(lost(&guard).await, HoldState::Lost(LossReason::Expired));
    assert!(started.is_within(Duration::from_millis(350)..Duration::from_millis(900)), "{started:?}");
    eventually(|| keys(&server).is_empty()).await;
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));

    let guard = multi.with_lease(Duration::from_secs(5)).lock().await.unwrap();
    for name in ["a", "b", "c"] {
        assert!((4000..=5000).contains(&ttl(&server, name)), "{name}: {}", ttl(&server, name));
    }
    assert!(guard.validity() > Duration::from_secs(4));
    guard.unlock().await.unwrap();
}

/// However long the acquire waits for one member, most of the lease must be left at the end. With 60 members, the waits
/// would otherwise add up to more than the lease while the first one is held.
#[tokio::test]
async fn waiting_for_a_member_uses_at_most_a_quarter_of_the_lease() {
    let server = Server::start();
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let lease = Duration::from_millis(1200);
    let names: Vec<_> = (0..60).map(|n| format!("{n:02}")).collect();
    let multi = MultiLock::new(names.iter().map(|name| client.lock(name))).unwrap().with_lease(lease);
    for freed_after in [100, 200, 280, 320, 400, 480, 560] {
        let held = other.lock(names.last().unwrap()).lock().await.unwrap();
        let (multi, watch) = (multi.clone(), Stopwatch::start());
        let waiting = tokio::spawn(async move { multi.lock().await.unwrap() });
        tokio::time::sleep(Duration::from_millis(freed_after)).await;
        held.unlock().await.unwrap();
        let guard = waiting.await.unwrap();
        let used = watch.since(guard.deadline() - lease);
        println!("freed after {freed_after} ms, {used:?} of the lease are used");
        assert!(used < lease * 4 / 10, "{freed_after}: {used:?}");
        guard.unlock().await.unwrap();
    }
}

/// A long wait for one lock must not keep the others from clients that want only those.
#[tokio::test]
async fn a_wait_for_a_busy_member_holds_no_other_member() {
    let server = Server::start();
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let held = other.lock("b").lock().await.unwrap();
    let multi = of(&client, &["a", "b", "c"]);
    let waiting = tokio::spawn(async move {
        let guard = multi.lock().await.unwrap();
        let entered = Instant::now();
        guard.unlock().await.unwrap();
        entered
    });
    eventually(|| keys(&server) == ["b"] && subscribers(&server, "redisson_lock__channel:{b}") == 1).await;
    let mut looks = 0;
    let started = Instant::now();
    // The client probes a busy member after 10, 30, 70, 150, 310, 630 and 1270 ms. The message must wake it before the last of
    // these probes.
    while started.elapsed() < Duration::from_millis(700) {
        assert_eq!(keys(&server), ["b"]);
        looks += 1;
    }
    assert!(looks > 20);
    let (watch, freed) = (Stopwatch::start(), Instant::now());
    held.unlock().await.unwrap();
    let took = watch.between(freed, waiting.await.unwrap());
    assert!(took < Duration::from_millis(400), "{took:?}");
}

/// A wait that ends while the server of the second member is silent ends as busy only if the busy first member has used up most of the time.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_reported_unless_a_busy_member_used_up_the_time() {
    // Shorter than the response timeout.
    const WAIT: Duration = Duration::from_millis(2500);
    for busy_for in [Duration::ZERO, Duration::from_millis(1500)] {
        let server = Server::start();
        let proxy = Proxy::start(server.port()).await;
        let (client, other) =
            (Client::connect(proxy.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
        let held = other.lock("a").lock().await.unwrap();
        proxy.shut_gate_after(0, |words| words.iter().any(|word| word == b"b"));
        let multi = of(&client, &["a", "b"]);
        let waiting = tokio::spawn(async move { multi.try_lock_for(WAIT).await });
        eventually(|| subscribers(&server, "redisson_lock__channel:{a}") == 1).await;
        tokio::time::sleep(busy_for).await;
        held.unlock().await.unwrap();
        proxy.stopped().await;
        let ended = waiting.await.unwrap();
        match busy_for.is_zero() {
            true => assert!(matches!(ended, Err(Error::TimedOut { .. })), "{ended:?}"),
            false => assert!(matches!(ended, Ok(None)), "{ended:?}"),
        }
        proxy.open_gate();
        eventually(|| keys(&server).is_empty()).await;
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_reported_or_awaited() {
    let (one, mut two) = (Server::start(), Server::start());
    let (here, there) =
        (Client::connect(one.url()).await.unwrap(), Client::connect(two.url()).await.unwrap());
    let multi = MultiLock::new([here.lock("a"), there.lock("b"), here.lock("c")]).unwrap();
    two.kill();
    let started = Stopwatch::start();
    let failed = multi.try_lock_for(Duration::from_millis(500)).await;
    let took = started.elapsed();
    assert!(matches!(failed, Err(Error::Unavailable { .. } | Error::TimedOut { .. })), "{failed:?}");
    assert!(took < Duration::from_millis(700), "{took:?}");
    eventually(|| keys(&one).is_empty()).await;

    let waiting = tokio::spawn(async move { multi.lock().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    two.restart();
    let guard = waiting.await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert!(keys(&one).is_empty() && keys(&two).is_empty());
}

/// A server that runs a long script is up, and refuses other requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_with_a_script_is_awaited() {
    let (one, two) = (Server::start(), Server::start());
    let hasty = Client::builder().response_timeout(Duration::from_millis(300));
    let (here, there) =
        (hasty.clone().connect(one.url()).await.unwrap(), hasty.connect(two.url()).await.unwrap());
    // Locks are acquired in the order of their servers.
    let (first, second) = if one.url() < two.url() { (&one, &two) } else { (&two, &one) };
    second.configure("lua-time-limit", "50");
    let script = EndlessScript::start(second).await;
    let multi = MultiLock::new([here.lock("a"), there.lock("b")]).unwrap();
    let waiting = tokio::spawn(async move { multi.lock().await });
    // The first lock is freed when the second one has not been granted in time.
    eventually(|| !keys(first).is_empty()).await;
    eventually(|| keys(first).is_empty()).await;
    script.kill();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
}

/// The runtime of the caller may end while the guard lives.
#[test]
fn the_rest_is_freed_although_the_runtime_of_the_caller_is_gone() {
    let server = Server::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connecting = Client::builder().watchdog_timeout(LEASE).connect(server.url());
    let client = runtime.block_on(connecting).unwrap();
    let multi = of(&client, &["a", "b"]);
    let caller = tokio::runtime::Runtime::new().unwrap();
    let guard = caller.block_on(multi.lock()).unwrap();
    drop(caller);
    runtime.block_on(async {
        assert!(client.lock("a").force_unlock().await.unwrap());
        eventually(|| keys(&server).is_empty()).await;
        assert!(guard.unlock().await.unwrap_err().is_lost());
    });
}

/// Adds 1 to the counter of each lock by a read and a write.
async fn add(counting: &mut redis::aio::MultiplexedConnection, names: &[&str]) {
    let mut read = BTreeMap::new();
    for name in names {
        let value: Option<u64> =
            redis::cmd("GET").arg(format!("count:{name}")).query_async(counting).await.unwrap();
        read.insert(name, value.unwrap_or(0));
    }
    for (name, value) in read {
        redis::cmd("SET").arg(format!("count:{name}")).arg(value + 1).exec_async(counting).await.unwrap();
    }
}

fn counted(server: &Server, name: &str) -> usize {
    redis::cmd("GET").arg(format!("count:{name}")).query(&mut server.cli()).unwrap()
}

async fn counting(server: &Server) -> redis::aio::MultiplexedConnection {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// Returns the results of all tasks, which must end within an ample limit.
async fn in_time<T: 'static>(tasks: JoinSet<T>) -> Vec<T> {
    tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("the tasks make progress")
}

/// The sets overlap and are named in opposite orders, and some locks are taken alone.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_sets_exclude_each_other_without_deadlock() {
    const EACH: usize = 30;
    const SETS: [&[&str]; 7] =
        [&["a", "b"], &["b", "a"], &["b", "c"], &["c", "a"], &["c", "b", "a"], &["a"], &["b"]];
    let server = Server::start();
    let clients =
        [Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap()];
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for client in &clients {
        for names in SETS.iter().chain(&SETS) {
            let (multi, mut counting) = (of(client, names), counting(&server).await);
            tasks.spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..EACH {
                    let asked = Instant::now();
                    let guard = multi.lock().await.unwrap();
                    longest = longest.max(asked.elapsed());
                    add(&mut counting, names).await;
                    guard.unlock().await.unwrap();
                }
                longest
            });
        }
    }
    let longest = in_time(tasks).await.into_iter().max().unwrap();
    println!("all in {:?}, the longest wait {longest:?}", started.elapsed());
    for name in ["a", "b", "c"] {
        let wanted = SETS.iter().filter(|set| set.contains(&name)).count() * 2 * clients.len() * EACH;
        assert_eq!(counted(&server, name), wanted, "{name}: increments were lost");
    }
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    eventually(|| keys(&server).iter().all(|key| key.starts_with("count:"))).await;
    eventually(|| channels(&server).is_empty()).await;
}

/// Of two clients that hold what the other wants, the one that goes by the order of the locks makes progress.
#[tokio::test(flavor = "multi_thread")]
async fn dining_philosophers_all_eat() {
    const SEATS: usize = 5;
    let server = Server::start();
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for seat in 0..SEATS {
        let client = Client::connect(server.url()).await.unwrap();
        let forks = [seat, (seat + 1) % SEATS].map(|fork| client.lock(format!("fork:{fork}")));
        let multi = MultiLock::new(forks).unwrap();
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = multi.lock().await.unwrap();
                // Longer than the initial patience of any acquire.
                tokio::time::sleep(Duration::from_millis(120)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    in_time(tasks).await;
    let took = started.elapsed();
    println!("{SEATS} philosophers have eaten in {took:?}");
    // Two at a time would take 1.5 s.
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Patience grows, so an acquire of both locks does not starve, although other clients rarely leave one free.
#[tokio::test(flavor = "multi_thread")]
async fn seldom_free_members_are_acquired_eventually() {
    let server = Server::start();
    let (client, other) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let mut crowd = JoinSet::new();
    for name in ["a", "a", "a", "b", "b", "b"] {
        let lock = other.lock(name);
        crowd.spawn(async move {
            loop {
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    eventually(|| keys(&server) == ["a", "b"]).await;
    for _ in 0..3 {
        let started = Instant::now();
        let guard = of(&client, &["a", "b"]).try_lock_for(Duration::from_secs(15)).await.unwrap();
        let guard = guard.expect("both become free in time");
        println!("got both after {:?}", started.elapsed());
        guard.unlock().await.unwrap();
    }
}

fn of_two_locks(words: &Words) -> bool {
    const BY_THE_CLOCK: [&[u8]; 3] = [b"HSCAN", b"PING", b"UNSUBSCRIBE"];
    let named = |word: &Vec<u8>| ["n", "m", "{n}", "{m}"].iter().any(|name| word.ends_with(name.as_bytes()));
    words.iter().any(named) && !BY_THE_CLOCK.contains(&words[0].as_slice())
}

/// Drops the acquire at the same points as `kinds_cancelled`, while another client holds one of the locks. Nothing may
/// be left, and the next client must get the locks.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let (bench, tally) = (DropBench::start().await, Tally::default());
    for (position, busy) in [("the first is busy", "m"), ("the last is busy", NAME)] {
        for_each_cut(&tally, ("MultiLock::lock", position), &CutAt::SERIES, async |drop_point| {
            let held = bench.other.lock(busy).lock().await.unwrap();
            let owner = Owner::new("caller").unwrap();
            let multi = of(&bench.near, &[NAME, "m"]).with_owner(&owner);
            shut_gate(&bench.proxy, drop_point.cut, of_two_locks);
            // Held past the first round's patience, so that a round that fails is covered, too.
            let free = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(40)).await;
                held.unlock().await.unwrap();
            });
            let guard = drop_at(&bench.proxy, drop_point.cut, multi.lock(), || {}).await;
            let dropped = guard.is_none();
            bench.proxy.open_gate();
            drop(guard);
            free.await.unwrap();
            for name in [NAME, "m"] {
                // Well before a lease would free it.
                let next = bench.far.lock(name).try_lock_for(LEASE_THERE / 2).await;
                let Ok(Some(next)) = next else {
                    panic!("{drop_point}: {name} is not free: {next:?}, {bench:?}")
                };
                next.unlock().await.unwrap();
            }
            bench.at_rest(&drop_point).await;
            assert!(keys(&bench.server).is_empty(), "{drop_point}: {:?}", keys(&bench.server));
            dropped
        })
        .await;
    }
    tally.at_least([
        ("MultiLock::lock", "the first is busy", 16),
        ("MultiLock::lock", "the last is busy", 16),
    ]);
}

#[test]
fn threads_exclude_each_other_with_a_multi_lock() {
    let server = Server::start();
    let (one, two) =
        (blocking::Client::connect(server.url()).unwrap(), blocking::Client::connect(server.url()).unwrap());
    let multi = blocking::MultiLock::new([one.lock("a"), two.lock("b")]).unwrap();
    let guard = multi.lock().unwrap();
    assert_eq!((guard.state(), guard.members().len()), (HoldState::Held, 2));
    let other = multi.clone();
    let busy = std::thread::spawn(move || other.try_lock_for(Duration::from_millis(50)).unwrap().is_none());
    assert!(busy.join().unwrap());
    let again = multi.with_lease(Duration::from_secs(9)).try_lock().unwrap().expect("it is the same thread");
    again.unlock().unwrap();
    drop((one, two, multi));
    guard.unlock().unwrap();
    assert!(keys(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_exclude_and_wake_each_other() {
    const ROUNDS: usize = 30;
    for version in versions() {
        let server = Server::start();
        let java_client = Java::get(&version).client(&server, 0).await;
        let (java, other) = (java_client.thread("t"), java_client.thread("u"));
        let members = [(&java_client, "plain", "b"), (&java_client, "plain", "a")];
        java.combine("multi", "both", &members).await.unwrap();
        let client = Client::connect(server.url()).await.unwrap();
        let multi = of(&client, &["a", "b"]);

        // Java's multi lock excludes ours, and our locks on its members.
        java.lock("multi", "both").await.unwrap();
        assert!(multi.try_lock().await.unwrap().is_none(), "{version}");
        assert!(client.lock("a").try_lock().await.unwrap().is_none(), "{version}");
        assert!(client.lock("b").try_lock().await.unwrap().is_none(), "{version}");
        java.unlock("multi", "both").await.unwrap();
        // Ours excludes Java's, and Java's locks on its members.
        let guard = multi.lock().await.unwrap();
        assert!(!java.try_lock("multi", "both").await.unwrap(), "{version}");
        for name in ["a", "b"] {
            assert!(!other.try_lock("plain", name).await.unwrap(), "{version}");
            assert!(other.is_locked("plain", name).await.unwrap());
        }
        guard.unlock().await.unwrap();
        // One member that Java holds is enough, whichever it is.
        for name in ["a", "b"] {
            other.lock("plain", name).await.unwrap();
            assert!(multi.try_lock().await.unwrap().is_none(), "{version}: {name}");
            other.unlock("plain", name).await.unwrap();
        }

        // Java's release wakes us, both of the whole and of the one missing member.
        for (kind, name, channel) in [("multi", "both", "a"), ("plain", "a", "a"), ("plain", "b", "b")] {
            let mut took = WakeUps::new();
            for _ in 0..ROUNDS {
                java.lock(kind, name).await.unwrap();
                let multi = multi.clone();
                let waiting = tokio::spawn(async move {
                    let guard = multi.lock().await.unwrap();
                    let entered = monotonic_ns();
                    guard.unlock().await.unwrap();
                    entered
                });
                let channel = format!("redisson_lock__channel:{{{channel}}}");
                eventually(|| subscribers(&server, &channel) == 1).await;
                // By then we have probed the holder after 10, 30, 70 and 150 ms, and the next probe is far away.
                tokio::time::sleep(Duration::from_millis(170)).await;
                let unlocked = java.unlock(kind, name).await;
                took.add(unlocked.started_ns, waiting.await.unwrap());
                unlocked.unwrap();
            }
            took.assert_below(WOKEN, &format!("{version}: Java's unlock of {name} to Rust's multi lock"));
        }

        // Our release wakes Java.
        let mut took = WakeUps::new();
        for _ in 0..ROUNDS {
            let guard = multi.lock().await.unwrap();
            let waiting = java.lock("multi", "both");
            eventually(|| subscribers(&server, "redisson_lock__channel:{b}") == 1).await;
            let unlocking = monotonic_ns();
            guard.unlock().await.unwrap();
            let entered = waiting.await;
            took.add(unlocking, entered.done_ns);
            entered.unwrap();
            java.unlock("multi", "both").await.unwrap();
        }
        took.assert_below(WOKEN, &format!("{version}: Rust's unlock to Java's multi lock"));
        assert!(keys(&server).is_empty(), "{version}: {:?}", keys(&server));
    }
}

/// Java takes its members in the order in which it got them, which is the opposite of ours.
#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_in_opposite_orders_do_not_deadlock() {
    const EACH: usize = 30;
    for version in versions() {
        let server = Server::start();
        let java_client = Java::get(&version).client(&server, 0).await;
        let client = Client::connect(server.url()).await.unwrap();
        let mut loops = Vec::new();
        let started = Instant::now();
        for n in 0..3 {
            let java = java_client.thread(&format!("t{n}"));
            let members = [(&java_client, "plain", "b"), (&java_client, "plain", "a")];
            java.combine("multi", "both", &members).await.unwrap();
            loops.push(java.loop_("multi", "both", EACH as u32, "count:a", Duration::ZERO));
        }
        let mut tasks = JoinSet::new();
        for _ in 0..6 {
            let (multi, mut counting) = (of(&client, &["a", "b"]), counting(&server).await);
            tasks.spawn(async move {
                for _ in 0..EACH {
                    let guard = multi.lock().await.unwrap();
                    add(&mut counting, &["a"]).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        in_time(tasks).await;
        let rust = started.elapsed();
        for running in loops {
            running.await.unwrap();
        }
        println!("{version}: Rust was done in {rust:?}, Java in {:?}", started.elapsed());
        assert_eq!(counted(&server, "a"), 9 * EACH, "{version}: increments were lost");
        assert!(rust < Duration::from_secs(30), "{version}: {rust:?}");
    }
}
