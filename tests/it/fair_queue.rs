//! The queue of a fair lock in Redis: order, lifetime and removal of its entries.

use std::time::{Duration, Instant};

use redis::Value;
use redisson_lock::{Client, HandOff, HoldState, Lock, LockGuard, Owner};
use tokio::task::JoinHandle;

use crate::support::kind::{channels, in_time};
use crate::support::proxy::{Direction, Words};
use crate::support::scripts::{self, FAIR_ACQUIRE, FAIR_HAND_OFF, FAIR_LEAVE};
use crate::support::{Java, Messages, Proxy, Server, Stopwatch, eventually, versions};

const NAME: &str = "n";
const QUEUE: &str = "redisson_lock_queue:{n}";
const TIMEOUTS: &str = "redisson_lock_timeout:{n}";
const MINE: &str = "mine:1";
const OTHER: &str = "other:1";
/// A wait timeout. The waiters renew their places after a third of it, so the machine may stall for the rest.
const SHORT: Duration = Duration::from_secs(2);

/// A server and a direct connection to it.
struct Queue {
    server: Server,
    cli: redis::Connection,
}

impl Queue {
    fn start() -> Self {
        let server = Server::start();
        Self { cli: server.cli(), server }
    }

    fn run<T: redis::FromRedisValue>(&mut self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.cli).unwrap()
    }

    fn owners(&mut self) -> Vec<String> {
        self.run(&format!("LRANGE {QUEUE} 0 -1"))
    }

    /// Waits until the queue has `count` entries and each waiter is subscribed.
    async fn wait_for_waiters(&mut self, count: usize) {
        eventually(|| self.owners().len() == count && channels(&self.server).len() == count).await;
    }

    /// Gives `owner` a timeout far in the future.
    fn set_far_timeout(&mut self, owner: &str) {
        let (seconds, _): (u64, u64) = self.run("TIME");
        self.run::<()>(&format!("ZADD {TIMEOUTS} {} {owner}", (seconds + 300) * 1000));
    }

    /// The acquire script's reply to [`MINE`].
    fn acquire(&mut self, waiting: &str) -> Value {
        let mut script = redis::cmd("EVAL");
        script.arg(FAIR_ACQUIRE).arg(3).arg(NAME).arg(QUEUE).arg(TIMEOUTS);
        script.arg(MINE).arg(30_000).arg(300_000).arg(waiting).arg("0");
        script.query(&mut self.cli).unwrap_or_else(|error| panic!("waiting {waiting}: {error}"))
    }
}

/// A forced unlock notifies only the first waiter in the queue, here one of the client that held the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_unlock_wakes_a_waiter_of_the_holders_own_client() {
    let mut queue = Queue::start();
    let client = Client::connect(queue.server.url()).await.unwrap();
    let other = Client::connect(queue.server.url()).await.unwrap();
    let lock = client.fair_lock(NAME).with_lease(Duration::from_secs(3600));
    let guard = lock.lock().await.unwrap();
    let waiting = tokio::spawn(async move { lock.lock().await });
    queue.wait_for_waiters(1).await;
    assert!(other.fair_lock(NAME).force_unlock().await.unwrap());
    let next = in_time("the waiter", waiting).await.unwrap().unwrap();
    assert!(matches!(guard.state(), HoldState::Lost(_)), "{:?}", guard.state());
    next.unlock().await.unwrap();
}

/// Puts a waiter that died long ago in front of the queue.
fn put_dead_waiter_first(queue: &mut Queue) {
    queue.run::<()>(&format!("LPUSH {QUEUE} dead:1"));
    queue.run::<()>(&format!("ZADD {TIMEOUTS} 1000 dead:1"));
}

/// Only the first waiter gets the message. If that one is dead, the next one must get it, also if the server is out of memory.
#[tokio::test]
async fn a_forced_unlock_notifies_the_first_waiter_that_is_alive() {
    let mut queue = Queue::start();
    let mut messages = Messages::of(&queue.server);
    let client = Client::connect(queue.server.url()).await.unwrap();
    for memory in ["0", "1"] {
        queue.run::<()>(&format!("HSET {NAME} holder:1 1"));
        queue.run::<()>(&format!("RPUSH {QUEUE} {OTHER}"));
        queue.set_far_timeout(OTHER);
        put_dead_waiter_first(&mut queue);
        queue.server.configure("maxmemory", memory);
        assert!(client.fair_lock(NAME).force_unlock().await.unwrap(), "{memory}");
        assert_only_the_other_is_notified(&mut queue, &mut messages, memory);
    }
}

