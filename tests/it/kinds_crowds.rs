//! Java threads and Rust tasks that contend for one lock, for each kind and every version of Redisson that has it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use redisson_lock::{Client, Lock};
use tokio::task::JoinSet;

use crate::support::java::JavaClient;
use crate::support::kind::{Kind, each, prefix, versions_for_all_kinds, with_versions};
use crate::support::{Java, Monitor, Server, clock::monotonic_ns, eventually, fair_allowance};

const NAME: &str = "n";
const COUNTER: &str = "counter";
/// Short, because a wake-up that Redisson itself loses costs one lease.
const LEASE: Duration = Duration::from_secs(2);
const EACH: u32 = 15;

/// The kinds of the three contenders of each client. Each side has two clients.
type Members = [Kind; 3];

#[derive(Debug)]
struct Hold {
    start: u64,
    end: u64,
    kind: Kind,
    java: bool,
    token: Option<i64>,
}

async fn rust_client(server: &Server) -> Client {
    Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap()
}

async fn java_client(java: &std::sync::Arc<Java>, server: &Server) -> JavaClient {
    java.client(server, LEASE.as_millis() as u64).await
}

/// Runs a crowd of both sides, and returns all holds in the order in which they began.
async fn run_mixed_crowd(version: &str, server: &Server, members: Members, hold: Duration) -> Vec<Hold> {
    let java = Java::get(version);
    let (java, rust) = (
        [java_client(&java, server).await, java_client(&java, server).await],
        [rust_client(server).await, rust_client(server).await],
    );
    let mut tasks = JoinSet::new();
    for (client, rust) in java.iter().zip(&rust) {
        for (n, kind) in members.into_iter().enumerate() {
            let thread = client.thread(&format!("t{n}"));
            let begun = move |(start, end, token)| Hold { start, end, kind, java: true, token };
            if kind == Kind::Fenced {
                let running = thread.loop_tokens(NAME, EACH, COUNTER, hold);
                tasks.spawn(async move {
                    let holds = running.await.unwrap().into_iter();
                    holds.map(|(start, end, token)| begun((start, end, Some(token)))).collect::<Vec<_>>()
                });
            } else {
                let running = thread.loop_(kind.java(), NAME, EACH, COUNTER, hold);
                tasks.spawn(async move {
                    let holds = running.await.unwrap().into_iter();
                    holds.map(|(start, end)| begun((start, end, None))).collect()
                });
            }
            let counting = redis::Client::open(server.url()).unwrap();
            let counting = counting.get_multiplexed_async_connection().await.unwrap();
            tasks.spawn(run_loop(kind.lock(rust, NAME), kind, counting, hold));
        }
    }
    let mut holds = Vec::new();
    while let Some(done) = tasks.join_next().await {
        holds.extend(done.unwrap());
    }
    holds.sort_by_key(|hold| hold.start);
    assert_eq!(holds.len(), 12 * EACH as usize, "{version}");
    let writers = members.iter().filter(|kind| kind.is_exclusive()).count() as u32;
    let counter: u32 = redis::cmd("GET").arg(COUNTER).query(&mut server.cli()).unwrap();
    assert_eq!(counter, 4 * writers * EACH, "{version}, {members:?}: increments were lost");
    holds
}

/// Does the same as the `loop` of a Java thread.
async fn run_loop(
    lock: Lock,
    kind: Kind,
    mut counting: redis::aio::MultiplexedConnection,
    hold: Duration,
) -> Vec<Hold> {
    let mut holds = Vec::new();
    for _ in 0..EACH {
        let guard = lock.lock().await.unwrap();
        let start = monotonic_ns();
        let before: Option<u64> = redis::cmd("GET").arg(COUNTER).query_async(&mut counting).await.unwrap();
        tokio::time::sleep(hold).await;
        if kind.is_exclusive() {
            let after = before.unwrap_or(0) + 1;
            redis::cmd("SET").arg(COUNTER).arg(after).exec_async(&mut counting).await.unwrap();
        } else {
            let now: Option<u64> = redis::cmd("GET").arg(COUNTER).query_async(&mut counting).await.unwrap();
            assert_eq!(now, before, "a writer overlaps a reader");
        }
        let end = monotonic_ns();
        let token = guard.token().map(|token| token as i64);
        guard.unlock().await.unwrap();
        holds.push(Hold { start, end, kind, java: false, token });
    }
    holds
}

