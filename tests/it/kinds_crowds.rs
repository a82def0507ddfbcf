//! Java threads and Rust tasks that contend for one lock, for each kind and every version of Redisson that has it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use redisson_lock::{Client, Lock};
use tokio::task::JoinSet;

use crate::support::java::JavaClient;
use crate::support::kind::{Kind, each, in_versions, of_kinds, prefix};
use crate::support::{Java, Monitor, Server, clock::monotonic_ns, eventually, fair_allowance};

const NAME: &str = "n";
const COUNTER: &str = "counter";
/// A wake-up that Redisson loses by itself costs a lease.
const LEASE: Duration = Duration::from_secs(2);
const EACH: u32 = 15;

/// Two clients of either side, and three contenders in each: one of each of these.
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

/// All holds, in the order in which they began.
async fn mixed(version: &str, server: &Server, members: Members, hold: Duration) -> Vec<Hold> {
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
                    let told = running.await.unwrap().into_iter();
                    told.map(|(start, end, token)| begun((start, end, Some(token)))).collect::<Vec<_>>()
                });
            } else {
                let running = thread.loop_(kind.java(), NAME, EACH, COUNTER, hold);
                tasks.spawn(async move {
                    let told = running.await.unwrap().into_iter();
                    told.map(|(start, end)| begun((start, end, None))).collect()
                });
            }
            let counting = redis::Client::open(server.url()).unwrap();
            let counting = counting.get_multiplexed_async_connection().await.unwrap();
            tasks.spawn(add(kind.lock(rust, NAME), kind, counting, hold));
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

/// What a Java thread does as `loop`.
async fn add(
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
            assert_eq!(now, before, "a writer beside a reader");
        }
        let end = monotonic_ns();
        let token = guard.token().map(|token| token as i64);
        guard.unlock().await.unwrap();
        holds.push(Hold { start, end, kind, java: false, token });
    }
    holds
}

fn assert_alone(version: &str, holds: &[Hold]) {
    for pair in holds.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{version}: two holds overlap: {pair:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_crowd_is_excluded_in_each_kind() {
    let kinds = [Kind::Reentrant, Kind::Spin, Kind::NonReentrant, Kind::Write];
    each(in_versions(kinds, |kind| kind), |(version, kind)| async move {
        let server = Server::start();
        let holds = mixed(version, &server, [kind; 3], Duration::from_micros(200)).await;
        assert_alone(version, &holds);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_mixed_crowd_readers_are_together_and_writers_alone() {
    each(in_versions([()], |()| Kind::Read), |(version, ())| async move {
        let server = Server::start();
        let members = [Kind::Read, Kind::Read, Kind::Write];
        let holds = mixed(version, &server, members, Duration::from_millis(2)).await;
        let overlap = |one: &Hold, other: &Hold| one.start < other.end && other.start < one.end;
        let mut together = 0;
        for (n, one) in holds.iter().enumerate() {
            for other in &holds[n + 1..] {
                if overlap(one, other) {
                    let readers = one.kind == Kind::Read && other.kind == Kind::Read;
                    assert!(readers, "{version}: a writer is not alone: {one:?} {other:?}");
                    together += 1;
                }
            }
        }
        println!("{version}: {together} times two readers were there together");
        assert!(together > 0, "{version}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_mixed_crowd_the_tokens_rise() {
    each(in_versions([()], |()| Kind::Fenced), |(version, ())| async move {
        let server = Server::start();
        let holds = mixed(version, &server, [Kind::Fenced; 3], Duration::from_micros(200)).await;
        assert_alone(version, &holds);
        let tokens: Vec<_> = holds.iter().map(|hold| hold.token.expect("each has one")).collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{version}: {tokens:?}");
        let of_java = holds.iter().filter(|hold| hold.java).count();
        assert_eq!(of_java * 2, holds.len());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_mixed_crowd_nobody_overtakes_a_fair_queue() {
    each(in_versions([Kind::Fair, Kind::NonReentrantFair], |kind| kind), |(version, kind)| async move {
        let server = Server::start();
        let mut monitor = Monitor::start(&server);
        let holds = mixed(version, &server, [kind; 3], Duration::from_micros(200)).await;
        assert_alone(version, &holds);
        let queue = Queue::follow(&monitor.commands());
        println!("{version}, {kind}: {queue:?}");
        assert_eq!((queue.overtakings, queue.evictions), (0, 0), "{version}: {queue:?}");
        assert_eq!(queue.acquires, holds.len(), "{version}");
        assert!(queue.longest > 3 && queue.waiting.is_empty(), "{version}: {queue:?}");
    })
    .await;
}

/// Redissons up to 3.10 and later ones reckon differently when a waiter counts as gone: the acquires of later ones take
/// their own allowance off the scores of the old, who lose their places and look again when they believe that the one before
/// them is gone. So each is served, but not in order; and soon only with the allowance of the old.
#[tokio::test(flavor = "multi_thread")]
async fn fair_waiters_of_all_versions_in_one_queue_are_served() {
    const ALLOWANCE: Duration = Duration::from_secs(5);
    const ROUNDS: usize = 3;
    let server = Server::start();
    let mut threads = Vec::new();
    for version in of_kinds() {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        // Those whose waiters are allowed 300 s, whatever is asked for, are not served soon.
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

/// The queue of a fair lock, as told by the commands that change it.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<String>,
    longest: usize,
    acquires: usize,
    /// An acquire by somebody else than the first of those who waited.
    overtakings: usize,
    /// One was taken out from the front, and not because it holds now.
    evictions: usize,
}

impl Queue {
    fn follow(commands: &[Vec<String>]) -> Self {
        let key = prefix("redisson_lock_queue", NAME);
        let mut queue = Self::default();
        // Some take the first out before they write the record, and some after.
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
