//! The queue of a fair lock in Redis: order, lifetime and removal of its entries.

use std::time::{Duration, Instant};

use redis::Value;
use redisson_lock::{Client, Lock, LockGuard, Owner};
use tokio::task::JoinHandle;

use crate::support::kind::{channels, in_time};
use crate::support::proxy::{Way, Words};
use crate::support::scripts::{self, FAIR_ACQUIRE};
use crate::support::{Java, Proxy, Server, Stopwatch, eventually, versions};

const NAME: &str = "n";
const QUEUE: &str = "redisson_lock_queue:{n}";
const TIMEOUTS: &str = "redisson_lock_timeout:{n}";
const MINE: &str = "mine:1";
const OTHER: &str = "other:1";
const SHORT: Duration = Duration::from_millis(500);

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

    async fn becomes(&mut self, count: usize) {
        eventually(|| self.owners().len() == count && channels(&self.server).len() == count).await;
    }

    /// Gives `owner` a score far in the future.
    fn counts(&mut self, owner: &str) {
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

fn waits(lock: &Lock) -> JoinHandle<LockGuard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

/// A waiter that was taken for gone is put back in front, and the same request sees it there.
#[test]
fn who_is_first_again_has_a_free_lock_at_once() {
    let mut queue = Queue::start();
    queue.run::<()>(&format!("RPUSH {QUEUE} {OTHER}"));
    queue.counts(OTHER);
    assert_eq!(queue.acquire("2"), Value::Int(1));
    assert_eq!(queue.owners(), [OTHER]);
    assert_eq!(queue.run::<Vec<String>>(&format!("ZRANGE {TIMEOUTS} 0 -1")), [OTHER]);
}

/// The list and the timeouts are two keys, so one of them may be evicted or deleted alone.
#[test]
fn a_waiter_of_whom_only_the_timeout_is_left_stands_in_the_list_again() {
    let mut queue = Queue::start();
    for waiting in ["1", "2"] {
        queue.run::<()>("FLUSHALL");
        queue.counts(MINE);
        assert_eq!(queue.acquire(waiting), Value::Int(1), "waiting {waiting}");
        assert_eq!(queue.run::<Vec<String>>("KEYS *"), [NAME], "waiting {waiting}");

        queue.run::<()>("FLUSHALL");
        queue.run::<()>(&format!("HSET {NAME} {OTHER} 1"));
        queue.counts(MINE);
        assert!(matches!(queue.acquire(waiting), Value::Array(_)), "waiting {waiting}");
        assert_eq!(queue.owners(), [MINE], "waiting {waiting}");
    }
    // A newcomer goes to the end, an earlier waiter to the front.
    for (waiting, owners) in [("1", [OTHER, MINE]), ("2", [MINE, OTHER])] {
        queue.run::<()>("FLUSHALL");
        queue.run::<()>(&format!("HSET {NAME} holder:1 1"));
        queue.run::<()>(&format!("RPUSH {QUEUE} {OTHER}"));
        queue.counts(OTHER);
        queue.counts(MINE);
        assert!(matches!(queue.acquire(waiting), Value::Array(_)), "waiting {waiting}");
        assert_eq!(queue.owners(), owners, "waiting {waiting}");
    }
}

/// The waiter looks after one lease, finds the lock free and takes it in the same request. The waiter of another client
/// behind it gets the lock next.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_first_again_leaves_no_free_lock_to_itself() {
    const LEASE: Duration = Duration::from_secs(1);
    let mut queue = Queue::start();
    scripts::load(&queue.server);
    let proxy = Proxy::start(queue.server.port()).await;
    let other = Client::connect(proxy.url()).await.unwrap();
    let client = Client::builder().watchdog_timeout(LEASE).connect(queue.server.url()).await.unwrap();
    queue.run::<()>(&format!("HSET {NAME} {OTHER} 1"));
    queue.run::<()>(&format!("PEXPIRE {NAME} 60000"));
    let waiting = waits(&client.fair_lock(NAME));
    queue.becomes(1).await;
    let ours = queue.owners().remove(0);
    let behind = waits(&other.fair_lock(NAME));
    // The second attempt follows the subscription; then it sleeps.
    let asks = |words: &Words| words[0] == b"EVALSHA" && words.iter().any(|word| word == QUEUE.as_bytes());
    proxy.link(0).await.answered(2, asks).await;
    queue.becomes(2).await;

    let mut gone = redis::pipe();
    gone.atomic().lrem(QUEUE, 0, &ours).zrem(TIMEOUTS, &ours).del(NAME);
    gone.exec(&mut queue.cli).unwrap();
    let freed = Stopwatch::start();
    let guard = in_time("its turn", waiting).await.unwrap();
    let took = freed.elapsed();
    assert!(took < LEASE * 3 / 2, "free for {took:?}");
    guard.unlock().await.unwrap();
    in_time("the turn of the one behind", behind).await.unwrap().unlock().await.unwrap();
}

