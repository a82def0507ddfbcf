//! `Client::mutex`, whose guard owns the lock, and the trap that it avoids: all branches of one task are one owner.

use futures_util::poll;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use redisson_lock::{
    Client, Error, HandOff, HoldState, Lock, LockGuard, MultiLock, Owner, RedLock, Result, blocking,
};
use tokio::task::JoinSet;

use crate::support::any_lock::ClientSet;
use crate::support::kind::{Kind, in_time, is_idle, keys};
use crate::support::{Java, Server, eventually, subscribers, versions};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const BRANCHES: usize = 5;

/// Counts how many visitors are inside at once.
#[derive(Default)]
struct Room {
    visits: AtomicUsize,
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Room {
    async fn visit(&self, lock: &Lock) -> Result<()> {
        let guard = lock.lock().await?;
        self.stay().await;
        guard.unlock().await
    }

    /// Stays long enough for a second visitor to enter, if the lock lets it.
    async fn stay(&self) {
        self.visits.fetch_add(1, Ordering::SeqCst);
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Asserts that all visitors were inside, one at a time.
    fn was_entered_by(&self, visitors: usize) {
        assert_eq!(self.visits.load(Ordering::SeqCst), visitors);
        assert_eq!(self.most.load(Ordering::SeqCst), 1, "visitors were inside at the same time");
    }
}

/// Asserts that one branch entered, and that the others were refused with an error that names the remedies.
fn one_is_let_in(outcomes: Vec<Result<()>>, room: &Room) {
    assert_eq!(outcomes.len(), BRANCHES);
    room.was_entered_by(1);
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        names_the_remedies(outcome);
    }
}

fn names_the_remedies<T: std::fmt::Debug>(outcome: Result<T>) {
    let Err(Error::Misuse { message, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(["`n`", "mutex", "with_owner"].iter().all(|part| message.contains(part)), "{message}");
}

fn misuse<T: std::fmt::Debug>(outcome: Result<T>) {
    assert!(matches!(outcome, Err(Error::Misuse { .. })), "{outcome:?}");
}

async fn start() -> (Server, Client) {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    (server, client)
}

async fn assert_nothing_left(server: &Server, client: &Client) {
    eventually(|| keys(server).is_empty() && is_idle(client)).await;
}

#[tokio::test]
async fn join_all_lets_the_branches_in_one_by_one() {
    let (_server, client) = start().await;
    let (mutex, room) = (client.mutex("n"), Room::default());
    let outcomes = join_all((0..BRANCHES).map(|_| room.visit(&mutex))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    room.was_entered_by(BRANCHES);
}

#[tokio::test]
async fn futures_unordered_lets_the_branches_in_one_by_one() {
    let (_server, client) = start().await;
    let (mutex, room) = (client.mutex("n"), Room::default());
    let branches: FuturesUnordered<_> = (0..BRANCHES).map(|_| room.visit(&mutex)).collect();
    let outcomes: Vec<_> = branches.collect().await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    room.was_entered_by(BRANCHES);
}

#[tokio::test]
async fn buffer_unordered_lets_the_branches_in_one_by_one() {
    let (_server, client) = start().await;
    let (mutex, room) = (client.mutex("n"), Room::default());
    let branches = stream::iter(0..BRANCHES).map(|_| room.visit(&mutex)).buffer_unordered(2);
    let outcomes: Vec<_> = branches.collect().await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    room.was_entered_by(BRANCHES);
}

/// A connection as hyper serves it: one task, which answers a request as soon as its work is under way and goes on to
/// the next one.
async fn serve<F>(lock: Lock, work: impl Fn(LockGuard) -> F) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    for _request in 0..2 {
        let guard = lock.lock().await.unwrap();
        under_way.spawn(work(guard));
    }
    under_way
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_excludes_requests_of_one_task_and_a_lock_does_not() {
    let (_server, client) = start().await;
    let room = Arc::new(Room::default());
    let inside = room.clone();
    let work = move |guard: LockGuard| {
        let room = inside.clone();
        async move {
            room.stay().await;
            guard.unlock().await.unwrap();
        }
    };
    tokio::spawn(serve(client.mutex("n"), work)).await.unwrap().join_all().await;
    room.was_entered_by(2);

    // The connection's task is the owner of both holds, so the second request re-enters.
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let work = move |guard: LockGuard| {
        let both = both.clone();
        async move {
            both.wait().await;
            guard.unlock().await.unwrap();
        }
    };
    let serving = tokio::spawn(serve(client.lock("n"), work));
    in_time("both are inside", async { serving.await.unwrap().join_all().await }).await;
}

#[tokio::test]
async fn a_mutex_waits_behind_a_hold_of_its_own_task() {
    let (server, client) = start().await;
    let (mutex, lock) = (client.mutex("n"), client.lock("n"));
    // A mutex also waits behind a lock of its own task, and a lock behind the task's mutex.
    for (holds, waits) in [(&mutex, &mutex), (&lock, &mutex), (&mutex, &lock)] {
        let guard = holds.lock().await.unwrap();
        assert!(waits.try_lock().await.unwrap().is_none());
        assert!(waits.try_lock_for(Duration::from_millis(30)).await.unwrap().is_none());
        let mut waiting = pin!(waits.lock());
        assert!(poll!(waiting.as_mut()).is_pending());
        guard.unlock().await.unwrap();
        let next = in_time("it is handed on", waiting).await.unwrap();
        assert_eq!(next.state(), HoldState::Held);
        next.unlock().await.unwrap();
    }
    assert_nothing_left(&server, &client).await;
}

#[tokio::test]
async fn each_acquire_has_an_owner_of_its_own() {
    let (server, client) = start().await;
    let mutex = client.mutex("n");
    let mut owners = Vec::new();
    for _ in 0..2 {
        let guard = mutex.lock().await.unwrap();
        let holder = mutex.holder().await.unwrap().unwrap();
        assert_eq!((holder.owner(), holder.count()), (guard.owner(), 1));
        assert!(guard.owner().starts_with(&format!("{}:guard-", client.id())), "{}", guard.owner());
        owners.push(guard.owner().to_owned());
        guard.unlock().await.unwrap();
    }
    assert_ne!(owners[0], owners[1]);
    assert_nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_task_can_release_the_guard() {
    let (server, client) = start().await;
    let mutex = client.mutex("n");
    let guard = mutex.lock().await.unwrap();
    tokio::spawn(guard.unlock()).await.unwrap().unwrap();
    let guard = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await.unwrap() }
    });
    let guard = guard.await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    drop(guard);
    let guard = in_time("a dropped guard frees it", mutex.lock()).await.unwrap();
    assert!(mutex.force_unlock().await.unwrap());
    assert!(matches!(guard.unlock().await, Err(Error::Lost { .. })));
    assert_nothing_left(&server, &client).await;
}

#[tokio::test]
async fn a_dropped_acquire_leaves_nothing() {
    let (server, client) = start().await;
    let mutex = client.mutex("n");
    let guard = mutex.lock().await.unwrap();
    {
        let mut waiting = pin!(mutex.lock());
        assert!(poll!(waiting.as_mut()).is_pending());
    }
    let next = {
        // The first waiter is dropped, whether it was granted or not.
        let mut first = Box::pin(mutex.lock());
        assert!(poll!(first.as_mut()).is_pending());
        let mut next = Box::pin(mutex.lock());
        assert!(poll!(next.as_mut()).is_pending());
        guard.unlock().await.unwrap();
        drop(first);
        in_time("the first waiter's grant passes on", next).await.unwrap()
    };
    next.unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_excludes_and_wakes_a_java_lock() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        let mutex = client.mutex("n");

        let guard = mutex.lock().await.unwrap();
        assert!(java.is_locked("plain", "n").await.unwrap(), "{version}");
        assert!(!java.try_lock("plain", "n").await.unwrap(), "{version}");
        let waiting = java.lock("plain", "n");
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        guard.unlock().await.unwrap();
        in_time("Java is woken", waiting).await.unwrap();

        assert!(mutex.try_lock().await.unwrap().is_none(), "{version}");
        let room = Arc::new(Room::default());
        let entered = room.clone();
        let waiting =
            tokio::spawn(async move { join_all((0..BRANCHES).map(|_| entered.visit(&mutex))).await });
        eventually(|| subscribers(&server, CHANNEL) == 1).await;
        java.unlock("plain", "n").await.unwrap();
        let outcomes = in_time("all are served", waiting).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{version}: {outcomes:?}");
        room.was_entered_by(BRANCHES);
        assert!(java.try_lock("plain", "n").await.unwrap(), "{version}");
        java.unlock("plain", "n").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutex_supports_pipelined_hand_off() {
    const TASKS: usize = 4;
    let server = Server::start();
    let hand_off = HandOff::new().pipelined(true);
    let client = Client::builder().hand_off(hand_off).connect(server.url()).await.unwrap();
    let (mutex, room) = (client.mutex("n"), Arc::new(Room::default()));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (mutex, room) = (mutex.clone(), room.clone());
        tasks.spawn(async move { join_all((0..BRANCHES).map(|_| room.visit(&mutex))).await });
    }
    let outcomes = in_time("all are served", tasks.join_all()).await;
    assert!(outcomes.iter().flatten().all(Result::is_ok), "{outcomes:?}");
    room.was_entered_by(TASKS * BRANCHES);
    assert_nothing_left(&server, &client).await;
}

#[test]
fn a_thread_waits_behind_its_own_mutex_and_may_send_the_guard() {
    let server = Server::start();
    let client = blocking::Client::connect(server.url()).unwrap();
    let mutex = client.mutex("n");
    let guard = mutex.lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    assert!(mutex.try_lock_for(Duration::from_millis(30)).unwrap().is_none());
    misuse(mutex.is_held());
    std::thread::spawn(move || guard.unlock().unwrap()).join().unwrap();
    let both = blocking::MultiLock::new([mutex.clone(), client.lock("m")]).unwrap();
    let guard = both.lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none() && client.lock("m").is_held().unwrap());
    guard.unlock().unwrap();
}

#[tokio::test]
async fn a_multi_lock_of_mutexes_admits_one_branch_at_a_time() {
    let (server, client) = start().await;
    let [a, b] = ["n", "m"].map(|name| client.mutex(name));
    let both = MultiLock::new([b.clone(), a.clone()]).unwrap();
    let room = Room::default();
    let visit = || async {
        let guard = both.lock().await?;
        room.stay().await;
        guard.unlock().await
    };
    let outcomes = in_time("all are served", join_all((0..BRANCHES).map(|_| visit()))).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    room.was_entered_by(BRANCHES);

    // Together with a lock that its task holds already.
    let (mixed, lock) = (MultiLock::new([a.clone(), client.lock("l")]).unwrap(), client.lock("l"));
    let held = lock.lock().await.unwrap();
    let guard = mixed.lock().await.unwrap();
    assert_eq!(lock.hold_count().await.unwrap(), 2);
    assert!(mixed.try_lock().await.unwrap().is_none() && both.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    held.unlock().await.unwrap();

    // A second member with the same record would wait for the first one.
    misuse(MultiLock::new([client.lock("n"), a.clone()]));
    misuse(MultiLock::new([a.clone(), a.clone()]));
    misuse(MultiLock::new([lock.with_owner(&Owner::unique()), a.clone(), client.lock("k")]));
    misuse(mixed.with_owner(&Owner::unique()).lock().await);
    assert_nothing_left(&server, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_red_lock_of_mutexes_admits_one_branch_at_a_time() {
    let server = Server::start();
    let party = ClientSet::of(Kind::Red, &server).await;
    let members = party.clients().iter().enumerate().map(|(at, client)| client.mutex(format!("n{at}")));
    let red = RedLock::new(members).unwrap().with_node_timeout(Duration::from_secs(2));
    let guard = red.lock().await.unwrap();
    assert!(red.try_lock().await.unwrap().is_none());
    tokio::spawn(guard.unlock()).await.unwrap().unwrap();
    red.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn queries_about_a_tasks_hold_are_misuse() {
    let (server, client) = start().await;
    let mutex = client.mutex("n");
    let guard = mutex.lock().await.unwrap();
    misuse(mutex.is_held().await);
    misuse(mutex.hold_count().await);
    assert!(mutex.is_locked().await.unwrap());
    assert!(mutex.remaining_lease().await.unwrap().is_some());
    guard.unlock().await.unwrap();
    server.commandstats_reset();
    let owned = mutex.with_owner(&Owner::unique());
    misuse(owned.lock().await);
    misuse(owned.try_lock().await);
    misuse(owned.with_lease(Duration::from_secs(1)).try_lock_for(Duration::from_secs(1)).await);
    misuse(MultiLock::new([owned]));
    misuse(client.mutex("").lock().await);
    assert_eq!(server.scripts(), 0);
}

#[tokio::test]
async fn join_all_with_a_lock_refuses_all_branches_but_one() {
    let (server, client) = start().await;
    let (lock, room) = (client.lock("n"), Room::default());
    let outcomes = join_all((0..BRANCHES).map(|_| room.visit(&lock))).await;
    one_is_let_in(outcomes, &room);
    assert_nothing_left(&server, &client).await;
}

#[tokio::test]
async fn futures_unordered_with_a_lock_refuses_all_branches_but_one() {
    let (server, client) = start().await;
    let (lock, room) = (client.lock("n"), Room::default());
    let branches: FuturesUnordered<_> = (0..BRANCHES).map(|_| room.visit(&lock)).collect();
    one_is_let_in(branches.collect().await, &room);
    assert_nothing_left(&server, &client).await;
}

#[tokio::test]
async fn buffer_unordered_with_a_lock_refuses_all_branches_but_one() {
    let (server, client) = start().await;
    let (lock, room) = (client.lock("n"), Room::default());
    let branches = stream::iter(0..BRANCHES).map(|_| room.visit(&lock)).buffer_unordered(BRANCHES);
    one_is_let_in(branches.collect().await, &room);
    assert_nothing_left(&server, &client).await;
}

/// Every call of the second branch is refused, and sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_branch_is_refused_while_the_first_waits() {
    let (server, client) = start().await;
    let lock = client.lock("n");
    let holder = client.mutex("n").lock().await.unwrap();
    let mut first = Box::pin(lock.lock());
    assert!(poll!(first.as_mut()).is_pending());
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.commandstats_reset();
    names_the_remedies(in_time("it is refused", lock.lock()).await);
    names_the_remedies(lock.try_lock().await);
    names_the_remedies(lock.try_lock_for(Duration::from_secs(1)).await);
    let sides = client.read_write_lock("n");
    names_the_remedies(in_time("it is refused", sides.write().lock()).await);
    let both = MultiLock::new([lock.clone(), client.lock("m")]).unwrap();
    names_the_remedies(in_time("it is refused", both.lock()).await);
    assert_eq!(server.scripts(), 0);
    // Named owners, other tasks and other locks are not affected.
    let owner = Owner::unique();
    let named = lock.with_owner(&owner);
    let (one, two) = (named.try_lock_for(Duration::from_millis(30)), named.try_lock());
    let (one, two) = tokio::join!(one, two);
    assert!(one.unwrap().is_none() && two.unwrap().is_none());
    let other = lock.clone();
    assert!(tokio::spawn(async move { other.try_lock().await }).await.unwrap().unwrap().is_none());
    client.lock("m").lock().await.unwrap().unlock().await.unwrap();
    holder.unlock().await.unwrap();
    in_time("the first is served", first).await.unwrap().unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

/// By then the first branch holds the lock, and the second one would share its hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_branch_is_refused_while_the_first_is_granted_and_not_polled() {
    let (server, client) = start().await;
    let lock = client.lock("n");
    let holder = client.mutex("n").lock().await.unwrap();
    let mut first = Box::pin(lock.lock());
    assert!(poll!(first.as_mut()).is_pending());
    let before = holder.owner().to_owned();
    holder.unlock().await.unwrap();
    let granted = || record_owner(&server).is_some_and(|owner| owner != before);
    eventually(granted).await;
    names_the_remedies(lock.lock().await);
    let guard = first.await.unwrap();
    // While the guard exists, its owner may re-enter.
    let inner = lock.lock().await.unwrap();
    inner.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

fn record_owner(server: &Server) -> Option<String> {
    let fields: Vec<String> = redis::cmd("HKEYS").arg("n").query(&mut server.cli()).unwrap();
    fields.into_iter().next()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_or_dropped_acquire_refuses_no_later_one() {
    let (server, client) = start().await;
    let lock = client.lock("n");
    for round in 0..200 {
        let holder = client.mutex("n").lock().await.unwrap();
        assert!(lock.try_lock().await.unwrap().is_none());
        {
            let mut first = pin!(lock.lock());
            assert!(poll!(first.as_mut()).is_pending());
            if round % 2 == 0 {
                // The acquire is dropped at the moment of a possible grant.
                holder.unlock().await.unwrap();
            }
        }
        let short = Duration::from_millis(1);
        drop(lock.try_lock_for(short).await.or_else(timed_out).unwrap());
    }
    let guard = in_time("it is free", lock.lock()).await.unwrap();
    guard.unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

/// The server may not answer within so short a time.
fn timed_out<T>(error: Error) -> Result<Option<T>> {
    if let Error::TimedOut { .. } = error { Ok(None) } else { Err(error) }
}

/// A multi lock holds nothing between its attempts, and its acquire is under way all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_branch_is_refused_during_a_multi_lock_acquire() {
    let (server, client) = start().await;
    let both = MultiLock::new(["n", "m"].map(|name| client.lock(name))).unwrap();
    let holder = client.mutex("m").lock().await.unwrap();
    let mut first = Box::pin(both.lock());
    assert!(poll!(first.as_mut()).is_pending());
    for _ in 0..3 {
        names_the_remedies(client.lock("n").lock().await);
        misuse(in_time("it is refused", both.lock()).await);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(poll!(first.as_mut()).is_pending());
    }
    holder.unlock().await.unwrap();
    in_time("the first is served", first).await.unwrap().unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

/// The values of another branch that waits are not free for it, but others are.
#[tokio::test]
async fn a_branch_that_waits_for_a_value_keeps_no_other_branch_from_a_free_one() {
    let (server, client) = start().await;
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.group_lock("n", ["a"]).lock().await.unwrap();
    let [one, two] = ["a", "b"].map(|value| client.group_lock("n", [value]));
    let second = async {
        eventually(|| client.stats().waiting == 1).await;
        let free = two.try_lock().await.unwrap().expect("nobody holds it");
        held.unlock().await.unwrap();
        free.unlock().await.unwrap();
    };
    let (first, ()) = tokio::join!(one.lock(), second);
    first.unwrap().unlock().await.unwrap();
    assert_nothing_left(&server, &client).await;
}

/// Branches that lock different values do not conflict.
#[tokio::test]
async fn a_second_branch_may_take_other_values_of_a_group() {
    let (server, client) = start().await;
    let [one, two] = ["a", "b"].map(|value| client.group_lock("n", [value]));
    let (one_guard, two_guard) = tokio::join!(one.lock(), two.lock());
    let (one_guard, two_guard) = (one_guard.unwrap(), two_guard.unwrap());
    one_guard.unlock().await.unwrap();
    two_guard.unlock().await.unwrap();
    let both = client.group_lock("n", ["a", "b"]);
    for other in [&one, &both] {
        let outcomes = tokio::join!(one.lock(), other.lock());
        drop(outcomes.0.unwrap());
        names_the_remedies(outcomes.1);
        let outcomes = tokio::join!(other.lock(), one.lock());
        drop(outcomes.0.unwrap());
        names_the_remedies(outcomes.1);
    }
    assert_nothing_left(&server, &client).await;
}