/// As for a forced unlock.
#[test]
fn a_waiter_that_leaves_notifies_the_first_one_that_is_alive() {
    let mut queue = Queue::start();
    let mut messages = Messages::of(&queue.server);
    for memory in ["0", "1"] {
        for waiter in [MINE, OTHER] {
            queue.run::<()>(&format!("RPUSH {QUEUE} {waiter}"));
            queue.set_far_timeout(waiter);
        }
        put_dead_waiter_first(&mut queue);
        queue.server.configure("maxmemory", memory);
        let mut script = redis::cmd("EVAL");
        script.arg(FAIR_LEAVE).arg(3).arg(NAME).arg(QUEUE).arg(TIMEOUTS);
        script.arg(MINE).arg(300_000).arg("redisson_lock__channel:{n}");
        assert_eq!(script.query::<Value>(&mut queue.cli).unwrap(), Value::Int(1), "{memory}");
        assert_only_the_other_is_notified(&mut queue, &mut messages, memory);
    }
}

/// Asserts that [`OTHER`] alone is left in the queue and got a message, and that the lock is free. Empties the server.
fn assert_only_the_other_is_notified(queue: &mut Queue, messages: &mut Messages, case: &str) {
    let heard: Vec<_> = messages.heard().into_iter().map(|(channel, _)| channel).collect();
    assert_eq!(heard, [format!("redisson_lock__channel:{{n}}:{OTHER}")], "{case}");
    assert_eq!(queue.owners(), [OTHER], "{case}");
    assert_eq!(queue.run::<Vec<String>>(&format!("ZRANGE {TIMEOUTS} 0 -1")), [OTHER], "{case}");
    assert!(!queue.run::<bool>(&format!("EXISTS {NAME}")), "{case}");
    queue.server.configure("maxmemory", "0");
    queue.run::<()>("FLUSHALL");
}

/// The Java waiter sleeps until the lease ends, unless it gets a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_unlock_wakes_a_java_waiter_behind_a_dead_one() {
    let mut queue = Queue::start();
    let java = Java::get(&versions().pop().unwrap()).client(&queue.server, 0).await.thread("t");
    let client = Client::connect(queue.server.url()).await.unwrap();
    let lock = client.fair_lock(NAME).with_lease(Duration::from_secs(3600));
    let guard = lock.lock().await.unwrap();
    queue.server.commandstats_reset();
    let waiting = java.lock("fair", NAME);
    // Java attempts twice, before and after it is subscribed. Each attempt asks whether the record exists.
    eventually(|| queue.server.calls("exists") >= 2).await;
    put_dead_waiter_first(&mut queue);
    assert!(lock.force_unlock().await.unwrap());
    in_time("the Java waiter", waiting).await.unwrap();
    java.unlock("fair", NAME).await.unwrap();
    drop(guard);
}

/// The queue decides who is first, and not the client that releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_hands_the_lock_to_the_first_waiter_of_all_clients() {
    let mut queue = Queue::start();
    let mut messages = Messages::of(&queue.server);
    // A hold is handed off, however long it was.
    let builder = Client::builder().hand_off(HandOff::new().max_time_alone(Duration::from_secs(60)));
    let client = builder.connect(queue.server.url()).await.unwrap();
    let other = Client::connect(queue.server.url()).await.unwrap();
    let lock = |client: &Client| client.fair_lock(NAME).with_owner(&Owner::unique());
    let mut guard = lock(&client).lock().await.unwrap();
    let mut waiting = Vec::new();
    for client in [&client, &other, &client, &client] {
        waiting.push(spawn_waiter(&lock(client)));
        eventually(|| queue.owners().len() == waiting.len()).await;
    }
    let order = queue.owners();
    // The other client's waiter is notified, and so is the waiter after it.
    let notified = [false, true, true, false];
    for ((waiting, owner), notified) in waiting.into_iter().zip(&order).zip(notified) {
        let scores: Vec<(String, f64)> = queue.run(&format!("ZRANGE {TIMEOUTS} 1 -1 WITHSCORES"));
        guard.unlock().await.unwrap();
        guard = in_time("the next hold", waiting).await.unwrap();
        assert_eq!(guard.owner(), owner, "{order:?}");
        let heard: Vec<_> = messages.heard().into_iter().map(|(channel, _)| channel).collect();
        let channel = format!("redisson_lock__channel:{{n}}:{owner}");
        assert_eq!(heard, if notified { vec![channel] } else { Vec::new() }, "{owner} of {order:?}");
        // They have moved up by one place, whichever script granted the lock. The first one may have attempted since.
        let after: Vec<(String, f64)> = queue.run(&format!("ZRANGE {TIMEOUTS} 0 -1 WITHSCORES"));
        let (seconds, micros): (f64, f64) = queue.run("TIME");
        let (now, lease, allowance) = (seconds * 1000.0 + micros / 1000.0, 30_000.0, 300_000.0);
        assert_eq!(after.len(), scores.len(), "{owner} of {order:?}");
        for ((after_of, after), (of, before)) in after.into_iter().zip(scores) {
            let moved = before - allowance;
            assert!(
                after_of == of && after >= moved && after <= moved.max(now + lease + allowance),
                "{after} from {before}"
            );
        }
    }
    guard.unlock().await.unwrap();
    assert_eq!(queue.run::<Vec<String>>("KEYS *"), Vec::<String>::new());
}

