//! Faults of servers, connections and processes. `lost_replies` covers faults of single requests and replies.

use crate::support::clock::monotonic_ns;
use crate::support::proxy::{Direction, Words};
use crate::support::worker::Worker;
use crate::support::{Proxy, Server, Stopwatch, eventually, setting, subscribers};
use redisson_lock::{Client, ClientBuilder, Error, HoldState, LockGuard, LossReason};
use rustix::process::Signal;
use std::fs;
use std::task::{Context, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_millis(900);
/// Short, because a test waits for it, and longer than this machine stalls for a moment.
const RESPONSE: Duration = Duration::from_secs(1);

fn run(server: &Server, command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    redis::cmd(words[0])
        .arg(&words[1..])
        .exec(&mut server.cli())
        .unwrap_or_else(|e| panic!("{command}: {e}"));
}

fn builder() -> ClientBuilder {
    Client::builder().watchdog_timeout(LEASE).response_timeout(RESPONSE)
}

/// A script that runs until it is killed, or its server ends. Meanwhile the server, whose `lua-time-limit` is short, refuses other
/// requests with `BUSY`.
pub struct EndlessScript<'a> {
    server: &'a Server,
    caller: JoinHandle<redis::RedisResult<()>>,
}

impl<'a> EndlessScript<'a> {
    /// Returns once the server refuses requests.
    pub async fn start(server: &'a Server) -> Self {
        let mut cli = server.cli();
        let caller = thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut cli));
        eventually(|| redis::cmd("PING").exec(&mut server.cli()).is_err()).await;
        Self { server, caller }
    }

    pub fn kill(self) {
        run(self.server, "SCRIPT KILL");
        self.caller.join().unwrap().unwrap_err();
    }
}

/// Follows `guard` from `Held` to `Suspect` to `Lost`. Each query that begins at the deadline or later must return `Lost`.
async fn assert_lost_by_deadline(guard: &LockGuard) -> Instant {
    eventually(|| guard.state() != HoldState::Held).await;
    let deadline = guard.deadline();
    eventually(|| {
        let began = Instant::now();
        let live = guard.state().is_live();
        assert!(!live || began < deadline + Duration::from_millis(1), "{:?} late", began - deadline);
        !live
    })
    .await;
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Unreachable));
    deadline
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_frozen_past_the_lease_never_revives_a_hold() {
    for sleeping in [false, true] {
        let server = Server::start();
        // A renewal goes unanswered before the deadline, even if this machine stalls for a moment.
        let lease = LEASE * 2;
        let client = builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
        let lock = client.lock("n");
        let guard = lock.lock().await.unwrap();
        let sleep = lease * 3 / 2;
        let mut cli = server.cli();
        let asleep = sleeping.then(|| {
            thread::spawn(move || {
                redis::cmd("DEBUG").arg("SLEEP").arg(sleep.as_secs_f64()).exec(&mut cli).unwrap();
                Instant::now() - sleep
            })
        });
        if !sleeping {
            server.stop_signal();
        }
        let stopped = Instant::now();
        let deadline = assert_lost_by_deadline(&guard).await;
        let frozen = match asleep {
            Some(asleep) => asleep.join().unwrap(),
            None => stopped,
        };
        assert!(deadline <= frozen + lease, "the server ended the hold before the client did");
        if !sleeping {
            server.cont();
        }
        // The server now answers the requests that were sent meanwhile, including renewals.
        let next = lock.try_lock_for(lease * 2).await.unwrap().expect("the lock is free");
        assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
        assert_ne!(next.owner(), guard.owner());
        assert!(guard.unlock().await.unwrap_err().is_lost());
        assert_eq!(lock.hold_count().await.unwrap(), 1);
        next.unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_pauses_writes_past_the_lease_never_revives_a_hold() {
    let server = Server::start();
    // A renewal goes unanswered before the deadline, even if this machine stalls for a moment.
    let lease = LEASE * 2;
    let client = builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    run(&server, "CLIENT PAUSE 60000 WRITE");
    let paused = Instant::now();
    let deadline = assert_lost_by_deadline(&guard).await;
    assert!(deadline <= paused + lease, "the server ended the hold before the client did");
    let started = Stopwatch::start();
    let error = client.lock("m").try_lock().await.unwrap_err();
    // The heartbeat may have ended the connection by then.
    assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error:?}");
    assert!(started.elapsed() < RESPONSE + Duration::from_millis(50), "{:?}", started.elapsed());
    run(&server, "CLIENT UNPAUSE");
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
}

/// Looking up the holder of a lost lock does not extend the time limit of the call.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_unlock_that_finds_its_hold_lost_ends_on_time() {
    let server = Server::start();
    let timeout = Duration::from_secs(1);
    let client = Client::builder().response_timeout(timeout).connect(server.url()).await.unwrap();
    let lock = client.lock("n").with_lease(Duration::from_millis(600));
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    server.stop_signal();
    let started = Stopwatch::start();
    // The first unlock occupies the key queue until the lease has expired.
    let (first, second) = tokio::join!(inner.unlock(), outer.unlock());
    assert!(started.elapsed() < timeout + Duration::from_millis(50), "{:?}", started.elapsed());
    assert!(first.is_err());
    let error = second.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
}

