//! Schedules that broke an earlier version. Each is kept as a test.

use crate::support::proxy::Direction;
use crate::support::{Proxy, Server, Stopwatch, eventually, subscribers};
use redisson_lock::{Client, Error, HandOff, HoldState, Lock, LockGuard, Owner};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CHANNEL: &str = "redisson_lock__channel:{n}";

fn exists(server: &Server, key: &str) -> bool {
    redis::cmd("EXISTS").arg(key).query(&mut server.cli()).unwrap()
}

/// The owner knows of the loss and locks again before the release of the lost owner id has been sent.
#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_a_lost_hold_does_not_free_the_next_hold() {
    let server = Server::start();
    let client =
        Client::builder().watchdog_timeout(Duration::from_millis(150)).connect(server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for key in 0..20 {
        let (lock, mut cli) = (client.lock(format!("n{key}")), server.cli());
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = lock.lock().await.unwrap();
                redis::cmd("DEL").arg(guard.name()).exec(&mut cli).unwrap();
                assert!(matches!(guard.lost().await, HoldState::Lost(_)));
                // Long, because only the lost hold is to end.
                let next = lock.with_lease(Duration::from_secs(60)).lock().await.unwrap();
                assert_ne!(next.owner(), guard.owner(), "the owner id of a lost hold is used again");
                // This acquire is queued behind the release of the lost hold.
                lock.lock().await.unwrap().unlock().await.unwrap();
                assert!(lock.is_held().await.unwrap());
                next.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// A waiter that leaves late must not remove another waiter from a new queue of the key.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_the_queue_removes_no_other_waiter() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("n").lock().await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let lock = client.lock("n");
        tasks.spawn(async move {
            for _ in 0..200 {
                let outcome = match task % 2 {
                    0 => lock.try_lock().await,
                    _ => lock.try_lock_for(Duration::from_millis(60)).await,
                };
                // A slow server may not answer within so short a wait.
                let late = task % 2 == 1 && matches!(outcome, Err(Error::TimedOut { .. }));
                assert!(late || matches!(outcome, Ok(None)), "{outcome:?}");
                if task % 2 == 1 && lock.holder().await.unwrap().is_none() {
                    break;
                }
            }
        });
        if task % 2 == 1 {
            tokio::task::yield_now().await;
        }
    }
    while tasks.len() > 8 {
        tasks.join_next().await.unwrap().unwrap();
    }
    tasks.abort_all();
    held.unlock().await.unwrap();
}

/// A temporary refusal makes a hold suspect, and does not end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_refusal_of_writes_costs_no_hold() {
    let server = Server::start();
    let client = Client::builder()
        .watchdog_timeout(Duration::from_secs(3))
        .response_timeout(Duration::from_millis(300))
        .connect(server.url())
        .await
        .unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    server.configure("min-replicas-to-write", "1");
    eventually(|| guard.state() != HoldState::Held).await;
    assert_eq!(guard.state(), HoldState::Suspect);
    // A wait does not end either: twice the response timeout passes before the server takes writes again.
    let started = Instant::now();
    let waiting = tokio::spawn({
        let lock = client.lock("m");
        async move { lock.lock().await }
    });
    let error = client.lock("m").try_lock().await.unwrap_err();
    let refused = matches!(error, Error::Refused { .. } | Error::TimedOut { .. } | Error::Unavailable { .. });
    assert!(refused, "{error:?}");
    tokio::time::sleep(Duration::from_millis(600).saturating_sub(started.elapsed())).await;
    server.configure("min-replicas-to-write", "0");
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
    eventually(|| guard.state() == HoldState::Held).await;
    guard.unlock().await.unwrap();
}

/// A single attempt and a waiter share one busy reply. The waiter must subscribe all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_shares_a_busy_reply_is_subscribed() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    for _ in 0..50 {
        let held = other.lock("n").lock().await.unwrap();
        let looking = tokio::spawn({
            let lock = client.lock("n");
            async move { lock.try_lock().await.unwrap().is_none() }
        });
        let waiting = tokio::spawn({
            let lock = client.lock("n");
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        assert!(looking.await.unwrap());
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        held.unlock().await.unwrap();
        tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("woken by the message").unwrap();
    }
}

