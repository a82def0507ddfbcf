//! Whole clients at one server: many tasks acquire, re-enter, release, time out and are cancelled.
//!
//! At any step at most one owner believes that it holds the lock, whatever happens to connections and replies. If no reply is lost,
//! every release is confirmed, no waiter depends on a timer to notice a release, and nothing is left at the end.

use super::run::{Pace, run};
use super::server::server;
use super::sync::{below, task, time};
use crate::Lock;
use crate::config::options::Options;
use crate::connection::Topology;
use crate::engine;
use crate::engine::queue_id::QueueId;
use crate::engine::session::Session;
use crate::guard::LockGuard;
use crate::kinds::Reentrant;
use crate::lease::status::HoldState;
use crate::owner::Owner;
use crate::protocol::keys::LockKeys;
use crate::status::HoldStatus;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// In nanoseconds, so that two timers hardly ever fire together.
const LONGEST_HOLD: u64 = 12_000_000;
/// During such a hold, the actor subscribes for its waiters. Then no timer wakes it before the end of the lease.
const LONG_HOLD: u64 = 4 * LONGEST_HOLD;

/// A lease that may well end in a slow run.
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn tasks_of_one_client() {
    run("tasks_of_one_client", 1000, Pace::Patient, Duration::from_secs(2), || undisturbed(1, 4, false));
}

#[test]
fn tasks_of_one_client_pipelined() {
    run("tasks_of_one_client_pipelined", 1000, Pace::Patient, Duration::from_secs(2), || {
        undisturbed(1, 4, true)
    });
}

#[test]
fn tasks_of_two_clients() {
    run("tasks_of_two_clients", 1000, Pace::Patient, Duration::from_secs(2), || undisturbed(2, 2, false));
}

#[test]
fn tasks_of_two_clients_pipelined() {
    run("tasks_of_two_clients_pipelined", 1000, Pace::Patient, Duration::from_secs(2), || {
        undisturbed(2, 3, true)
    });
}

#[test]
fn tasks_that_are_slow() {
    run("tasks_that_are_slow", 700, Pace::Hurried(30), Duration::from_secs(300), || async {
        let table = Arc::new(Table { lossless: false, pipelined: below(2) == 0, inside: Mutex::default() });
        let sessions = [session(SHORT).await, session(SHORT).await];
        contend(&sessions, 2, &table).await;
    });
}

#[test]
fn connections_drop_and_answers_are_lost() {
    let name = "connections_drop_and_answers_are_lost";
    run(name, 700, Pace::Hurried(60), Duration::from_secs(300), || troubled(false));
}

#[test]
fn connections_drop_and_answers_are_lost_pipelined() {
    let name = "connections_drop_and_answers_are_lost_pipelined";
    run(name, 700, Pace::Hurried(60), Duration::from_secs(300), || troubled(true));
}

/// No timer wakes the actor before the end of the lease, so each newcomer has to.
#[test]
fn tasks_that_join_a_queue_together() {
    run("tasks_that_join_a_queue_together", 700, Pace::Patient, Duration::from_secs(2), || async {
        let session = session(Duration::from_secs(30)).await;
        let lock = |owner: &str| {
            let owner = Owner::new(owner).expect("an owner");
            Lock::new(session.clone(), LockKeys::new("lock".into()).map(Reentrant::new)).with_owner(&owner)
        };
        let holder = lock("holder");
        let guard = holder.lock().await.expect("the lock is free");
        let waits = |owner: &str| {
            let lock = lock(owner);
            task::spawn(async move { lock.lock().await.expect("a turn").unlock().await })
        };
        let first = waits("first");
        // By then the actor has subscribed for the waiter.
        time::sleep(Duration::from_millis(20)).await;
        let second = waits("second");
        let tries = lock("tries");
        let tries = task::spawn(async move { tries.try_lock().await.map(|taken| taken.is_some()) });
        let again = holder.lock().await.expect("a further level");
        let taken = tries.await.expect("no panic").expect("a reply");
        assert!(!taken, "an attempt took a lock that is held");
        again.unlock().await.expect("one level less");
        guard.unlock().await.expect("the lock is released");
        for waiter in [first, second] {
            waiter.await.expect("no panic").expect("the lock is released");
        }
    });
}

/// A wait may end at the moment at which the holder hands the lock over. Then the waiter has the lock, or the next task gets it.
#[test]
fn waits_that_end_during_a_hand_off() {
    run("waits_that_end_during_a_hand_off", 700, Pace::Hurried(40), Duration::from_secs(2), || async {
        let session = session(Duration::from_secs(30)).await;
        let lock = |owner: &str| {
            let owner = Owner::new(owner).expect("an owner");
            Lock::new(session.clone(), LockKeys::new("lock".into()).map(Reentrant::new)).with_owner(&owner)
        };
        let guard = lock("holder").lock().await.expect("the lock is free");
        let held = below(LONGEST_HOLD);
        // The next timer after that of the holder. In a hurried run it fires during the hand-off.
        let (waits, wait) = (lock("waits"), Duration::from_nanos(held + 1));
        let waiter = task::spawn(async move {
            // Without a reply the wait ends with an error.
            if let Ok(Some(guard)) = waits.try_lock_for(wait).await {
                guard.unlock().await.expect("the lock is released");
            }
        });
        time::sleep(Duration::from_nanos(held)).await;
        guard.unlock().await.expect("the lock is released");
        waiter.await.expect("no panic");
        let next = lock("next").try_lock().await.expect("a reply");
        next.expect("a wait that had ended got the lock").unlock().await.expect("the lock is released");
    });
}