/// LOADING, BUSY and READONLY are temporary refusals.
#[tokio::test(flavor = "multi_thread")]
async fn calls_wait_for_a_server_that_is_not_ready() {
    let directory = temp_folder("loading");
    let server = Server::with_args(&["--dir", &directory, "--dbfilename", "d.rdb", "--lua-time-limit", "50"]);
    let client = builder().watchdog_timeout(Duration::from_secs(10)).connect(server.url()).await.unwrap();
    let held = client.lock("held").lock().await.unwrap();
    let wait = async |kind: &str| {
        let started = Instant::now();
        let guard = client.lock("n").try_lock_for(Duration::from_secs(10)).await;
        let guard = guard.unwrap_or_else(|e| panic!("{kind}: {e}")).expect("the lock is free");
        assert!(
            started.elapsed() > Duration::from_millis(300),
            "{kind}: acquired before the server refused any attempt"
        );
        guard.unlock().await.unwrap();
    };

    // BUSY: a script that does not end.
    let script = EndlessScript::start(&server).await;
    let ((), ()) = tokio::join!(wait("BUSY"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        script.kill();
    });

    // READONLY: a replica whose master does not exist.
    run(&server, "REPLICAOF 127.0.0.1 1");
    let ((), ()) = tokio::join!(wait("READONLY"), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        run(&server, "REPLICAOF NO ONE");
    });

    // LOADING: a delay for each key makes it take more than a second.
    for n in 0..100 {
        run(&server, &format!("SET filler{n} {}", "x".repeat(200_000)));
    }
    // While loading, the server answers requests after every two megabytes.
    server.configure("rdbcompression", "no");
    server.configure("key-load-delay", "20000");
    let mut cli = server.cli();
    let loading = thread::spawn(move || redis::cmd("DEBUG").arg("RELOAD").exec(&mut cli));
    eventually(|| redis::cmd("GET").arg("n").exec(&mut server.cli()).is_err()).await;
    wait("LOADING").await;
    loading.join().unwrap().unwrap();
    held.unlock().await.unwrap();
    fs::remove_dir_all(directory).unwrap();
}

/// The last send of a call may have too little time left for its reply. The refusal before it is the reason for the failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_outlasts_an_unanswered_last_send() {
    let server = Server::with_args(&["--lua-time-limit", "50"]);
    let proxy = Proxy::start(server.port()).await;
    // The first reply arrives in time, even if this machine stalls for a moment.
    let client = builder().response_timeout(Duration::from_secs(1)).connect(proxy.url()).await.unwrap();
    let script = EndlessScript::start(&server).await;
    // The first request and its reply pass.
    proxy.shut_gate_after(2, |words| words.iter().any(|word| word == b"n"));
    let error = client.lock("n").is_locked().await.unwrap_err();
    assert_eq!(error.code(), Some("BUSY"), "{error:?}");
    // The proxy holds the second request, so the call did not end before it.
    assert_eq!(proxy.admitted(), 2);
    proxy.stopped().await;
    script.kill();
    proxy.open_gate();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