/// The bound on hand-offs also applies to a crowd that queued behind a hold without waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_polling_client_gets_the_lock_despite_a_crowd() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let first = client.lock("n").lock().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut crowd = JoinSet::new();
    for _ in 0..4 {
        let (lock, stop) = (client.lock("n"), stop.clone());
        crowd.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    first.unlock().await.unwrap();
    let poller = Client::connect(server.url()).await.unwrap();
    let started = Stopwatch::start();
    loop {
        if let Some(guard) = poller.lock("n").try_lock().await.unwrap() {
            guard.unlock().await.unwrap();
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(5), "the crowd left no gap");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    crowd.join_all().await;
}

/// A busy lock is reported as busy, even while it is handed off or yielded to other clients.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_during_a_hand_off_reports_busy() {
    // The tasks hold the lock for longer than a wait in all, so many waits end, and some of them at that very moment. A
    // wait is also much longer than the work of all tasks. Otherwise it could end before a busy machine has read a reply.
    const TASKS: u32 = 600;
    const TRIES: u32 = 8;
    const WAIT: Duration = Duration::from_millis(500);
    const HOLD: Duration = Duration::from_millis(1);
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = client.lock("n");
        tasks.spawn(async move {
            let mut served = 0;
            for _ in 0..TRIES {
                if let Some(guard) = lock.try_lock_for(WAIT).await.unwrap() {
                    tokio::time::sleep(HOLD).await;
                    guard.unlock().await.unwrap();
                    served += 1;
                }
            }
            served
        });
    }
    let served: u32 = tasks.join_all().await.iter().sum();
    assert!((1..TASKS * TRIES).contains(&served), "some were served and some were not: {served}");
    assert!(
        client.lock("n").try_lock().await.unwrap().is_some(),
        "a wait that had ended was granted the lock"
    );
}

/// A client that takes turns with others waits again soon after each release. When it subscribed anew each time, it
/// missed the messages of turns that were shorter than that takes. The lock then stayed unused until its yield window
/// was over.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_turns_stays_subscribed() {
    const TURNS: u64 = 300;
    /// For how long a client stays subscribed after a wait.
    const LINGERING: Duration = Duration::from_millis(10);
    let server = Server::start();
    let (mut players, first) = (JoinSet::new(), Arc::new(tokio::sync::Barrier::new(2)));
    for _ in 0..2 {
        let client = Client::connect(server.url()).await.unwrap();
        let (lock, first) = (client.lock("n"), first.clone());
        players.spawn(async move {
            first.wait().await;
            let mut slow = 0;
            for _ in 0..TURNS {
                let began = Instant::now();
                lock.lock().await.unwrap().unlock().await.unwrap();
                slow += u64::from(began.elapsed() > LINGERING);
            }
            slow
        });
    }
    server.commandstats_reset();
    // On a busy machine, a client may wait again too late.
    let slow: u64 = players.join_all().await.iter().sum();
    let subscribed = server.calls("subscribe");
    assert!(
        subscribed < TURNS / 3 + slow,
        "{subscribed} times in {TURNS} turns of each, {slow} of them slow"
    );
    eventually(|| subscribers(&server, CHANNEL) == 0).await;
}

/// The client's runtime does not run, and a release is still pending.
#[test]
fn closing_ends_on_time_when_the_clients_runtime_is_stopped() {
    let server = Server::start();
    let idle = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let response = Duration::from_millis(300);
    let builder = Client::builder().response_timeout(response);
    let client = idle.block_on(builder.connect(server.url())).unwrap();
    let guard: LockGuard = idle.block_on(client.lock("n").lock()).unwrap();
    drop(guard);
    let ours = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let started = Stopwatch::start();
    ours.block_on(client.close());
    assert!(started.elapsed() < response + Duration::from_millis(100), "{:?}", started.elapsed());
}

