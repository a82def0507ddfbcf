//! `Client::stats` and observers: each counter is moved by its event, every hold that begins ends once, and an observer sees the same.

use crate::support::cluster::Cluster;
use crate::support::proxy::{Direction, ProxyLink};
use crate::support::tally::Tally;
use crate::support::{BUSY_WAIT, Proxy, Server, eventually, subscribers};
use futures_util::{StreamExt, poll};
use redisson_lock::{Client, HandOff, HoldState, Lock, LossReason, Owner, Stats};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

const NAME: &str = "n";
const CHANNEL: &str = "redisson_lock__channel:{n}";
const LEASE: Duration = Duration::from_secs(2);

fn run(server: &Server, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
}

/// Two clients, the first of them observed.
async fn clients(server: &Server) -> (Client, Client, Arc<Tally>) {
    let (builder, tally) = Tally::of(Client::builder());
    let (client, other) = tokio::join!(builder.connect(server.url()), Client::connect(server.url()));
    (client.unwrap(), other.unwrap(), tally)
}

/// Waits until the client's counters fulfil `condition`. Returns them.
async fn reached(client: &Client, condition: impl Fn(&Stats) -> bool) -> Stats {
    eventually(|| condition(&client.stats())).await;
    client.stats()
}

/// Asserts that the counters add up, and that the observer has seen the same.
async fn assert_adds_up(client: &Client, tally: &Tally) {
    let stats = client.stats();
    assert_eq!(stats.begun(), stats.released + stats.lost.total() + stats.unended + stats.held, "{stats:?}");
    tally.assert_agrees(client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_their_outcome() {
    let server = Server::start();
    let (client, other, tally) = clients(&server).await;
    let lock = client.lock(NAME);
    let before = client.stats();
    assert_eq!((before.begun(), before.held, before.released), (0, 0, 0), "{before:?}");

    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.acquired_directly, stats.re_entered, stats.held), (1, 1, 1), "{stats:?}");
    inner.unlock().await.unwrap();
    assert_eq!(client.stats().released, 0);
    outer.unlock().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.released, stats.held), (1, 0), "{stats:?}");

    // A fair lock always has a task for its key, and does not wait by that.
    client.fair_lock("fair").lock().await.unwrap().unlock().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.acquired_directly, stats.acquired_after_wait), (2, 0), "{stats:?}");

    let guard = other.lock(NAME).lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    reached(&client, |stats| stats.waiting == 1).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert!(client.lock("").lock().await.is_err());
    let semaphore = client.semaphore(NAME);
    semaphore.try_acquire().await.unwrap_err();
    let stats = client.stats();
    assert_eq!((stats.busy, stats.timed_out, stats.cancelled, stats.failed), (1, 1, 1, 1), "{stats:?}");
    assert_eq!((stats.waiting, stats.begun()), (0, 2), "{stats:?}");
    guard.unlock().await.unwrap();
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_after_a_message_are_useful_or_empty() {
    let server = Server::start();
    let (client, other, tally) = clients(&server).await;
    let guard = other.lock(NAME).lock().await.unwrap();
    let waits = tokio::spawn({
        let lock = client.lock(NAME);
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    run(&server, &format!("PUBLISH {CHANNEL} 0"));
    let stats = reached(&client, |stats| stats.wake_ups.empty == 1).await;
    assert_eq!(stats.wake_ups.useful, 0, "{stats:?}");
    guard.unlock().await.unwrap();
    waits.await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.wake_ups.useful, stats.wake_ups.empty), (1, 1), "{stats:?}");
    assert_eq!((stats.acquired_after_wait, stats.acquired_directly), (1, 0), "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

/// Hands `lock` from one task to another within the client.
async fn hand_over(client: &Client, lock: &Lock) {
    let guard = lock.lock().await.unwrap();
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    reached(client, |stats| stats.waiting == 1).await;
    guard.unlock().await.unwrap();
    waits.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hand_over_ends_one_hold_and_begins_another() {
    let server = Server::start();
    let (client, _, tally) = clients(&server).await;
    for lock in [client.mutex(NAME), client.mutex(NAME).with_pipelined_hand_off(true)] {
        let before = client.stats();
        hand_over(&client, &lock).await;
        let stats = client.stats();
        assert_eq!(stats.handed_over, before.handed_over + 1, "{stats:?}");
        assert_eq!((stats.begun(), stats.released), (before.begun() + 2, before.released + 2), "{stats:?}");
    }

    let semaphore = client.semaphore("s");
    semaphore.try_set_permits(1).await.unwrap();
    let before = client.stats();
    let permit = semaphore.acquire().await.unwrap();
    let waits = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    reached(&client, |stats| stats.waiting == 1).await;
    permit.release().await.unwrap();
    let permit = waits.await.unwrap();
    let stats = client.stats();
    assert_eq!(stats.handed_over, before.handed_over + 1, "{stats:?}");
    assert_eq!((stats.held, stats.released), (1, before.released + 1), "{stats:?}");
    permit.forget();
    let stats = client.stats();
    assert_eq!((stats.held, stats.unended), (0, 1), "{stats:?}");
    assert_adds_up(&client, &tally).await;

    // Without a hand-over, the next holder acquires the lock.
    let (builder, tally) = Tally::of(Client::builder().hand_off(HandOff::new().max_in_row(0)));
    let client = builder.connect(server.url()).await.unwrap();
    hand_over(&client, &client.mutex(NAME)).await;
    let stats = client.stats();
    assert_eq!((stats.handed_over, stats.acquired_after_wait), (0, 1), "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_passed_and_not_held() {
    let server = Server::start();
    let (client, other, tally) = clients(&server).await;
    let latch = client.count_down_latch("l");
    latch.try_set_count(1).await.unwrap();
    let waits = tokio::spawn(async move { latch.wait().await });
    reached(&client, |stats| stats.waiting == 1).await;
    other.count_down_latch("l").count_down().await.unwrap();
    waits.await.unwrap().unwrap();
    let stats = client.stats();
    assert_eq!((stats.waiting, stats.begun(), stats.unended, stats.failed), (0, 0, 0, 0), "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_hold_is_counted_by_its_reason() {
    let mut server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let builder = Client::builder().watchdog_timeout(LEASE).response_timeout(LEASE / 2);
    let (builder, tally) = Tally::of(builder);
    let client = builder.connect(proxy.url()).await.unwrap();
    let lock = client.mutex(NAME);
    let lost = async |guard: &redisson_lock::LockGuard, reason| {
        assert_eq!(guard.lost().await, HoldState::Lost(reason));
    };

    let guard = lock.lock().await.unwrap();
    run(&server, "DEL n");
    lost(&guard, LossReason::Gone).await;
    drop(guard);
    assert_eq!(client.stats().lost.gone, 1);

    let guard = lock.lock().await.unwrap();
    server.give_away(NAME);
    lost(&guard, LossReason::Taken).await;
    drop(guard);
    run(&server, "DEL n");
    assert_eq!(client.stats().lost.taken, 1);

    let guard = lock.with_lease(LEASE / 4).lock().await.unwrap();
    lost(&guard, LossReason::Expired).await;
    drop(guard);
    assert_eq!(client.stats().lost.expired, 1);

    let guard = lock.lock().await.unwrap();
    proxy.partition();
    lost(&guard, LossReason::Unreachable).await;
    proxy.heal();
    drop(guard);
    assert_eq!(client.stats().lost.unreachable, 1);

    eventually(|| client.is_connected()).await;
    let guard = in_time_lock(&lock).await;
    server.kill();
    server.start_again();
    lost(&guard, LossReason::DataLost).await;
    drop(guard);
    let stats = client.stats();
    assert_eq!((stats.lost.data_lost, stats.lost.total(), stats.held), (1, 5, 0), "{stats:?}");
    assert!(stats.reconnects >= 2, "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

async fn in_time_lock(lock: &Lock) -> redisson_lock::LockGuard {
    tokio::time::timeout(Duration::from_secs(20), lock.lock()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_done_late_or_failed() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let (builder, tally) = Tally::of(Client::builder().watchdog_timeout(LEASE * 2));
    let client = builder.connect(proxy.url()).await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let stats = reached(&client, |stats| stats.renewals.done >= 1).await;
    assert_eq!(stats.renewals.failed, 0, "{stats:?}");

    // A renewal waits a third of the lease for its reply.
    let link = proxy.link(0).await;
    link.hold(Direction::ToServer);
    reached(&client, |stats| stats.renewals.failed >= 1).await;
    link.pass(Direction::ToServer);
    let before = client.stats().renewals.done;
    reached(&client, |stats| stats.renewals.done > before).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_with_little_of_the_lease_left_is_late() {
    const WATCHDOG: Duration = Duration::from_secs(6);
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    // No heartbeat ends the connection meanwhile.
    let builder = Client::builder().watchdog_timeout(WATCHDOG).response_timeout(WATCHDOG * 2);
    let (builder, tally) = Tally::of(builder);
    let client = builder.connect(proxy.url()).await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let link = proxy.link(0).await;
    link.hold(Direction::ToServer);
    let late = guard.deadline() - WATCHDOG / 4;
    tokio::time::sleep_until(late.into()).await;
    let stats = client.stats();
    assert_eq!((stats.renewals.done, stats.renewals.late), (0, 0), "{stats:?}");
    link.pass(Direction::ToServer);
    reached(&client, |stats| stats.renewals.late == 1).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();
    assert_adds_up(&client, &tally).await;
}

/// After an outage the watchdog checks a hold with a fixed lease. That renews nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_check_of_a_fixed_lease_is_no_renewal() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let (builder, tally) = Tally::of(Client::builder());
    let client = builder.connect(proxy.url()).await.unwrap();
    let guard = client.mutex(NAME).with_lease(Duration::from_secs(60)).lock().await.unwrap();
    proxy.partition();
    proxy.open_links().iter().for_each(ProxyLink::cut);
    eventually(|| guard.state() == HoldState::Suspect).await;
    proxy.heal();
    eventually(|| guard.state() == HoldState::Held).await;
    let stats = client.stats();
    assert_eq!((stats.renewals.done, stats.renewals.late, stats.reconnects), (0, 0, 1), "{stats:?}");
    guard.unlock().await.unwrap();
    assert_adds_up(&client, &tally).await;
}

/// The call acquires again. Neither the counters nor an observer know of the hold that ended before the owner took it.
#[tokio::test]
async fn a_hold_that_is_lost_before_its_owner_takes_it_never_begins() {
    let server = Server::start();
    let (client, _, tally) = clients(&server).await;
    let [first, late, next] =
        ["first", "late", "next"].map(|owner| client.lock(NAME).with_owner(&Owner::new(owner).unwrap()));
    let guard = first.lock().await.unwrap();
    let late = late.with_lease(Duration::from_secs(1));
    let mut late = pin!(late.lock());
    assert!(poll!(late.as_mut()).is_pending());
    let next = tokio::spawn(async move { next.lock().await.unwrap() });
    reached(&client, |stats| stats.waiting == 2).await;
    // The lock is handed to the call that nobody polls, and goes on when that lease has ended.
    guard.unlock().await.unwrap();
    next.await.unwrap().unlock().await.unwrap();
    late.await.unwrap().unlock().await.unwrap();
    let stats = client.stats();
    assert_eq!((stats.begun(), stats.released, stats.lost.total()), (3, 3, 0), "{stats:?}");
    assert_eq!((stats.held, stats.unended), (0, 0), "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

/// The release of the last level waits behind that of another level when the client closes.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_whose_release_is_not_sent_before_the_close_is_unended() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let (builder, tally) = Tally::of(Client::builder().response_timeout(Duration::from_secs(1)));
    let client = builder.connect(proxy.url()).await.unwrap();
    let lock = client.lock(NAME);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    proxy.link(0).await.hold(Direction::ToServer);
    drop(inner);
    drop(outer);
    client.close().await;
    let stats = client.stats();
    assert_eq!((stats.held, stats.begun()), (0, 1), "{stats:?}");
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_connection_to_a_server_is_no_reconnect() {
    let cluster = Cluster::start(3, 0);
    let (builder, tally) = Tally::of(Client::builder());
    let client = builder.connect(cluster.url()).await.unwrap();
    eventually(|| client.is_connected()).await;
    assert_eq!(client.stats().reconnects, 0);
    assert_adds_up(&client, &tally).await;
    let server = Server::start();
    let lazy = Client::builder().connect_lazy(server.url()).unwrap();
    eventually(|| lazy.is_connected()).await;
    assert_eq!(lazy.stats().reconnects, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortcut_that_the_server_forbids_is_neither_sent_nor_counted() {
    let server = Server::start();
    run(&server, "ACL SETUSER default -restore -multi");
    let (client, _, tally) = clients(&server).await;
    let before = client.stats().requests.scripts;
    for _ in 0..3 {
        client.lock(NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    let requests = client.stats().requests;
    assert_eq!((requests.shortcuts, requests.fallbacks), (0, 0), "{requests:?}");
    // The server may not know the scripts yet, and then gets them once more by their source.
    assert!((6..=8).contains(&(requests.scripts - before)), "{requests:?}");
    assert_adds_up(&client, &tally).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_counted_by_their_form() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let (builder, tally) = Tally::of(Client::builder());
    let client = builder.connect(proxy.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let lock = client.lock(NAME);
    let before = client.stats().requests;
    let guard = lock.lock().await.unwrap();
    let requests = client.stats().requests;
    let shortcuts = requests.shortcuts - before.shortcuts;
    assert_eq!((shortcuts, requests.scripts, requests.fallbacks), (1, before.scripts, 0), "{requests:?}");
    assert_eq!(requests.in_flight, 0);

    // A re-entry needs the script.
    drop(lock.lock().await.unwrap());
    assert!(client.stats().requests.scripts > before.scripts);
    guard.unlock().await.unwrap();

    // The shortcut does nothing to a held lock, so the script follows.
    let guard = other.lock(NAME).lock().await.unwrap();
    assert!(lock.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    let requests = client.stats().requests;
    assert_eq!(requests.fallbacks, 1, "{requests:?}");
    assert!(lock.is_locked().await.unwrap());
    assert!(client.stats().requests.commands > requests.commands);
    let commands = client.stats().requests.commands;
    assert_eq!(client.locks("*").count().await, 1);
    assert!(client.stats().requests.commands > commands, "a scan counts");
    guard.unlock().await.unwrap();

    let link = proxy.link(0).await;
    link.hold(Direction::ToServer);
    let locked = tokio::spawn(async move { lock.is_locked().await });
    reached(&client, |stats| stats.requests.in_flight == 1).await;
    link.pass(Direction::ToServer);
    locked.await.unwrap().unwrap();
    assert_eq!(client.stats().requests.in_flight, 0);
    assert_adds_up(&client, &tally).await;
}

/// A task that blocks the client's only thread delays its renewals.
#[tokio::test]
async fn the_lag_of_the_watchdog_is_seen() {
    const BLOCKED: Duration = Duration::from_millis(600);
    let server = Server::start();
    let client = Client::builder().watchdog_timeout(BLOCKED * 3).connect(server.url()).await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    reached(&client, |stats| stats.renewals.done >= 1).await;
    // The next renewal is due within 600 ms, and at most a third of the block is over by then.
    std::thread::sleep(BLOCKED * 2);
    reached(&client, |stats| stats.watchdog_lag >= BLOCKED).await;
    drop(guard);
}