fn assert_no_overlap(version: &str, holds: &[Hold]) {
    for pair in holds.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{version}: two holds overlap: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_crowd_is_excluded_in_each_kind() {
    let kinds = [Kind::Reentrant, Kind::Spin, Kind::NonReentrant, Kind::Write];
    each(with_versions(kinds, |kind| kind), |(version, kind)| async move {
        let server = Server::start();
        let holds = run_mixed_crowd(version, &server, [kind; 3], Duration::from_micros(200)).await;
        assert_no_overlap(version, &holds);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_exclude_in_a_mixed_crowd() {
    each(with_versions([()], |()| Kind::Read), |(version, ())| async move {
        let server = Server::start();
        let members = [Kind::Read, Kind::Read, Kind::Write];
        let holds = run_mixed_crowd(version, &server, members, Duration::from_millis(2)).await;
        let overlap = |one: &Hold, other: &Hold| one.start < other.end && other.start < one.end;
        let mut together = 0;
        for (n, one) in holds.iter().enumerate() {
            for other in &holds[n + 1..] {
                if overlap(one, other) {
                    let readers = one.kind == Kind::Read && other.kind == Kind::Read;
                    assert!(readers, "{version}: a writer overlaps another hold: {one:?} {other:?}");
                    together += 1;
                }
            }
        }
        println!("{version}: {together} overlaps of two readers");
        assert!(together > 0, "{version}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_in_a_mixed_crowd() {
    each(with_versions([()], |()| Kind::Fenced), |(version, ())| async move {
        let server = Server::start();
        let holds = run_mixed_crowd(version, &server, [Kind::Fenced; 3], Duration::from_micros(200)).await;
        assert_no_overlap(version, &holds);
        let tokens: Vec<_> =
            holds.iter().map(|hold| hold.token.expect("a fenced hold has a token")).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{version}: {tokens:?}");
        let of_java = holds.iter().filter(|hold| hold.java).count();
        assert_eq!(of_java * 2, holds.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_crowd_never_overtakes_a_fair_queue() {
    each(with_versions([Kind::Fair, Kind::NonReentrantFair], |kind| kind), |(version, kind)| async move {
        let server = Server::start();
        let mut monitor = Monitor::start(&server);
        let holds = run_mixed_crowd(version, &server, [kind; 3], Duration::from_micros(200)).await;
        assert_no_overlap(version, &holds);
        let queue = ObservedQueue::follow(&monitor.commands());
        println!("{version}, {kind}: {queue:?}");
        assert_eq!((queue.overtakings, queue.evictions), (0, 0), "{version}: {queue:?}");
        assert_eq!(queue.acquires, holds.len(), "{version}");
        assert!(queue.longest > 3 && queue.waiting.is_empty(), "{version}: {queue:?}");
    })
    .await;
}

/// Redisson up to 3.10 and later versions compute the timeout of a waiter differently.
///
/// Acquires of later versions subtract their own wait timeout from the scores of older waiters. These lose their places, and retry
/// when they take the waiter before them for dead. All waiters are served, but out of order, and soon only if the wait timeout of
/// the old versions is short.
#[tokio::test(flavor = "multi_thread")]
async fn fair_waiters_of_all_versions_in_one_queue_are_served() {
    const ALLOWANCE: Duration = Duration::from_secs(5);
    const ROUNDS: usize = 3;
    let server = Server::start();
    let mut threads = Vec::new();
    for version in versions_for_all_kinds() {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        // Versions with a fixed wait timeout of 300 s are not served soon.
        if allowance != ALLOWANCE {
            continue;
        }
        let java = Java::get(&version);
        for _ in 0..2 {
            let client = java
                .client_with(&server, LEASE.as_millis() as u64, setting.as_deref().as_slice())
                .await
                .unwrap();
            threads.push(client.thread("t"));
        }
    }
    let builder = Client::builder().watchdog_timeout(LEASE).fair_lock_wait_timeout(ALLOWANCE);
    let rust = builder.connect(server.url()).await.unwrap();
    let (mut cli, queue) = (server.cli(), prefix("redisson_lock_queue", NAME));
    for _ in 0..ROUNDS {
        let guard = rust.fair_lock(NAME).lock().await.unwrap();
        let waiting: Vec<_> = threads.iter().map(|thread| thread.lock("fair", NAME)).collect();
        let mut tasks = JoinSet::new();
        for _ in 0..2 {
            let lock = rust.fair_lock(NAME);
            tasks.spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
        }
        let all = threads.len() + 2;
        eventually(|| redis::cmd("LLEN").arg(&queue).query(&mut cli) == Ok(all)).await;
        let freed = Instant::now();
        guard.unlock().await.unwrap();
        let javas = waiting.into_iter().zip(&threads).map(|(waiting, thread)| {
            let thread = thread.clone();
            tokio::spawn(async move {
                waiting.await.unwrap();
                thread.unlock("fair", NAME).await.unwrap();
            })
        });
        for java in javas.collect::<Vec<_>>() {
            java.await.unwrap();
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        println!("all {all} were served in {:?}", freed.elapsed());
    }
    eventually(|| redis::cmd("EXISTS").arg(NAME).arg(&queue).query(&mut cli) == Ok(0)).await;
}

/// The queue of a fair lock, reconstructed from the commands that change it.
#[derive(Debug, Default)]
struct ObservedQueue {
    waiting: VecDeque<String>,
    longest: usize,
    acquires: usize,
    /// Acquires by an owner other than the first waiter.
    overtakings: usize,
    /// Removals of the first waiter without an acquire by it.
    evictions: usize,
}

impl ObservedQueue {
    fn follow(commands: &[Vec<String>]) -> Self {
        let key = prefix("redisson_lock_queue", NAME);
        let mut queue = Self::default();
        // Some scripts remove the first waiter before they write the record, and some after.
        let (mut popped, mut holder): (Option<String>, Option<String>) = (None, None);
        for command in commands {
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            match words[..] {
                ["rpush", name, owner] if name == key => queue.waiting.push_back(owner.to_owned()),
                ["lpush", name, owner] if name == key => queue.waiting.push_front(owner.to_owned()),
                ["lrem", name, _, owner] if name == key => queue.waiting.retain(|other| other != owner),
                ["lpop", name] if name == key => {
                    queue.evictions += usize::from(popped.is_some());
                    popped = queue.waiting.pop_front().filter(|first| holder.as_ref() != Some(first));
                }
                ["hset" | "hincrby", NAME, owner, "1"] => {
                    queue.acquires += 1;
                    let first = popped.take().or_else(|| queue.waiting.front().cloned());
                    queue.overtakings += usize::from(first.is_some_and(|first| first != owner));
                    holder = Some(owner.to_owned());
                }
                ["del", NAME] => holder = None,
                _ => {}
            }
            queue.longest = queue.longest.max(queue.waiting.len());
        }
        queue.evictions += usize::from(popped.is_some());
        queue
    }
}