/// A channel that the user may not subscribe to affects no other channel, and causes no storm of connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_channel_is_not_taken_for_a_broken_connection() {
    let server = Server::start();
    redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", ">canary-in-a-coal-mine", "~*", "+@all", "resetchannels"])
        .arg(format!("&{CHANNEL}"))
        .exec(&mut server.cli())
        .unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let client =
        Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
    let (heard, unheard) = (other.lock("n").lock().await.unwrap(), other.lock("m").lock().await.unwrap());
    let waiting = ["m", "n"].map(|name| {
        let lock = client.lock(name);
        tokio::spawn(async move { lock.lock().await.map(drop) })
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    let received = || -> u64 {
        let stats: String = redis::cmd("INFO").arg("stats").query(&mut server.cli()).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().parse().unwrap()
    };
    let before = received();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(received(), before + 1, "only this query makes a connection");
    let [of_unheard, of_heard] = waiting;
    assert_eq!(of_unheard.await.unwrap().unwrap_err().code(), Some("NOPERM"));
    heard.unlock().await.unwrap();
    of_heard.await.unwrap().unwrap();
    unheard.unlock().await.unwrap();
}

/// A lock that never expires is worse than a refused one.
#[tokio::test]
async fn a_refused_expiry_leaves_no_record() {
    let server = Server::start();
    redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", ">canary-in-a-coal-mine", "~*", "&*", "+@all", "-restore", "-pexpire"])
        .exec(&mut server.cli())
        .unwrap();
    let client =
        Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
    let error = client.lock("n").lock().await.unwrap_err();
    assert_eq!(error.code(), Some("NOPERM"), "{error:?}");
    assert!(!exists(&server, "n"));
}

/// Two tasks that pass the lock to and fro leave no waiter behind for a moment at each pass. Their run of hand-offs
/// counts as one all the same.
#[tokio::test(flavor = "multi_thread")]
async fn two_tasks_that_take_turns_do_not_keep_the_lock_from_others() {
    let server = Server::start();
    let ours = Client::connect(server.url()).await.unwrap();
    let theirs = Client::connect(server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let lock = ours.lock("n");
        tasks.spawn(async move {
            loop {
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    let lock = theirs.lock("n");
    for n in 0..20 {
        let asked = Stopwatch::start();
        let guard = lock.try_lock_for(Duration::from_secs(20)).await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("not let in for the {n}th time"));
        assert!(asked.elapsed() < Duration::from_secs(1), "{n}: {:?}", asked.elapsed());
        guard.unlock().await.unwrap();
    }
    tasks.shutdown().await;
}

/// The next waiter's own subscription is not a message, and ends no yield window.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_subscription_does_not_end_the_yield_window() {
    let server = Server::start();
    let bounds = redisson_lock::HandOff::new().max_in_row(0).pause(Duration::from_millis(200));
    let client = Client::builder().hand_off(bounds).connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    // This subscriber hears of the release and does not want the lock.
    let mut other = server.cli();
    let mut listening = other.as_pubsub();
    listening.subscribe("redisson_lock__channel:{n}").unwrap();
    let (queued, is_queued) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn(async move {
        let mut waiting = std::pin::pin!(lock.lock());
        // The first poll enters the queue.
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        queued.send(()).unwrap();
        let guard = waiting.await.unwrap();
        (Instant::now(), guard)
    });
    is_queued.await.unwrap();
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let (at, guard) = waiting.await.unwrap();
    let waited = at - released;
    assert!(waited >= Duration::from_millis(190), "came back after {waited:?}");
    guard.unlock().await.unwrap();
}

/// A waiter behind a hold of its own client learns of the end of that hold as any waiter does.
#[tokio::test(flavor = "multi_thread")]
async fn a_force_unlock_wakes_waiters_of_the_holding_client() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let held = client.lock("n").with_lease(Duration::from_secs(60)).lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("n");
        async move { lock.lock().await.unwrap() }
    });
    eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
    assert!(other.lock("n").force_unlock().await.unwrap());
    let guard = tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("not let in").unwrap();
    assert_eq!(held.state(), HoldState::Lost(redisson_lock::LossReason::Gone));
    guard.unlock().await.unwrap();
}