/// Each state that the script can find: the writes, the reply, and whether the head is notified.
#[test]
fn the_hand_off_script_moves_releases_or_refuses() {
    const HOLDER: &str = "mine:0";
    let mut queue = Queue::start();
    let mut messages = Messages::of(&queue.server);
    let status = |word: &str| Value::Array(vec![Value::BulkString(word.as_bytes().to_vec())]);
    let freed = status("FREED");
    let cases = [
        // The record, the queue, repeated; the reply, who holds then, the queue then, who is notified.
        (Some((HOLDER, 1)), vec![MINE, OTHER], "0", Value::Int(0), Some(MINE), vec![OTHER], None),
        (Some((HOLDER, 1)), vec![MINE, OTHER], "1", Value::Int(0), Some(MINE), vec![OTHER], None),
        (Some((HOLDER, 1)), vec!["dead:1", MINE], "0", Value::Int(0), Some(MINE), vec![], None),
        (Some((HOLDER, 1)), vec![OTHER, MINE], "0", freed.clone(), None, vec![OTHER, MINE], Some(OTHER)),
        (Some((HOLDER, 1)), vec![], "0", freed, None, vec![], None),
        (Some((HOLDER, 2)), vec![MINE], "0", status("MISMATCH"), Some(HOLDER), vec![MINE], None),
        (Some((MINE, 1)), vec![OTHER], "1", Value::Int(0), Some(MINE), vec![OTHER], None),
        (Some((MINE, 1)), vec![OTHER], "0", status("OTHER"), Some(MINE), vec![OTHER], None),
        (Some((MINE, 2)), vec![OTHER], "1", status("OTHER"), Some(MINE), vec![OTHER], None),
        (Some((OTHER, 1)), vec![MINE], "0", status("OTHER"), Some(OTHER), vec![MINE], None),
        (None, vec![OTHER, MINE], "0", status("GONE"), None, vec![OTHER, MINE], Some(OTHER)),
        (None, vec![], "1", status("GONE"), None, vec![], None),
    ];
    for (record, waiters, repeated, reply, holder, left, notified) in cases {
        let case = format!("{record:?}, {waiters:?}, {repeated}");
        queue.run::<()>("FLUSHALL");
        if let Some((owner, count)) = record {
            queue.run::<()>(&format!("HSET {NAME} {owner} {count}"));
            queue.run::<()>(&format!("PEXPIRE {NAME} 5000"));
        }
        for waiter in &waiters {
            queue.run::<()>(&format!("RPUSH {QUEUE} {waiter}"));
            match waiter.starts_with("dead") {
                true => queue.run::<()>(&format!("ZADD {TIMEOUTS} 1000 {waiter}")),
                false => queue.set_far_timeout(waiter),
            }
        }
        let mut script = redis::cmd("EVAL");
        script.arg(FAIR_HAND_OFF).arg(3).arg(NAME).arg(QUEUE).arg(TIMEOUTS);
        script.arg(HOLDER).arg(MINE).arg(30_000).arg(300_000).arg("redisson_lock__channel:{n}").arg(repeated);
        assert_eq!(script.query::<Value>(&mut queue.cli).unwrap(), reply, "{case}");
        assert_eq!(queue.owners(), left, "{case}");
        assert_eq!(queue.run::<Vec<String>>(&format!("ZRANGE {TIMEOUTS} 0 -1")).len(), left.len(), "{case}");
        assert_eq!(queue.run::<Vec<String>>(&format!("HKEYS {NAME}")), Vec::from_iter(holder), "{case}");
        if reply == Value::Int(0) {
            assert!(queue.run::<u64>(&format!("PTTL {NAME}")) > 25_000, "{case}");
        }
        let heard: Vec<_> = messages.heard().into_iter().map(|(channel, _)| channel).collect();
        let expected = notified.map(|owner| format!("redisson_lock__channel:{{n}}:{owner}"));
        assert_eq!(heard, Vec::from_iter(expected), "{case}");
    }
}