/// Waiters send no attempts while their own client holds the lock. Here that is longer than the allowance.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_behind_a_hold_of_their_own_client_keep_their_places() {
    let version = versions().pop().unwrap();
    let setting = format!("fairLockWaitTimeout={}", SHORT.as_millis());
    let mut queue = Queue::start();
    let java = Java::get(&version).client_with(&queue.server, 1000, &[&setting]).await.unwrap();
    let (passing, behind) = (java.thread("passing"), java.thread("behind"));
    let builder = || Client::builder().watchdog_timeout(SHORT * 2).fair_lock_wait_timeout(SHORT);
    let client = builder().connect(queue.server.url()).await.unwrap();
    let lock = client.fair_lock(NAME);
    let guard = lock.lock().await.unwrap();
    let first = waits(&lock);
    eventually(|| queue.owners().len() == 1).await;
    let second = waits(&lock);
    eventually(|| queue.owners().len() == 2).await;
    let ours = queue.owners();
    let until = Instant::now() + SHORT * 5;
    while Instant::now() < until {
        // Each attempt of another client removes lapsed waiters.
        assert!(!passing.try_lock("fair", NAME).await.unwrap());
        assert_eq!(queue.owners(), ours);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = behind.lock("fair", NAME);
    eventually(|| queue.owners().len() == 3).await;
    guard.unlock().await.unwrap();
    for waiting in [first, second] {
        let guard = in_time("its turn", waiting).await.unwrap();
        guard.unlock().await.unwrap();
    }
    in_time("Java's turn", last).await.unwrap();
    behind.unlock("fair", NAME).await.unwrap();
}

const RESPONSE: Duration = Duration::from_millis(300);

/// A client behind a proxy, beside a client that holds the lock.
async fn behind_a_proxy(queue: &Queue) -> (Proxy, Client, LockGuard) {
    behind_a_proxy_within(queue, RESPONSE).await
}

async fn behind_a_proxy_within(queue: &Queue, response: Duration) -> (Proxy, Client, LockGuard) {
    scripts::load(&queue.server);
    let proxy = Proxy::start(queue.server.port()).await;
    let client = Client::builder()
        .response_timeout(response)
        .connect_timeout(response)
        .connect(proxy.url())
        .await
        .unwrap();
    let holder = Client::connect(queue.server.url()).await.unwrap();
    let guard = holder.fair_lock(NAME).lock().await.unwrap();
    (proxy, client, guard)
}

/// Whether a request is the first attempt of a waiter with that owner.
fn comes(owner: &str) -> impl Fn(&Words) -> bool {
    move |words| {
        let is = |at: usize, what: &str| words.get(at).is_some_and(|word| word == what.as_bytes());
        words[0] == b"EVALSHA" && is(6, owner) && is(9, "1")
    }
}

/// An owner has one entry, however many of its tasks wait. The entry keeps its place when the first of them leaves.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_leaves_leaves_its_turn_to_another_of_its_owner() {
    let mut queue = Queue::start();
    let (proxy, client, guard) = behind_a_proxy(&queue).await;
    let shared = client.fair_lock(NAME).with_owner(&Owner::unique());
    let leaves = waits(&shared);
    queue.becomes(1).await;
    let owner = queue.owners().remove(0);
    let behind = waits(&client.fair_lock(NAME));
    eventually(|| queue.owners().len() == 2).await;
    let stays = waits(&shared);
    proxy.link(0).await.answered(2, comes(&owner)).await;

    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert_eq!(queue.owners()[0], owner);
    guard.unlock().await.unwrap();
    for (who, waiting) in [("the shared owner", stays), ("the one behind", behind)] {
        in_time(who, waiting).await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(queue.owners(), [""; 0]);
}

/// Everyone behind an orphaned entry waits until it lapses.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_leaves_while_there_is_no_connection_is_removed_later() {
    let mut queue = Queue::start();
    let (proxy, client, guard) = behind_a_proxy(&queue).await;
    let lock = client.fair_lock(NAME);
    let leaves = waits(&lock);
    queue.becomes(1).await;
    proxy.darken();
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    // Each takes a response timeout, so the removal has been given up by then.
    for _ in 0..2 {
        assert!(lock.try_lock().await.is_err());
    }
    assert_eq!(queue.owners().len(), 1);
    proxy.lighten();
    eventually(|| queue.owners().is_empty()).await;

    // Closing the client does not wait for it. (The server still knows the subscription of the dead link.)
    let leaves = waits(&lock);
    eventually(|| queue.owners().len() == 1).await;
    proxy.darken();
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    assert!(lock.try_lock().await.is_err());
    let started = Stopwatch::start();
    client.close().await;
    let took = started.elapsed();
    assert!(took < RESPONSE * 4, "closed after {took:?}");
    guard.unlock().await.unwrap();
}

/// A late delivery of the release that clears a text would free a later hold by that text.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_text_is_cleared_waits_by_another() {
    let mut queue = Queue::start();
    // The clearing request has a quarter of the timeout before the heartbeat ends the connection.
    let (proxy, client, guard) = behind_a_proxy_within(&queue, RESPONSE * 5).await;
    let lock = client.fair_lock(NAME).with_owner(&Owner::unique());
    let waiting = waits(&lock);
    queue.becomes(1).await;
    let text = queue.owners().remove(0);
    let releases = {
        let text = text.clone();
        move |words: &Words| words[0] == b"EVALSHA" && words.len() == 8 && words[6] == text.as_bytes()
    };

    // An attempt of the same owner goes unanswered, so its text is cleared; and that goes unanswered, too.
    let link = proxy.link(0).await;
    link.hold(Way::ToServer);
    assert!(lock.try_lock().await.is_err());
    link.asked(1, &releases).await;
    link.cut_client();
    proxy.link(2).await.answered(1, &releases).await;
    guard.unlock().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap();
    link.pass(Way::ToServer);
    link.answered(1, &releases).await;
    assert_eq!(queue.run::<Vec<String>>(&format!("HKEYS {NAME}")), [guard.owner()]);
    assert_ne!(guard.owner(), text);
    guard.unlock().await.unwrap();
    eventually(|| queue.owners().is_empty()).await;
}