/// A busy server refuses subscriptions, too, but only temporarily.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_refused_by_a_busy_server_is_retried() {
    let server = Server::with_args(&["--lua-time-limit", "50"]);
    let guard = Client::connect(server.url()).await.unwrap().lock("n").lock().await.unwrap();
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let link = proxy.link(1).await;
    let subscribes =
        |words: &Words| words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"subscribe"));
    link.hold(Direction::ToServer);
    let waiting = tokio::spawn(async move { client.lock("n").lock().await.unwrap().unlock().await });
    link.asked(1, subscribes).await;
    let script = EndlessScript::start(&server).await;
    link.pass(Direction::ToServer);
    let answer = link.answered(1, subscribes).await;
    assert!(answer.starts_with(b"-BUSY"), "{}", String::from_utf8_lossy(&answer));
    script.kill();
    eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// Creates a folder for a server's files.
fn temp_folder(name: &str) -> String {
    let path =
        std::env::temp_dir().join(format!("redisson-lock-{name}-{}-{}", std::process::id(), monotonic_ns()));
    fs::create_dir(&path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_refuses_new_holds_and_keeps_and_frees_old_ones() {
    let server = Server::start();
    let client = builder().connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    server.configure("maxmemory", "1");
    let error = client.lock("m").try_lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    let deadline = outer.deadline();
    eventually(|| outer.deadline() > deadline).await;
    // The record keeps its count, but the last release still deletes it.
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), HoldState::Held);
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

/// A record of another type ends its own hold only, not the other holds of the same renewal batch.
#[tokio::test(flavor = "multi_thread")]
async fn one_bad_record_among_many_does_not_end_the_renewal_of_the_others() {
    let server = Server::start();
    // No hold ends between two renewals, even if this machine stalls for a moment.
    let client = Client::builder().watchdog_timeout(LEASE * 3).connect(server.url()).await.unwrap();
    let mut guards = Vec::new();
    for n in 0..150 {
        guards.push(client.lock(format!("n{n}")).lock().await.unwrap());
    }
    run(&server, "SET n70 precious");
    let bad = guards.remove(70);
    assert_eq!(bad.lost().await, HoldState::Lost(LossReason::Taken));
    let deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    eventually(|| guards.iter().zip(&deadlines).all(|(guard, deadline)| guard.deadline() > *deadline)).await;
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
    let value: String = redis::cmd("GET").arg("n70").query(&mut server.cli()).unwrap();
    assert_eq!(value, "precious");
}

/// No timer fires while every worker of the runtime is blocked. The first query still returns the true state.
#[test]
fn a_starved_runtime_sees_the_loss_at_its_first_query() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = builder().connect(server.url()).await.unwrap();
        let guard = client.lock("n").lock().await.unwrap();
        thread::sleep(LEASE * 3 / 2);
        assert_eq!(guard.state(), HoldState::Lost(LossReason::Expired));
        // A grant that arrives before the pause and is read after it is no hold: the client sends a new request.
        let other = Client::connect(server.url()).await.unwrap();
        let lock = client.lock("m").with_lease(Duration::from_millis(200));
        let acquires = || server.calls("restore") + server.scripts();
        let before = acquires();
        let mut locking = Box::pin(lock.lock());
        let mut context = Context::from_waker(Waker::noop());
        assert!(locking.as_mut().poll(&mut context).is_pending());
        // The record may have ended when this machine looks for it.
        eventually(|| acquires() > before).await;
        thread::sleep(Duration::from_millis(300));
        let theirs = other.lock("m").lock().await.unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(300), &mut locking).await;
        assert!(waited.is_err(), "acquired while {} holds the lock: {:?}", theirs.owner(), waited.unwrap());
        theirs.unlock().await.unwrap();
        locking.await.unwrap().unlock().await.unwrap();
    });
}