/// A hand-off needs memory for the next owner's field, and a release needs none.
#[test]
fn a_hand_off_without_memory_releases() {
    let mut queue = Queue::start();
    queue.run::<()>(&format!("HSET {NAME} mine:0 1"));
    queue.run::<()>(&format!("RPUSH {QUEUE} {MINE}"));
    queue.set_far_timeout(MINE);
    queue.run::<()>("CONFIG SET maxmemory 1");
    let mut script = redis::cmd("EVAL");
    script.arg(FAIR_HAND_OFF).arg(3).arg(NAME).arg(QUEUE).arg(TIMEOUTS);
    script.arg("mine:0").arg(MINE).arg(30_000).arg(300_000).arg("channel").arg("0");
    let reply: Vec<String> = script.query(&mut queue.cli).unwrap();
    assert_eq!((reply, queue.owners()), (vec!["FREED".to_owned()], vec![MINE.to_owned()]));
    assert!(!queue.run::<bool>(&format!("EXISTS {NAME}")));
}

fn spawn_waiter(lock: &Lock) -> JoinHandle<LockGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// The script puts a waiter that had been removed as expired back in front, and the same request sees it there.
#[test]
fn a_waiter_put_back_in_front_acquires_a_free_lock_at_once() {
    let mut queue = Queue::start();
    queue.run::<()>(&format!("RPUSH {QUEUE} {OTHER}"));
    queue.set_far_timeout(OTHER);
    assert_eq!(queue.acquire("2"), Value::Int(1));
    assert_eq!(queue.owners(), [OTHER]);
    assert_eq!(queue.run::<Vec<String>>(&format!("ZRANGE {TIMEOUTS} 0 -1")), [OTHER]);
}

/// The list and the timeouts are two keys, so one of them may be evicted or deleted alone.
#[test]
fn a_waiter_with_only_a_timeout_left_rejoins_the_list() {
    let mut queue = Queue::start();
    for waiting in ["1", "2"] {
        queue.run::<()>("FLUSHALL");
        queue.set_far_timeout(MINE);
        assert_eq!(queue.acquire(waiting), Value::Int(1), "waiting {waiting}");
        assert_eq!(queue.run::<Vec<String>>("KEYS *"), [NAME], "waiting {waiting}");

        queue.run::<()>("FLUSHALL");
        queue.run::<()>(&format!("HSET {NAME} {OTHER} 1"));
        queue.set_far_timeout(MINE);
        assert!(matches!(queue.acquire(waiting), Value::Array(_)), "waiting {waiting}");
        assert_eq!(queue.owners(), [MINE], "waiting {waiting}");
    }
    // A newcomer goes to the end, an earlier waiter to the front.
    for (waiting, owners) in [("1", [OTHER, MINE]), ("2", [MINE, OTHER])] {
        queue.run::<()>("FLUSHALL");
        queue.run::<()>(&format!("HSET {NAME} holder:1 1"));
        queue.run::<()>(&format!("RPUSH {QUEUE} {OTHER}"));
        queue.set_far_timeout(OTHER);
        queue.set_far_timeout(MINE);
        assert!(matches!(queue.acquire(waiting), Value::Array(_)), "waiting {waiting}");
        assert_eq!(queue.owners(), owners, "waiting {waiting}");
    }
}