/// A future that is never polled again may be granted the lock. It must not keep it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_grant_ends_with_its_lease() {
    let server = Server::start();
    let lease = Duration::from_millis(500);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    // Load the scripts, so that a request is one send.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let mut forgotten = Box::pin(lock.lock());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    server.poll_without_reply(forgotten.as_mut());
    eventually(|| exists(&server, "n")).await;
    let guard =
        other.lock("n").try_lock_for(lease * 4).await.unwrap().expect("the grant ends with its lease");
    // Polled after all, it waits anew.
    assert!(forgotten.as_mut().poll(&mut context).is_pending());
    guard.unlock().await.unwrap();
    forgotten.await.unwrap().unlock().await.unwrap();
}

/// The server restarts empty after its reply and before the caller sees that. The watchdog did not know the hold when the connection
/// changed.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_grant_of_a_server_that_restarted_is_not_certain() {
    let mut server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n").with_lease(Duration::from_secs(60));
    // Load the scripts, so that a request is one send.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let mut acquiring = Box::pin(lock.lock());
    server.poll_without_reply(acquiring.as_mut());
    // Its reply follows that to the acquire.
    assert!(!client.lock("other").is_locked().await.unwrap());
    assert!(exists(&server, "n"));
    server.restart();
    eventually(|| client.stats().reconnects == 1).await;
    let taken = Client::connect(server.url()).await.unwrap().lock("n").lock().await.unwrap();
    let guard = acquiring.await.unwrap();
    assert_ne!(guard.state(), HoldState::Held, "another client holds the lock, too");
    assert!(matches!(guard.lost().await, HoldState::Lost(_)));
    taken.unlock().await.unwrap();
}

/// The same where the grant was delivered: another task of the client runs the key actor, and waits behind the grant.
#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_but_unpolled_grant_ends_with_its_lease() {
    let server = Server::start();
    let lease = Duration::from_millis(500);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("n").lock().await.unwrap();
    let lock = client.lock("n");
    let mut forgotten = Box::pin(lock.lock());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // It joins the queue once it has the reply to its first attempt.
    eventually(|| {
        assert!(forgotten.as_mut().poll(&mut context).is_pending());
        subscribers(&server, CHANNEL) == 1
    })
    .await;
    let next = tokio::spawn({
        // Only the forgotten hold has so short a lease.
        let lock = client.lock("n").with_owner(&Owner::new("next").unwrap()).with_lease(lease * 60);
        async move { lock.try_lock_for(lease * 6).await }
    });
    held.unlock().await.unwrap();
    let guard = next.await.unwrap().unwrap().expect("the grant ends with its lease");
    assert!(guard.owner().contains("next"), "{}", guard.owner());
    guard.unlock().await.unwrap();
    forgotten.await.unwrap().unlock().await.unwrap();
}

/// An unlock sends the release in its caller, and may never be polled again. Other tasks of its client must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_unlock_delays_no_other_task() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let lock = client.lock("n");
    for _ in 0..20 {
        let guard = lock.lock().await.unwrap();
        server.stop_signal();
        let mut unpolled = Box::pin(guard.unlock());
        assert!(unpolled.as_mut().poll(&mut context).is_pending());
        server.cont();
        // The same task, and then another owner.
        let again = lock.lock().await.unwrap();
        again.unlock().await.unwrap();
        let owner = Owner::new("another").unwrap();
        lock.with_owner(&owner).lock().await.unwrap().unlock().await.unwrap();
        unpolled.await.unwrap();
    }
    assert!(!exists(&server, "n"));
}

/// A caller that hands the lock to a waiter, and is polled once.
struct HandingOff {
    server: Server,
    client: Client,
    unlocking: std::pin::Pin<Box<dyn Future<Output = redisson_lock::Result<()>> + Send>>,
    waiting: tokio::task::JoinHandle<redisson_lock::Result<LockGuard>>,
}