/// Every query that begins after the pause returns the true state while another client holds the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_paused_past_its_lease_sees_the_loss_at_its_first_query() {
    let server = Server::start();
    let mut worker = Worker::start(&["look", &server.url(), "n", "900"]);
    assert!(worker.line().await.starts_with("held "));
    assert!(worker.line().await.ends_with(" Held"));
    let client = Client::connect(server.url()).await.unwrap();
    worker.signal(Signal::STOP);
    let guard = client.lock("n").try_lock_for(Duration::from_secs(5)).await.unwrap().expect("its lease ends");
    let resumed = monotonic_ns();
    worker.signal(Signal::CONT);
    loop {
        let line = worker.line().await;
        let (began, state) = line.split_once(' ').unwrap();
        if began.parse::<u64>().unwrap() > resumed {
            assert!(state.starts_with("Lost"), "{state} was returned while {} holds the lock", guard.owner());
            break;
        }
    }
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
}

/// Deadlines use the monotonic clock, which cannot be set.
#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_the_wall_clock_changes_no_hold() {
    // Two thirds of it are left at each renewal, and the machine does not stall for so long.
    let lease = Duration::from_secs(2);
    let server = Server::start();
    let directory = temp_folder("clock");
    let offset = format!("{directory}/offset");
    fs::write(&offset, "+0s").unwrap();
    let library = setting("REDISSON_LOCK_FAKETIME");
    let faked = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", &offset),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let mut worker = Worker::with_env(&["look", &server.url(), "n", &lease.as_millis().to_string()], &faked);
    assert!(worker.line().await.starts_with("held "));
    assert!(worker.line().await.ends_with(" Held"));
    let now = async |worker: &mut Worker| {
        worker.go().await;
        loop {
            let line = worker.line().await;
            if let Some(seconds) = line.strip_prefix("clock ") {
                return seconds.parse::<i64>().unwrap();
            }
            // The late output of an earlier query. A late reply to a renewal makes the hold suspect for a moment.
            assert!(!line.contains("Lost"), "{line}");
        }
    };
    let mut offset_before = 0;
    for jump in [3600_i64, -3600] {
        let before = now(&mut worker).await;
        fs::write(&offset, format!("{jump:+}s")).unwrap();
        let after = now(&mut worker).await;
        let moved = after - before - (jump - offset_before);
        assert!((0..5).contains(&moved), "the clock did not jump: {before} {after}");
        offset_before = jump;
        // The watchdog renews in time: the record does not expire, and the lease that it had at the jump ends meanwhile.
        let started = Instant::now();
        while started.elapsed() < lease * 3 / 2 {
            let left: i64 = redis::cmd("PTTL").arg("n").query(&mut server.cli()).unwrap();
            assert!(left > 0, "the record is gone");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        now(&mut worker).await;
    }
    fs::remove_dir_all(directory).unwrap();
}