/// The waiter retries after one lease, finds the lock free and acquires it in the same request. The waiter of another client
/// behind it acquires the lock next.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_removed_from_the_queue_still_acquires_a_free_lock() {
    const LEASE: Duration = Duration::from_secs(1);
    let mut queue = Queue::start();
    scripts::load(&queue.server);
    let proxy = Proxy::start(queue.server.port()).await;
    let other = Client::connect(proxy.url()).await.unwrap();
    let client = Client::builder().watchdog_timeout(LEASE).connect(queue.server.url()).await.unwrap();
    queue.run::<()>(&format!("HSET {NAME} {OTHER} 1"));
    queue.run::<()>(&format!("PEXPIRE {NAME} 60000"));
    let waiting = spawn_waiter(&client.fair_lock(NAME));
    queue.wait_for_waiters(1).await;
    let ours = queue.owners().remove(0);
    let behind = spawn_waiter(&other.fair_lock(NAME));
    // The second attempt follows the subscription; then it sleeps.
    proxy.link(0).await.answered(2, is_attempt).await;
    queue.wait_for_waiters(2).await;

    let mut gone = redis::pipe();
    gone.atomic().lrem(QUEUE, 0, &ours).zrem(TIMEOUTS, &ours).del(NAME);
    gone.exec(&mut queue.cli).unwrap();
    let freed = Stopwatch::start();
    let guard = in_time("the waiter's hold", waiting).await.unwrap();
    let took = freed.elapsed();
    assert!(took < LEASE * 3 / 2, "free for {took:?}");
    guard.unlock().await.unwrap();
    in_time("the hold of the waiter behind", behind).await.unwrap().unlock().await.unwrap();
}

/// Waiters send no attempts while their own client holds the lock. Here the hold is longer than the wait timeout of the fair lock.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_behind_a_hold_of_their_own_client_keep_their_places() {
    let version = versions().pop().unwrap();
    let setting = format!("fairLockWaitTimeout={}", SHORT.as_millis());
    let mut queue = Queue::start();
    let java = Java::get(&version).client_with(&queue.server, 1000, &[&setting]).await.unwrap();
    let (passing, behind) = (java.thread("passing"), java.thread("behind"));
    // A place lasts for the rest of the holder's lease and the wait timeout. Both together must end during this test.
    let builder = || Client::builder().watchdog_timeout(SHORT).fair_lock_wait_timeout(SHORT);
    let client = builder().connect(queue.server.url()).await.unwrap();
    let lock = client.fair_lock(NAME);
    let guard = lock.lock().await.unwrap();
    let first = spawn_waiter(&lock);
    eventually(|| queue.owners().len() == 1).await;
    let second = spawn_waiter(&lock);
    eventually(|| queue.owners().len() == 2).await;
    let ours = queue.owners();
    let until = Instant::now() + SHORT * 5 / 2;
    while Instant::now() < until {
        // Each attempt of another client removes expired waiters.
        assert!(!passing.try_lock("fair", NAME).await.unwrap());
        assert_eq!(queue.owners(), ours);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = behind.lock("fair", NAME);
    eventually(|| queue.owners().len() == 3).await;
    guard.unlock().await.unwrap();
    for waiting in [first, second] {
        let guard = in_time("the waiter's hold", waiting).await.unwrap();
        guard.unlock().await.unwrap();
    }
    in_time("Java's hold", last).await.unwrap();
    behind.unlock("fair", NAME).await.unwrap();
}

/// Short, because the tests wait for it, and longer than this machine stalls for a moment.
const RESPONSE: Duration = Duration::from_millis(600);

/// A client behind a proxy, and the guard of another client that holds the lock.
async fn behind_a_proxy(queue: &Queue) -> (Proxy, Client, LockGuard) {
    behind_a_proxy_within(queue, RESPONSE).await
}

async fn behind_a_proxy_within(queue: &Queue, response: Duration) -> (Proxy, Client, LockGuard) {
    scripts::load(&queue.server);
    let proxy = Proxy::start(queue.server.port()).await;
    let client = Client::builder()
        .response_timeout(response)
        .connect_timeout(response.max(Duration::from_secs(1)))
        .connect(proxy.url())
        .await
        .unwrap();
    let holder = Client::connect(queue.server.url()).await.unwrap();
    let guard = holder.fair_lock(NAME).lock().await.unwrap();
    (proxy, client, guard)
}

fn is_attempt(words: &Words) -> bool {
    words[0] == b"EVALSHA" && words.iter().any(|word| word == QUEUE.as_bytes())
}

/// Matches the attempts of a waiter with this owner id.
fn attempt_of(owner: &str) -> impl Fn(&Words) -> bool {
    move |words| words[0] == b"EVALSHA" && words.len() > 9 && words[6] == owner.as_bytes()
}