async fn troubled(pipelined: bool) {
    let table = Arc::new(Table { lossless: false, pipelined, inside: Mutex::default() });
    let sessions = [session(SHORT).await, session(SHORT).await];
    server().lose(12);
    let trouble = task::spawn(async {
        for _ in 0..3 {
            time::sleep(Duration::from_nanos(below(LONGEST_HOLD))).await;
            server().cut();
        }
        time::sleep(Duration::from_secs(1)).await;
        server().lose(0);
    });
    contend(&sessions, if pipelined { 3 } else { 2 }, &table).await;
    trouble.await.expect("no panic");
}

/// The state that the tasks of a run share.
struct Table {
    /// Every request is answered before any lease ends.
    lossless: bool,
    /// Most acquires allow the pipelined hand-off.
    pipelined: bool,
    /// The holds at this time.
    inside: Mutex<Vec<HoldStatus>>,
}

async fn undisturbed(clients: usize, tasks: usize, pipelined: bool) {
    let table = Arc::new(Table { lossless: true, pipelined, inside: Mutex::default() });
    let mut sessions = Vec::new();
    for _ in 0..clients {
        sessions.push(session(Duration::from_secs(30)).await);
    }
    contend(&sessions, tasks, &table).await;
    // Time for the releases of dropped guards, and for yield windows.
    time::sleep(Duration::from_millis(50)).await;
    assert_eq!((server().records(), server().subscriptions()), (0, 0), "records and subscriptions are left");
    assert!(
        sessions.iter().all(|session| session.existing_queue(&QueueId::Record("lock".into())).is_none()),
        "a key queue is left"
    );
    assert!(!server().found_by_looking(), "a client missed the message of a release");
}

async fn session(lease: Duration) -> Arc<Session> {
    connect(Options { lease, ..Options::default() }).await
}

pub(super) async fn connect(options: Options) -> Arc<Session> {
    let address = Topology::parse("redis://server", &Options::default()).expect("a URL");
    engine::connect(address, options).await.expect("a connection")
}

async fn contend(sessions: &[Arc<Session>], tasks: usize, table: &Arc<Table>) {
    let mut all = Vec::new();
    for session in sessions {
        for number in 0..tasks {
            // Sometimes two tasks use the same owner.
            let owner = Owner::new(format!("{}", if below(4) == 0 { 0 } else { number })).expect("an owner");
            let mut lock = Lock::new(session.clone(), LockKeys::new("lock".into()).map(Reentrant::new))
                .with_owner(&owner);
            if !table.lossless && below(2) == 0 {
                lock = lock.with_lease(Duration::from_millis(1 + below(20)));
            }
            if table.pipelined {
                lock = lock.with_pipelined_hand_off(below(6) != 0);
            }
            let table = table.clone();
            all.push(task::spawn(async move {
                for _ in 0..3 {
                    take(&lock, &table).await;
                }
            }));
        }
    }
    for task in all {
        task.await.expect("no panic");
    }
}

/// Acquires the lock by a random method, holds it for a while, and releases it by a random method.
async fn take(lock: &Lock, table: &Table) {
    let guard = match below(8) {
        0 => lock.try_lock().await,
        1 => lock.try_lock_for(Duration::from_nanos(below(LONGEST_HOLD))).await,
        2 => match drop_after(lock.lock(), below(6)).await {
            Some(taken) => taken.map(Some),
            None => return,
        },
        _ => lock.lock().await.map(Some),
    };
    let guard = match guard {
        Ok(Some(guard)) => guard,
        Ok(None) => return,
        Err(error) => {
            assert!(!table.lossless, "not acquired: {error}");
            return;
        }
    };
    hold(&guard, table).await;
    match below(4) {
        0 => drop(guard),
        1 => {
            let again = lock.lock().await;
            let again = match again {
                Ok(again) => again,
                Err(error) => {
                    assert!(!table.lossless, "not re-entered: {error}");
                    return;
                }
            };
            unlock(guard, table).await;
            hold(&again, table).await;
            unlock(again, table).await;
        }
        _ => unlock(guard, table).await,
    }
}

async fn unlock(guard: LockGuard, table: &Table) {
    let outcome = guard.unlock().await;
    assert!(outcome.is_ok() || !table.lossless, "not released: {outcome:?}");
}

/// Holds the lock for a while, and checks that no other owner holds it.
async fn hold(guard: &LockGuard, table: &Table) {
    let status = guard.status();
    let others = {
        let mut inside = table.inside.lock().expect("no panic");
        let others: Vec<_> = inside.iter().filter(|other| other.owner() != status.owner()).cloned().collect();
        inside.push(status.clone());
        others
    };
    let held = |status: &HoldStatus| status.state() == HoldState::Held;
    for other in others {
        let both = held(&status) && held(&other) && held(&status);
        // The message must not use their `Debug`: it locks a mutex, and a panicking task must not be suspended.
        assert!(!both, "{} and {} hold the lock", status.owner(), other.owner());
    }
    match below(4) {
        0 => time::sleep(Duration::from_nanos(below(LONGEST_HOLD))).await,
        1 => time::sleep(Duration::from_nanos(below(LONG_HOLD))).await,
        // Up to the end of the lease, or a little less.
        2 if !table.lossless => {
            let _ = time::timeout(Duration::from_nanos(below(LONG_HOLD)), status.lost()).await;
        }
        _ => task::yield_now().await,
    }
    assert!(held(&status) || !table.lossless, "{} lost the lock", status.owner());
    let mut inside = table.inside.lock().expect("no panic");
    let at = inside.iter().position(|one| one.owner() == status.owner()).expect("inside");
    inside.swap_remove(at);
}

/// Drops `future` after `polls` polls. Returns its output if it has completed by then.
async fn drop_after<T>(future: impl Future<Output = T>, mut polls: u64) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => {
                // Sometimes polled again at once, without being woken.
                if below(2) == 0 {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    })
    .await
}