/// Connections are killed again and again under load. The worker keeps acquiring locks, and no resource leaks.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_killed_connections_leave_nothing_behind() {
    let kills = std::env::var("REDISSON_LOCK_KILLS").map_or(1_000, |kills| kills.parse().unwrap());
    let server = Server::start();
    run(&server, "ACL SETUSER app on >canary-in-a-coal-mine +@all ~* &*");
    let url = format!("redis://app:canary-in-a-coal-mine@{}", server.address());
    let mut worker = Worker::start(&["serve", &url, "n", "8"]);
    let mut admin = server.cli();
    let mut kill = |n: u32| {
        let mut done = 0;
        let patience = Stopwatch::start();
        while done < n {
            let killed: u32 = redis::cmd("CLIENT").arg(&["KILL", "USER", "app"]).query(&mut admin).unwrap();
            done += killed;
            assert!(patience.elapsed() < Duration::from_secs(600), "{done} of {n}");
            if killed == 0 {
                // The worker is in the back-off between two connections, which takes some milliseconds.
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    worker.go().await;
    worker.line().await;
    // All one-time allocations have been made by now.
    tokio::task::block_in_place(|| kill(kills / 10));
    wait_for_connections(&server).await;
    let before = (descriptors(worker.pid()), resident_kib(worker.pid()));
    tokio::task::block_in_place(|| kill(kills));
    wait_for_connections(&server).await;
    eventually(|| descriptors(worker.pid()) <= before.0).await;
    let after = resident_kib(worker.pid());
    assert!(after < before.1 + 4 * 1024, "{} KiB became {after} KiB", before.1);
    // The worker still acquires locks.
    let mut holds = 0;
    for _ in 0..2 {
        worker.go().await;
        let now: u64 = worker.line().await.parse().unwrap();
        assert!(now > holds, "no hold after the kills");
        holds = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until the client has both of its connections.
async fn wait_for_connections(server: &Server) {
    eventually(|| {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.cli()).unwrap();
        list.lines().filter(|line| line.contains("user=app")).count() == 2
    })
    .await;
}

fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn resident_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Two clients with one uuid count under one owner id. An acquire must not go on from a count that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_count_that_another_client_wrote_fails_a_re_entry() {
    let server = Server::start();
    let lock = Client::connect(server.url()).await.unwrap().lock("n");
    let guard = lock.lock().await.unwrap();
    run(&server, &format!("HSET n {} 5", guard.owner()));
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    let count: u32 = redis::cmd("HGET").arg("n").arg(guard.owner()).query(&mut server.cli()).unwrap();
    assert_eq!(count, 5, "the record was changed after all");
    assert_eq!(guard.state(), HoldState::Held);
}

/// A fixed lease is not renewed, so no renewal would find the other owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_makes_a_holder_with_waiters_find_another_owner() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.mutex("n").with_lease(Duration::from_secs(10)).lock().await.unwrap();
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.mutex("n").lock().await }
    });
    // The client subscribes for the waiter, and then checks the hold once.
    eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
    // The record exists all the time.
    run(&server, "HSET n another 1");
    run(&server, &format!("HDEL n {}", guard.owner()));
    run(&server, "PUBLISH redisson_lock__channel:{n} 0");
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Taken));
    assert!(!waiting.is_finished());
    waiting.abort();
}

/// Nothing but the release itself notices the end of the lease, because the only thread is blocked.
#[test]
fn a_release_of_one_of_two_expired_levels_says_that_the_lock_is_not_held() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lease = Duration::from_millis(100);
        let lock = Client::connect(server.url()).await.unwrap().lock("n").with_lease(lease);
        let _outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        thread::sleep(lease * 2);
        let error = inner.unlock().await.unwrap_err();
        assert!(matches!(error, Error::NotHeld { .. }), "{error:?}");
    });
}

/// After the loss of another hold, new requests have a new owner id. The record of the write hold still has the old one.
#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_read_although_its_owner_id_has_changed_since() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let both = client.read_write_lock("n");
    let writing = both.write().lock().await.unwrap();
    let other = client.lock("m").lock().await.unwrap();
    run(&server, "DEL m");
    let error = other.unlock().await.unwrap_err();
    assert!(error.is_lost(), "{error:?}");
    let reading = both.read().try_lock().await.unwrap().expect("the owner has the write lock");
    assert!(!writing.owner().starts_with(reading.owner()));
    reading.unlock().await.unwrap();
    writing.unlock().await.unwrap();
}

/// A hand-off needs memory for the next owner's field, and a release needs none.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_refuses_a_hand_off_and_frees_the_lock() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mutex = client.mutex("n");
    let guard = mutex.lock().await.unwrap();
    let next = mutex.clone();
    let mut waiting = Box::pin(async move { next.lock().await });
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    server.configure("maxmemory", "1");
    guard.unlock().await.unwrap();
    assert!(!mutex.is_locked().await.unwrap());
    let error = waiting.await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
}