/// An owner has one entry, however many of its tasks wait. The entry keeps its place when the first of them leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_waiter_leaves_its_turn_to_another_of_its_owner() {
    let mut queue = Queue::start();
    // No reply is late.
    let (proxy, client, guard) = behind_a_proxy_within(&queue, RESPONSE * 5).await;
    let shared = client.fair_lock(NAME).with_owner(&Owner::unique());
    let leaves = spawn_waiter(&shared);
    queue.wait_for_waiters(1).await;
    let owner = queue.owners().remove(0);
    let behind = spawn_waiter(&client.fair_lock(NAME));
    eventually(|| queue.owners().len() == 2).await;
    let stays = spawn_waiter(&shared);
    // The first waiter attempts twice, before and after it is subscribed.
    proxy.link(0).await.answered(3, attempt_of(&owner)).await;

    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert_eq!(queue.owners()[0], owner);
    guard.unlock().await.unwrap();
    for (waiter, waiting) in [("the shared owner", stays), ("the waiter behind", behind)] {
        in_time(waiter, waiting).await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(queue.owners(), [""; 0]);
}

/// All waiters behind an orphaned entry wait until it expires.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_cancelled_without_a_connection_is_removed_later() {
    let mut queue = Queue::start();
    let (proxy, client, guard) = behind_a_proxy(&queue).await;
    let lock = client.fair_lock(NAME);
    let leaves = spawn_waiter(&lock);
    queue.wait_for_waiters(1).await;
    proxy.partition();
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    // Each attempt takes one response timeout, so the client has given up the removal by then.
    for _ in 0..2 {
        assert!(lock.try_lock().await.is_err());
    }
    assert_eq!(queue.owners().len(), 1);
    proxy.heal();
    eventually(|| queue.owners().is_empty()).await;

    // Closing the client does not wait for the removal. (The server still has the subscription of the dead link.)
    let leaves = spawn_waiter(&lock);
    eventually(|| queue.owners().len() == 1).await;
    proxy.partition();
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert!(lock.try_lock().await.is_err());
    let started = Stopwatch::start();
    client.close().await;
    let took = started.elapsed();
    assert!(took < RESPONSE * 4, "closed after {took:?}");
    guard.unlock().await.unwrap();
}

/// An explicit owner waits for a fair lock, and meanwhile gets the plain lock of that name, whose record has the same form. Its waiter for
/// the fair lock gets a further level, and its entry must not stay in front of others.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_got_the_lock_in_another_way_leaves_the_queue() {
    let mut queue = Queue::start();
    let client = Client::connect(queue.server.url()).await.unwrap();
    let guard = client.lock(NAME).lock().await.unwrap();
    let owner = Owner::unique();
    let plain = spawn_waiter(&client.lock(NAME).with_owner(&owner));
    eventually(|| client.stats().waiting == 1).await;
    let fair = spawn_waiter(&client.fair_lock(NAME).with_owner(&owner));
    eventually(|| queue.owners().len() == 1).await;
    guard.unlock().await.unwrap();
    let guards = (plain.await.unwrap(), fair.await.unwrap());
    eventually(|| queue.owners().is_empty()).await;
    drop(guards);
}

/// The release that clears an owner id may be delivered late. It would then free a later hold with the same owner id.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_owner_id_is_cleared_waits_under_a_new_one() {
    let mut queue = Queue::start();
    // The clearing request has a quarter of the timeout before the heartbeat ends the connection. This machine may stall meanwhile.
    let (proxy, client, guard) = behind_a_proxy_within(&queue, RESPONSE * 5).await;
    let lock = client.fair_lock(NAME).with_owner(&Owner::unique());
    let waiting = spawn_waiter(&lock);
    let link = proxy.link(0).await;
    // The waiter attempts twice, before and after it is subscribed.
    link.answered(2, is_attempt).await;
    let owner_id = queue.owners().remove(0);
    let releases = {
        let owner_id = owner_id.clone();
        move |words: &Words| words[0] == b"EVALSHA" && words.len() == 8 && words[6] == owner_id.as_bytes()
    };

    // An attempt of the same owner gets no reply, so its owner id is cleared. The clearing request gets no reply either.
    link.hold(Direction::ToServer);
    assert!(lock.try_lock().await.is_err());
    link.asked(1, &releases).await;
    link.cut_client();
    proxy.link(2).await.answered(1, &releases).await;
    guard.unlock().await.unwrap();
    let guard = in_time("the waiter's hold", waiting).await.unwrap();
    link.pass(Direction::ToServer);
    link.answered(1, &releases).await;
    assert_eq!(queue.run::<Vec<String>>(&format!("HKEYS {NAME}")), [guard.owner()]);
    assert_ne!(guard.owner(), owner_id);
    guard.unlock().await.unwrap();
    eventually(|| queue.owners().is_empty()).await;
}

