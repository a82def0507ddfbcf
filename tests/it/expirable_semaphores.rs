//! Expirable semaphores among Rust clients: permits with ids and leases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::poll;
use redisson_lock::{Client, Error, ExpirableSemaphore, HandOff, HoldState, LossReason};
use tokio::task::JoinSet;

use crate::support::raw::NAME;
use crate::support::worker::Worker;
use crate::support::{RawRedis, Server, Stopwatch, eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";
const TIMEOUTS: &str = "{n}:timeout";
const PROMPT: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_millis(900);
/// The score of a permit without a lease.
const NEVER: f64 = 922_337_203_685_477.0;

struct Bench {
    server: Server,
    raw: RawRedis,
    semaphore: ExpirableSemaphore,
}

impl Bench {
    /// Creates a semaphore with this number of permits and a watchdog timeout of [`LEASE`].
    async fn of(permits: u32) -> Self {
        let server = Server::start();
        let semaphore = connect_semaphore(&server).await;
        assert!(semaphore.try_set_permits(permits).await.unwrap());
        Self { raw: RawRedis::of(&server), semaphore, server }
    }

    /// The ids of the acquired permits, each with the end of its lease in ms since the epoch.
    fn taken(&self) -> BTreeMap<Vec<u8>, f64> {
        let taken: Vec<(Vec<u8>, f64)> = self.raw.run(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"]);
        taken.into_iter().collect()
    }

    fn now(&self) -> f64 {
        let (seconds, micros): (f64, f64) = self.raw.run(&["TIME"]);
        seconds * 1000.0 + micros / 1000.0
    }
}

async fn connect_semaphore(server: &Server) -> ExpirableSemaphore {
    let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
    client.expirable_semaphore(NAME)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_never_holds_more_permits_than_exist() {
    const PERMITS: i64 = 5;
    let bench = Bench::of(PERMITS as u32).await;
    let (held, most) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let mut tasks = JoinSet::new();
    for semaphore in [bench.semaphore.clone(), connect_semaphore(&bench.server).await] {
        for task in 0..6 {
            let (semaphore, held, most) = (semaphore.clone(), held.clone(), most.clone());
            tasks.spawn(async move {
                for round in 0..25u32 {
                    let permits = (task + round) % 4 + 1;
                    let permit = semaphore.acquire_many(permits).await.unwrap();
                    assert_eq!(permit.ids().len(), permits as usize);
                    let now = held.fetch_add(permits.into(), SeqCst) + i64::from(permits);
                    most.fetch_max(now, SeqCst);
                    tokio::task::yield_now().await;
                    assert_eq!(permit.state(), HoldState::Held);
                    held.fetch_sub(permits.into(), SeqCst);
                    match round % 2 {
                        0 => permit.release().await.unwrap(),
                        _ => drop(permit),
                    }
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let most = most.load(SeqCst);
    assert!((2..=PERMITS).contains(&most), "{most} permits at once");
    eventually(|| bench.raw.value() == Some(PERMITS)).await;
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

#[tokio::test]
async fn permit_ids_are_the_recorded_ids_in_hexadecimal() {
    let bench = Bench::of(1001).await;
    let permit = bench.semaphore.acquire_many(3).await.unwrap();
    let ids = permit.ids();
    let mut members: Vec<String> = Vec::new();
    for (id, ends) in bench.taken() {
        assert_eq!(id.len(), 16);
        assert!(id.iter().all(u8::is_ascii_graphic), "{id:?}");
        let left = ends - bench.now();
        // The script rounds the server's clock down and adds a millisecond, so the end of the lease may be that much later.
        assert!((0.0..=LEASE.as_millis() as f64 + 1.0).contains(&left), "{left}");
        members.push(id.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    members.sort();
    let mut sorted = ids.clone();
    sorted.sort();
    assert_eq!(sorted, members);
    permit.release().await.unwrap();
    // Each permit of the largest allowed request has an id of its own.
    let permit = bench.semaphore.without_lease().acquire_many(1000).await.unwrap();
    assert_eq!((bench.taken().len(), bench.raw.value()), (1000, Some(1)));
    assert!(bench.taken().values().all(|&ends| ends == NEVER));
    permit.release().await.unwrap();
    for misuse in [
        bench.semaphore.acquire_many(1001).await.err(),
        bench.semaphore.acquire_many(0).await.err(),
        bench.semaphore.try_acquire_many(0).await.err(),
        bench.semaphore.try_acquire_many(1001).await.err(),
        bench.semaphore.try_acquire_for(Duration::MAX).await.err(),
        bench.semaphore.try_acquire_many_for(1001, Duration::ZERO).await.err(),
        bench.semaphore.with_lease(Duration::ZERO).acquire().await.err(),
        bench.semaphore.with_lease(Duration::MAX).try_acquire().await.err(),
    ] {
        assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    }
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

/// An attempt takes all of its permits or none, whether it waits or not.
#[tokio::test]
async fn attempts_for_several_permits_take_all_or_none() {
    let bench = Bench::of(2).await;
    // Long enough for the server to answer, even if this machine stalls for a moment.
    let (semaphore, wait) = (&bench.semaphore, Duration::from_secs(1));
    assert!(semaphore.try_acquire_many(3).await.unwrap().is_none());
    assert!(semaphore.try_acquire_many_for(3, wait).await.unwrap().is_none());
    let both = semaphore.try_acquire_many(2).await.unwrap().expect("both are free");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert!(semaphore.try_acquire_for(wait).await.unwrap().is_none());
    assert_eq!((bench.raw.value(), bench.taken().len()), (Some(0), 2));
    both.release().await.unwrap();
    let both = semaphore.try_acquire_many_for(2, wait).await.unwrap().expect("both are free again");
    both.release().await.unwrap();
    semaphore.try_acquire_for(wait).await.unwrap().expect("one is free").release().await.unwrap();
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

/// The id is all that another process needs.
#[tokio::test]
async fn another_process_releases_and_extends_a_permit_by_its_id() {
    let bench = Bench::of(3).await;
    let (ours, other) = (&bench.semaphore, connect_semaphore(&bench.server).await);
    let permit = ours.without_lease().acquire().await.unwrap();
    let id = permit.ids().remove(0);
    assert_eq!((other.permits().await.unwrap(), other.acquired_permits().await.unwrap()), (3, 1));
    assert_eq!(other.remaining_lease(&id).await.unwrap(), Some(Duration::MAX));
    assert!(other.update_lease(&id, LEASE).await.unwrap());
    let left = other.remaining_lease(&id).await.unwrap().expect("it is taken");
    // The end of the lease is rounded up.
    assert!(left <= LEASE + Duration::from_millis(1), "{left:?}");
    assert!(other.release(id.to_uppercase()).await.unwrap());
    assert!(!other.release(&id).await.unwrap() && !other.update_lease(&id, LEASE).await.unwrap());
    assert_eq!(other.remaining_lease(&id).await.unwrap(), None);
    assert!(matches!(permit.release().await, Err(Error::Lost { reason: LossReason::Gone, .. })));
    // The numbers count taken permits, too.
    let two = ours.acquire_many(2).await.unwrap();
    assert_eq!((other.set_permits(1).await.unwrap(), other.permits().await.unwrap()), (-1, 1));
    two.release().await.unwrap();
    assert_eq!((bench.raw.value(), other.acquired_permits().await.unwrap()), (Some(1), 0));
    for misuse in [
        other.release("").await.err(),
        other.release(&id[1..]).await.err(),
        other.release(format!("+{}", &id[1..])).await.err(),
        other.remaining_lease(format!("{id}0")).await.err(),
        other.update_lease("鎖", LEASE).await.err(),
        other.update_lease(&id, Duration::ZERO).await.err(),
    ] {
        assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    }
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

/// No message is published when a lease expires, so a waiter retries at the earliest expiry.
#[tokio::test]
async fn a_waiter_gets_the_permit_when_the_earliest_lease_expires() {
    let watch = Stopwatch::start();
    let bench = Bench::of(2).await;
    let other = connect_semaphore(&bench.server).await;
    let early = other.with_lease(Duration::from_millis(500)).acquire().await.unwrap();
    let ends = early.deadline();
    early.forget();
    other.with_lease(Duration::from_secs(60)).acquire().await.unwrap().forget();
    assert!(bench.semaphore.try_acquire().await.unwrap().is_none());
    let scripts = bench.server.scripts();
    let permit = bench.semaphore.try_acquire_for(LEASE * 5).await.unwrap().expect("a lease has expired");
    assert!(Instant::now() >= ends);
    assert!(watch.since(ends) < PROMPT, "{:?}", watch.since(ends));
    let scripts = bench.server.scripts() - scripts;
    assert!(scripts <= 5, "{scripts} attempts");
    permit.release().await.unwrap();
    assert_eq!((bench.raw.value(), bench.taken().len()), (Some(1), 1));
    // A query collects expired permits, too, and notifies the waiters.
    bench.raw.run::<()>(&["ZADD", TIMEOUTS, "1", "a foreign id"]);
    bench.raw.messages();
    assert_eq!(bench.semaphore.available_permits().await.unwrap(), 2);
    assert_eq!((bench.raw.messages_on(CHANNEL), bench.taken().len()), (vec!["2".to_owned()], 1));
}

/// A copy of its status does not keep the renewal alive.
#[tokio::test]
async fn a_forgotten_permit_is_not_renewed() {
    let watch = Stopwatch::start();
    let bench = Bench::of(1).await;
    let permit = bench.semaphore.acquire().await.unwrap();
    let (status, ends) = (permit.status(), permit.deadline());
    permit.forget();
    let other = connect_semaphore(&bench.server).await;
    let next = other.try_acquire_for(LEASE * 4).await.unwrap().expect("the permit was renewed");
    assert!(Instant::now() >= ends && watch.since(ends) < PROMPT, "{:?}", watch.since(ends));
    assert!(!status.state().is_live());
    next.release().await.unwrap();
}

/// Another process may have extended its lease, so the client that forgot it does not release it at the end of the first lease.
#[tokio::test]
async fn a_forgotten_permit_stays_with_whoever_extends_its_lease() {
    let bench = Bench::of(1).await;
    let client = Client::connect(bench.server.url()).await.unwrap();
    let other = connect_semaphore(&bench.server).await;
    let permit = client.expirable_semaphore(NAME).with_lease(LEASE).acquire().await.unwrap();
    let (status, ids) = (permit.status(), permit.ids());
    permit.forget();
    assert!(other.update_lease(&ids[0], LEASE * 100).await.unwrap());
    assert_eq!(status.lost().await, HoldState::Lost(LossReason::Expired));
    // Waits for all releases of the client.
    client.close().await;
    assert_eq!(bench.taken().len(), 1);
    assert!(other.release(&ids[0]).await.unwrap());
}

/// No message tells that a lease was shortened.
#[tokio::test]
async fn a_waiter_gets_the_permit_whose_lease_was_shortened() {
    let bench = Bench::of(1).await;
    let other = connect_semaphore(&bench.server).await.with_lease(Duration::from_secs(3600));
    let permit = other.acquire().await.unwrap();
    let hasty = Client::builder().watchdog_timeout(Duration::from_secs(1));
    let semaphore = hasty.connect(bench.server.url()).await.unwrap().expirable_semaphore(NAME);
    let waiting = tokio::spawn(async move { semaphore.try_acquire_for(Duration::from_secs(20)).await });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    assert!(other.update_lease(&permit.ids()[0], Duration::from_millis(100)).await.unwrap());
    waiting.await.unwrap().unwrap().expect("the permit is free").release().await.unwrap();
    permit.forget();
}

#[tokio::test]
async fn a_permit_without_a_lease_never_expires() {
    let bench = Bench::of(1).await;
    let permit = bench.semaphore.without_lease().acquire().await.unwrap();
    bench.server.commandstats_reset();
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(permit.state(), HoldState::Held);
    assert_eq!(bench.taken().into_values().collect::<Vec<_>>(), [NEVER]);
    assert_eq!(bench.server.scripts(), 0, "a permit was renewed");
    let other = connect_semaphore(&bench.server).await;
    assert!(other.try_acquire().await.unwrap().is_none());
    let waiting =
        tokio::spawn(async move { other.try_acquire_for(LEASE * 5).await.unwrap().expect("it is free") });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    permit.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

#[tokio::test]
async fn the_permit_of_a_dead_process_is_recovered() {
    let bench = Bench::of(1).await;
    let lease = LEASE.as_millis().to_string();
    let mut worker = Worker::start(&["permit", &bench.server.url(), NAME, &lease]);
    let id = worker.line().await;
    assert!(id.starts_with("held "), "{id}");
    tokio::time::sleep(LEASE * 2).await;
    assert!(bench.semaphore.try_acquire().await.unwrap().is_none());
    worker.kill().await;
    let killed = Stopwatch::start();
    let permit =
        bench.semaphore.try_acquire_for(LEASE * 5).await.unwrap().expect("the permit was not recovered");
    assert!(killed.elapsed() < LEASE + PROMPT, "{:?}", killed.elapsed());
    permit.release().await.unwrap();
    assert_eq!(bench.raw.value(), Some(1));
}

/// The reply that the permits are taken tells the lease of the first holder. The one that they passed to has a shorter lease, and does not
/// release them.
#[tokio::test]
async fn a_permit_that_passed_and_was_forgotten_is_free_when_its_own_lease_ends() {
    let bench = Bench::of(1).await;
    let client = Client::connect(bench.server.url()).await.unwrap();
    let ours = client.expirable_semaphore(NAME);
    let held = ours.with_lease(Duration::from_secs(3600)).acquire().await.unwrap();
    let short = ours.with_lease(LEASE);
    let second = tokio::spawn(async move { short.acquire().await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    let third = tokio::spawn(async move { ours.try_acquire_for(LEASE * 9).await.unwrap() });
    eventually(|| client.stats().waiting == 2).await;
    held.release().await.unwrap();
    second.await.unwrap().forget();
    let permit = third.await.unwrap().expect("the lease of the second holder has ended");
    permit.release().await.unwrap();
}

/// As above, for a waiter of another client, which hears nothing of a permit that passes.
#[tokio::test]
async fn a_permit_with_a_longer_lease_does_not_pass_to_a_shorter_one() {
    let bench = Bench::of(1).await;
    let ours = Client::connect(bench.server.url()).await.unwrap();
    let other = Client::connect(bench.server.url()).await.unwrap();
    let held = ours.expirable_semaphore(NAME).with_lease(Duration::from_secs(3600)).acquire().await.unwrap();
    let short = ours.expirable_semaphore(NAME).with_lease(LEASE);
    let second = tokio::spawn(async move { short.acquire().await.unwrap().forget() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    let theirs = other.expirable_semaphore(NAME);
    let third = tokio::spawn(async move { theirs.try_acquire_for(LEASE * 9).await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 2).await;
    // It has looked, and knows how long the permit is taken.
    let before = bench.server.calls("get");
    eventually(|| bench.server.calls("get") >= before + 4).await;
    held.release().await.unwrap();
    third.await.unwrap().expect("the lease of the second holder has ended").release().await.unwrap();
    second.await.unwrap();
}

/// Each task gets ids of its own, because another program may know those of the previous holder.
#[tokio::test]
async fn permits_pass_to_tasks_of_the_same_client_with_new_ids() {
    const TASKS: usize = 12;
    let bench = Bench::of(2).await;
    // The number of waiters alone ends a series, however slow this machine is.
    let hand_off = HandOff::new().max_time(LEASE * 99).max_time_alone(LEASE * 99);
    let builder = Client::builder().watchdog_timeout(LEASE).hand_off(hand_off);
    let ours = builder.connect(bench.server.url()).await.unwrap().expirable_semaphore(NAME);
    let held = ours.acquire_many(2).await.unwrap();
    let ids = Arc::new(Mutex::new(vec![held.ids()]));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (semaphore, ids) = (ours.clone(), ids.clone());
        // A hand-off begins the lease of its waiter, which is not shorter.
        let is_long = task >= TASKS / 2;
        let semaphore = if is_long { semaphore.with_lease(LEASE * 9) } else { semaphore };
        tasks.spawn(async move {
            let permit = semaphore.acquire_many(2).await.unwrap();
            ids.lock().unwrap().push(permit.ids());
            let left = permit.deadline() - Instant::now();
            assert!(if is_long { left > LEASE * 8 } else { left <= LEASE }, "{task}: {left:?}");
            match task % 2 {
                0 => permit.release().await.unwrap(),
                _ => drop(permit),
            }
            task
        });
        tokio::task::yield_now().await;
    }
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.server.commandstats_reset();
    held.release().await.unwrap();
    let mut order = Vec::new();
    while let Some(task) = tasks.join_next().await {
        order.push(task.unwrap());
    }
    assert_eq!(order, Vec::from_iter(0..TASKS));
    let ids: BTreeSet<String> = ids.lock().unwrap().iter().flatten().cloned().collect();
    assert_eq!(ids.len(), 2 * (TASKS + 1), "an id was used twice");
    eventually(|| bench.raw.value() == Some(2)).await;
    assert!(bench.taken().is_empty());
    // This test subscribes, too, so it counts as another client, and a series has at most as many hand-offs as there are waiters.
    let releases = bench.server.calls("incrby");
    assert!(releases <= 4, "{releases} releases of {TASKS} holds");
}

/// One request passes the permits of all holders that release at the same time.
#[tokio::test]
async fn permits_that_are_released_together_pass_together() {
    const PERMITS: u64 = 5;
    let bench = Bench::of(PERMITS as u32).await;
    let mut held = Vec::new();
    for _ in 0..PERMITS {
        held.push(bench.semaphore.acquire().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for _ in 0..3 * PERMITS {
        let semaphore = bench.semaphore.clone();
        tasks.spawn(async move { semaphore.acquire().await.unwrap() });
    }
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.server.commandstats_reset();
    drop(held);
    let mut next = Vec::new();
    for _ in 0..PERMITS {
        next.push(tasks.join_next().await.unwrap().unwrap());
    }
    assert_eq!((bench.server.calls("incrby"), bench.taken().len() as u64), (0, PERMITS));
    assert_eq!(bench.server.calls("zrem"), 1, "several requests");
    tasks.shutdown().await;
    drop(next);
    eventually(|| bench.raw.value() == Some(PERMITS as i64)).await;
    assert!(bench.taken().is_empty());
}

/// A Lua function accepts a limited number of arguments, so the holders with many permits share several requests.
#[tokio::test]
async fn thousands_of_permits_that_are_released_together_pass() {
    const HOLDERS: u32 = 6;
    const EACH: u32 = 1000;
    let server = Server::start();
    // The machine may stall during the series of hand-offs.
    let long = Duration::from_secs(60);
    let builder = Client::builder().hand_off(HandOff::new().max_time(long).max_time_alone(long));
    let semaphore = builder.connect(server.url()).await.unwrap().expirable_semaphore(NAME);
    assert!(semaphore.try_set_permits(HOLDERS * EACH).await.unwrap());
    let mut held = Vec::new();
    for _ in 0..HOLDERS {
        held.push(semaphore.acquire_many(EACH).await.unwrap());
    }
    let mut tasks = JoinSet::new();
    // A series of hand-offs is at most as long as the number of waiters.
    for _ in 0..3 * HOLDERS {
        let semaphore = semaphore.clone();
        tasks.spawn(async move { semaphore.acquire_many(EACH).await.unwrap() });
    }
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.commandstats_reset();
    drop(held);
    let mut next = Vec::new();
    for _ in 0..HOLDERS {
        next.push(tasks.join_next().await.unwrap().unwrap());
    }
    assert_eq!(server.calls("incrby"), 0, "permits were released");
    tasks.shutdown().await;
    drop(next);
    let raw = RawRedis::of(&server);
    eventually(|| raw.value() == Some(i64::from(HOLDERS * EACH))).await;
    assert!(!raw.run::<bool>(&["EXISTS", TIMEOUTS]));
}

/// The holder learns of the loss, and the waiter gets no permit that does not exist.
#[tokio::test]
async fn a_lost_permit_does_not_pass_to_a_task() {
    let bench = Bench::of(1).await;
    let held = bench.semaphore.with_lease(Duration::from_secs(60)).acquire().await.unwrap();
    let semaphore = bench.semaphore.clone();
    let waiting = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    // A message would make the waiter look.
    bench.raw.run::<()>(&["DEL", TIMEOUTS]);
    assert!(matches!(held.release().await, Err(Error::Lost { reason: LossReason::Gone, .. })));
    assert!(bench.taken().is_empty() && !waiting.is_finished());
    bench.raw.run::<()>(&["INCR", NAME]);
    bench.raw.run::<()>(&["PUBLISH", CHANNEL, "1"]);
    waiting.await.unwrap().release().await.unwrap();
    assert_eq!(bench.raw.value(), Some(1));
}

/// Another client may release a permit by its id.
#[tokio::test]
async fn a_permit_released_elsewhere_is_lost_and_the_rest_is_released() {
    let bench = Bench::of(3).await;
    let take_away = |id: &str| {
        let bytes = (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap());
        let raw = String::from_utf8(bytes.collect()).unwrap();
        assert_eq!(bench.raw.run::<u64>(&["ZREM", TIMEOUTS, &raw]), 1);
        bench.raw.run::<()>(&["INCR", NAME]);
    };
    // The watchdog finds the loss.
    let permit = bench.semaphore.acquire_many(2).await.unwrap();
    take_away(&permit.ids()[1]);
    let state = tokio::time::timeout(LEASE / 3 + PROMPT, permit.lost()).await.unwrap();
    assert_eq!(state, HoldState::Lost(LossReason::Gone));
    assert!(matches!(permit.release().await, Err(Error::NotHeld { .. })));
    eventually(|| bench.raw.value() == Some(3)).await;
    // The release finds the loss.
    let permit = bench.semaphore.with_lease(Duration::from_secs(60)).acquire_many(2).await.unwrap();
    take_away(&permit.ids()[0]);
    assert!(matches!(permit.release().await, Err(Error::Lost { reason: LossReason::Gone, .. })));
    assert_eq!((bench.raw.value(), bench.taken().len()), (Some(3), 0));
}

#[tokio::test]
async fn a_record_of_another_type_is_reported_and_left_alone() {
    let bench = Bench::of(2).await;
    let Bench { raw, semaphore, .. } = &bench;
    for (key, make) in
        [(NAME, ["RPUSH", NAME, "1"]), (NAME, ["SET", NAME, "many"]), (TIMEOUTS, ["SET", TIMEOUTS, "text"])]
    {
        raw.run::<()>(&["DEL", NAME, TIMEOUTS]);
        raw.run::<()>(&["SET", NAME, "2"]);
        let permit = semaphore.with_lease(Duration::from_secs(60)).acquire().await.unwrap();
        let renewed = semaphore.acquire().await.unwrap();
        raw.messages();
        raw.run::<()>(&["DEL", key]);
        raw.run::<()>(&make);
        let before: Vec<u8> = raw.run(&["DUMP", key]);
        for (call, error) in [
            ("acquire", semaphore.acquire().await.err()),
            ("available", semaphore.available_permits().await.err()),
            ("release", permit.release().await.err()),
        ] {
            assert_eq!(
                error.as_ref().and_then(Error::code),
                Some("WRONGTYPE"),
                "{call}, {make:?}: {error:?}"
            );
        }
        if key == TIMEOUTS {
            let state = renewed.lost().await;
            assert!(matches!(state, HoldState::Lost(_)), "{state:?}");
        }
        assert_eq!(raw.run::<Vec<u8>>(&["DUMP", key]), before, "{make:?}");
        assert_eq!(raw.messages(), vec![]);
    }
}

/// A permit without a lease has no limit of which to warn.
#[tokio::test]
async fn a_permit_without_a_lease_warns_only_at_its_release() {
    let bench = Bench::of(1).await;
    let permit = bench.semaphore.without_lease().acquire().await.unwrap();
    let mut ending = Box::pin(permit.ending());
    assert!(poll!(ending.as_mut()).is_pending());
    permit.release().await.unwrap();
    assert_eq!(ending.await, Duration::ZERO);
}