impl HandingOff {
    /// Needs a runtime of one thread.
    async fn start() -> Self {
        let server = Server::start();
        // A hold is handed off, however long it was.
        let builder = Client::builder().hand_off(HandOff::new().max_time_alone(Duration::from_secs(60)));
        let client = builder.connect(server.url()).await.unwrap();
        let [first, next] = ["first", "next"].map(|owner| {
            let owner = Owner::new(owner).unwrap();
            client.lock("n").with_owner(&owner)
        });
        // Load the scripts, so that a request is one send.
        let loading = first.lock().await.unwrap();
        let waiting = spawn_waiter(&next);
        settled().await;
        loading.unlock().await.unwrap();
        waiting.await.unwrap().unwrap().unlock().await.unwrap();

        let guard = first.lock().await.unwrap();
        let waiting = spawn_waiter(&next);
        settled().await;
        server.stop_signal();
        let mut unlocking = Box::pin(async move { guard.unlock().await });
        assert!(futures_util::poll!(unlocking.as_mut()).is_pending());
        settled().await;
        server.cont();
        Self { server, client, unlocking, waiting }
    }

    /// The hold of the waiter.
    async fn next_hold(&mut self) -> LockGuard {
        let waited = tokio::time::timeout(Duration::from_secs(5), &mut self.waiting);
        waited.await.expect("a turn").unwrap().unwrap()
    }

    /// Another owner gets the lock after the waiter.
    async fn another_hold(&self) {
        let owner = Owner::new("another").unwrap();
        self.client.lock("n").with_owner(&owner).lock().await.unwrap().unlock().await.unwrap();
    }
}

fn spawn_waiter(lock: &Lock) -> tokio::task::JoinHandle<redisson_lock::Result<LockGuard>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await })
}

/// Runs all tasks of a runtime of one thread until they wait for a reply or a time.
async fn settled() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// An unlock sends the hand-off in its caller, too.
#[tokio::test]
async fn an_unpolled_hand_off_delays_no_other_task() {
    let mut handing_off = HandingOff::start().await;
    let next = handing_off.next_hold().await;
    // The reply to the first send, which arrives now, changes nothing.
    handing_off.unlocking.as_mut().await.unwrap();
    assert_eq!(next.state(), HoldState::Held);
    let named: bool =
        redis::cmd("HEXISTS").arg("n").arg(next.owner()).query(&mut handing_off.server.cli()).unwrap();
    assert!(named, "the record does not name {}", next.owner());
    next.unlock().await.unwrap();
    handing_off.another_hold().await;
    assert!(!exists(&handing_off.server, "n"));
}

#[tokio::test]
async fn a_cancelled_hand_off_is_completed() {
    let mut handing_off = HandingOff::start().await;
    let mut listening = handing_off.server.cli();
    let mut heard = listening.as_pubsub();
    heard.subscribe(CHANNEL).unwrap();
    drop(std::mem::replace(&mut handing_off.unlocking, Box::pin(async { Ok(()) })));
    handing_off.next_hold().await.unlock().await.unwrap();
    handing_off.another_hold().await;
    assert!(!exists(&handing_off.server, "n"));
    heard.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for _ in ["next", "another"] {
        heard.get_message().expect("a message for each release");
    }
    heard.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert!(heard.get_message().is_err(), "the lock was freed instead of handed off");
}