/// A late request, or one that could not be sent, leaves another order in Redis than the client knows. The message of a release then goes
/// to a waiter for which the client does not listen, so it notices the free lock only when it looks again: after a lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_follows_the_order_in_redis() {
    let mut queue = Queue::start();
    let holder = Client::connect(queue.server.url()).await.unwrap();
    let guard = holder.fair_lock(NAME).lock().await.unwrap();
    let hasty = Client::builder().watchdog_timeout(Duration::from_secs(1));
    let client = hasty.connect(queue.server.url()).await.unwrap();
    let lock = client.fair_lock(NAME);
    let first = spawn_waiter(&lock);
    queue.wait_for_waiters(1).await;
    let mut others = Vec::new();
    for count in 2..=3 {
        others.push(spawn_waiter(&lock));
        eventually(|| queue.owners().len() == count).await;
    }
    // The last one becomes the first.
    queue.run::<()>(&format!("LMOVE {QUEUE} {QUEUE} RIGHT LEFT"));
    guard.unlock().await.unwrap();
    let last = in_time("the last one", others.pop().unwrap()).await.unwrap();
    assert!(!first.is_finished() && !others[0].is_finished());
    last.unlock().await.unwrap();
    in_time("the first one", first).await.unwrap().unlock().await.unwrap();
    in_time("the second one", others.pop().unwrap()).await.unwrap().unlock().await.unwrap();
}

/// A late attempt acquires for a waiter that has attempted again since. The record is under the waiter's owner id, and it is no hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_attempt_of_a_waiter_is_undone() {
    let mut queue = Queue::start();
    let (proxy, client, guard) = behind_a_proxy(&queue).await;
    let waiting = spawn_waiter(&client.fair_lock(NAME));
    let link = proxy.link(0).await;
    // The waiter attempts twice, before and after it is subscribed.
    link.answered(2, is_attempt).await;
    let owner = queue.owners().remove(0);
    let channel = format!("redisson_lock__channel:{{n}}:{owner}");
    link.hold(Direction::ToServer);
    queue.run::<()>(&format!("PUBLISH {channel} 0"));
    link.asked(3, is_attempt).await;
    link.cut_client();
    let new = proxy.link(2).await;
    new.answered(1, is_attempt).await;
    // The client cannot see the free lock before the late attempt has acquired it.
    new.hold(Direction::ToServer);
    queue.run::<()>(&format!("DEL {NAME}"));
    link.pass(Direction::ToServer);
    eventually(|| queue.run::<bool>(&format!("HEXISTS {NAME} {owner}"))).await;
    new.pass(Direction::ToServer);
    queue.run::<()>(&format!("PUBLISH {channel} 0"));
    let late = in_time("the waiter", waiting).await.unwrap();
    assert_ne!(late.owner(), owner);
    late.unlock().await.unwrap();
    assert!(guard.unlock().await.is_err(), "the record was deleted");
}

/// A fair lock attempts only through its key's queue, and a write lock has no hand-off, so neither serves the waiter in another way.
#[tokio::test(flavor = "multi_thread")]
async fn a_flow_of_single_attempts_leaves_a_waiter_its_turn() {
    for is_fair in [true, false] {
        let server = Server::start();
        let (holder, client) =
            (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
        let lock_of = |client: &Client| match is_fair {
            true => client.fair_lock(NAME),
            false => client.read_write_lock(NAME).write().clone(),
        };
        let guard = lock_of(&holder).lock().await.unwrap();
        let lock = lock_of(&client);
        let waiting = spawn_waiter(&lock);
        eventually(|| client.stats().waiting == 1 && channels(&server).len() == 1).await;
        let attempts: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move {
                    loop {
                        if let Some(guard) = lock.try_lock().await.unwrap() {
                            guard.unlock().await.unwrap();
                        }
                    }
                })
            })
            .collect();
        guard.unlock().await.unwrap();
        let guard = in_time("the waiter", waiting).await.unwrap();
        attempts.iter().for_each(JoinHandle::abort);
        guard.unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_keeps_the_waiters() {
    let mut queue = Queue::start();
    scripts::load(&queue.server);
    let holder = Client::connect(queue.server.url()).await.unwrap();
    let guard = holder.fair_lock(NAME).lock().await.unwrap();
    let proxy = Proxy::start(queue.server.port()).await;
    let client = Client::builder().fair_lock_wait_timeout(SHORT).connect(proxy.url()).await.unwrap();
    let waiting = spawn_waiter(&client.fair_lock(NAME));
    queue.wait_for_waiters(1).await;
    let owner = queue.owners().remove(0);
    // The server refuses an attempt while it is out of memory. The second one follows the subscription.
    proxy.link(0).await.answered(2, attempt_of(&owner)).await;
    let score = format!("ZSCORE {TIMEOUTS} {owner}");
    // Without a lease of the holder, the score depends on the time of the last refresh alone.
    queue.run::<()>(&format!("PERSIST {NAME}"));
    queue.run::<()>(&format!("ZADD {TIMEOUTS} 1 {owner}"));
    queue.server.configure("maxmemory", "1");
    eventually(|| queue.run::<f64>(&score) > 1.0).await;
    queue.server.configure("maxmemory", "0");
    guard.unlock().await.unwrap();
    in_time("the waiter", waiting).await.unwrap().unlock().await.unwrap();
}

/// A grant consumes the owner's entry. The other waiters of that owner enter the queue again, behind all others.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_nobody_receives_costs_its_owner_the_turn() {
    let mut queue = Queue::start();
    // The connection must outlive the time without a reply.
    let (proxy, client, guard) = behind_a_proxy_within(&queue, RESPONSE * 25).await;
    let shared = client.fair_lock(NAME).with_owner(&Owner::unique());
    let leaves = spawn_waiter(&shared);
    queue.wait_for_waiters(1).await;
    let owner = queue.owners().remove(0);
    let behind = spawn_waiter(&client.fair_lock(NAME));
    eventually(|| queue.owners().len() == 2).await;
    let stays = spawn_waiter(&shared);
    let link = proxy.link(0).await;
    // The first waiter attempts twice, before and after it is subscribed.
    link.answered(3, attempt_of(&owner)).await;

    // While the reply to the first one is on its way, that waiter leaves, and another one of its owner comes.
    link.hold(Direction::ToClient);
    guard.unlock().await.unwrap();
    eventually(|| queue.run::<Vec<String>>(&format!("HKEYS {NAME}")) == [owner.as_str()]).await;
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    let mut comes = Box::pin(shared.lock());
    assert!(futures_util::poll!(comes.as_mut()).is_pending());
    link.pass(Direction::ToClient);

    in_time("the waiter behind", behind).await.unwrap().unlock().await.unwrap();
    let (stays, comes) = tokio::join!(in_time("the shared owner", stays), in_time("its newcomer", comes));
    stays.unwrap().unlock().await.unwrap();
    comes.unwrap().unlock().await.unwrap();
    eventually(|| queue.owners().is_empty()).await;
}

/// A waiter whose owner id is cleared rejoins the queue at its end, behind a later waiter of its client. Then Redis waits for the later
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_rejoins_the_queue_lets_a_later_one_of_its_client_go_first() {
    let mut queue = Queue::start();
    let (proxy, client, guard) = behind_a_proxy(&queue).await;
    let lock = client.fair_lock(NAME).with_owner(&Owner::unique());
    let first = spawn_waiter(&lock);
    queue.wait_for_waiters(1).await;
    let second = spawn_waiter(&client.fair_lock(NAME));
    // The first waiter attempts twice, before and after it is subscribed.
    proxy.link(0).await.answered(3, is_attempt).await;
    // This reply comes after those.
    assert!(!client.lock("other").is_locked().await.unwrap());
    let before = queue.owners();

    // An attempt of the first owner gets no reply, so its owner id is cleared. The client has given it up once the next attempt
    // has failed.
    proxy.partition();
    for _ in 0..2 {
        assert!(lock.try_lock().await.is_err());
    }
    proxy.heal();
    eventually(|| queue.owners().len() == 2 && queue.owners()[0] == before[1]).await;
    guard.unlock().await.unwrap();
    for (waiter, waiting) in [("the second", second), ("the first", first)] {
        in_time(waiter, waiting).await.unwrap().unlock().await.unwrap();
    }
}