/// The callers that unlock send the hand-offs, and the actor sends the attempt.
#[tokio::test]
async fn a_single_attempt_is_answered_while_tasks_hand_the_lock_to_each_other() {
    let server = Server::start();
    let hand_off = HandOff::new().max_time_alone(Duration::from_secs(60));
    let client = Client::builder().hand_off(hand_off).connect(server.url()).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let lock = client.lock("n");
        tasks.spawn(async move {
            loop {
                lock.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    eventually(|| client.stats().waiting == 7).await;
    for _ in 0..20 {
        let taken = client.lock("n").with_owner(&Owner::unique()).try_lock().await.expect("an answer");
        assert!(taken.is_none(), "taken from the holder");
    }
}

/// An owner that holds the lock must not get the answer that it is busy.
#[tokio::test(flavor = "multi_thread")]
async fn an_unanswered_re_entry_is_not_reported_as_busy() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    server.stop_signal();
    let outcome = lock.try_lock_for(Duration::from_millis(200)).await;
    assert!(matches!(outcome, Err(Error::TimedOut { .. } | Error::Unavailable { .. })), "{outcome:?}");
    assert_eq!(guard.state(), HoldState::Held);
    server.cont();
    guard.unlock().await.unwrap();
    // The server's last reply was that the lock is free.
    server.stop_signal();
    let outcome = lock.try_lock_for(Duration::from_millis(200)).await;
    assert!(matches!(outcome, Err(Error::TimedOut { .. } | Error::Unavailable { .. })), "{outcome:?}");
    server.cont();
}

/// A caller that is alone at a key sends its acquire itself. If it is not polled any more, others of its client do not wait until its
/// lease ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_acquire_delays_others_by_the_response_timeout() {
    let server = Server::start();
    let timeout = Duration::from_millis(500);
    let client = Client::builder().response_timeout(timeout).connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    let other = || client.lock("n").with_owner(&Owner::new("other").unwrap());
    // Load the scripts, so that a request is one send.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());

    let mut acquiring = Box::pin(lock.lock());
    server.stop_signal();
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    server.cont();
    eventually(|| exists(&server, "n")).await;
    let guard = other().try_lock_for(timeout * 10).await.unwrap().expect("the first acquire is undone");
    assert!(guard.owner().contains("other"), "{}", guard.owner());
    // Polled after all, it waits behind the other.
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    guard.unlock().await.unwrap();
    acquiring.await.unwrap().unlock().await.unwrap();
}

/// An acquire, of which the caller sends the second part only after an actor has overtaken and undone it.
struct SentLate {
    server: Server,
    _proxy: Proxy,
    _client: Client,
    acquiring: std::pin::Pin<Box<dyn Future<Output = redisson_lock::Result<LockGuard>> + Send>>,
}

impl SentLate {
    async fn start(lock: impl Fn(&Client) -> Lock) -> Self {
        let server = Server::start();
        let held = lock(&Client::connect(server.url()).await.unwrap()).lock().await.unwrap();
        let proxy = Proxy::start(server.port()).await;
        let timeout = Duration::from_millis(500);
        let client = Client::builder().response_timeout(timeout).connect(proxy.url()).await.unwrap();
        let own = lock(&client);
        let mut acquiring = Box::pin(async move { own.lock().await });
        // A reply that arrived during a poll would start the next part.
        let link = proxy.link(0).await;
        link.hold(Direction::ToClient);
        assert!(futures_util::poll!(acquiring.as_mut()).is_pending());
        link.pass(Direction::ToClient);
        // The first part finds the key in use, and reports no more than that.
        link.answered(1, |words| words.iter().any(|word| word == b"n")).await;
        let other = lock(&client).with_owner(&Owner::unique());
        assert!(other.try_lock_for(timeout * 3).await.unwrap().is_none());
        held.unlock().await.unwrap();
        assert!(!exists(&server, "n"));
        link.hold(Direction::ToClient);
        assert!(futures_util::poll!(acquiring.as_mut()).is_pending());
        eventually(|| exists(&server, "n")).await;
        link.pass(Direction::ToClient);
        Self { server, _proxy: proxy, _client: client, acquiring }
    }
}

/// The undo came before the part that took effect, so another one follows when the caller leaves.
#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_acquire_that_is_sent_late_and_dropped_leaves_nothing() {
    let late = SentLate::start(|client| client.lock("n")).await;
    drop(late.acquiring);
    eventually(|| !exists(&late.server, "n")).await;
}

/// The caller does not wait for the hold that its own late request began.
#[tokio::test(flavor = "multi_thread")]
async fn an_overtaken_acquire_that_is_sent_late_gets_the_lock() {
    for lock in [|client: &Client| client.lock("n"), |client: &Client| client.value_lock("n")] {
        let late = SentLate::start(lock).await;
        let guard =
            tokio::time::timeout(Duration::from_secs(5), late.acquiring).await.expect("a turn").unwrap();
        guard.unlock().await.unwrap();
        assert!(!exists(&late.server, "n"));
    }
}
