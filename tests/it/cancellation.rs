//! Futures that acquire, use or release the lock, each dropped at every point that it can reach: after each poll, after each
//! wake-up, and before and after each frame that is sent or received for it.
//!
//! At every point, a lock that the future acquired is released at once, the next waiter is served at once, and no state is left
//! behind. `support::drop_point` drops the futures, `cancelled_calls` covers the other futures, and `cancelled_tasks` drops
//! futures at arbitrary times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, LossReason};
use tokio::sync::Notify;

use crate::support::Server;
use crate::support::any_lock::{AnyLock, Held};
use crate::support::drop_point::{
    CutAt, DropBench, DropPoint, Tally, drop_at, for_each_cut, has_fixed_order, not_a_heartbeat, shut_gate,
};

/// Longer than any of these tests, so that an expiring lease cannot stand in for a missing release.
const FIXED: Duration = Duration::from_secs(60);
const LEASES: [Option<Duration>; 2] = [None, Some(FIXED)];

/// The situation in which a future tries to acquire the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    Free,
    /// The same client holds the lock. Once the call waits, the client hands the lock over, or frees it if the new lease is much
    /// longer.
    Queued,
    /// Another client holds the lock, and releases it before the call's client has subscribed.
    Subscribing,
    /// Another client holds the lock. It releases it after the subscription is confirmed and the lock was found busy again.
    Subscribed,
    /// The same client holds the lock until the call is over.
    BusyHere,
    /// Another client holds the lock until the call is over.
    BusyThere,
    /// As `BusyHere`, without another waiter: the client is idle once the call has ended.
    AloneHere,
    /// As `BusyThere`, without another waiter.
    AloneThere,
    /// The owner of the call holds the lock already.
    Reentry,
}

impl Position {
    const WAITING: [Self; 5] = [Self::Free, Self::Queued, Self::Subscribing, Self::Subscribed, Self::Reentry];

    pub fn name(self, lease: Option<Duration>) -> &'static str {
        match (self, lease.is_some()) {
            (Self::Free, false) => "free",
            (Self::Queued, false) => "handed on",
            (Self::Subscribing, false) => "freed while subscribing",
            (Self::Subscribed, false) => "freed once subscribed",
            (Self::BusyHere, false) => "held here",
            (Self::BusyThere, false) => "held there",
            (Self::AloneHere, false) => "alone behind this client",
            (Self::AloneThere, false) => "alone behind another",
            (Self::Reentry, false) => "re-entry",
            (Self::Free, true) => "free, fixed lease",
            (Self::Queued, true) => "freed here, fixed lease",
            (Self::Subscribing, true) => "freed while subscribing, fixed lease",
            (Self::Subscribed, true) => "freed once subscribed, fixed lease",
            (Self::BusyHere, true) => "held here, fixed lease",
            (Self::BusyThere, true) => "held there, fixed lease",
            (Self::AloneHere, true) => "alone behind this client, fixed lease",
            (Self::AloneThere, true) => "alone behind another, fixed lease",
            (Self::Reentry, true) => "re-entry, fixed lease",
        }
    }

    fn is_alone(self) -> bool {
        matches!(self, Self::AloneHere | Self::AloneThere)
    }

    /// The number of frames after which the holder releases the lock.
    fn freed_at(self) -> usize {
        match self {
            // The attempt and the reply "busy".
            Self::Subscribing => 2,
            // The attempt and its reply, SUBSCRIBE and its confirmation, the second attempt and its reply.
            Self::Subscribed => 6,
            _ => usize::MAX,
        }
    }
}

/// The minimum number of drops of a waiting future. Each frame is cut twice, and the polls before the last of them add three.
/// On a slow machine a holder probe may find the lock free first, and a message or a confirmation then does not count.
const LEAST: [(&str, usize); 10] = [
    ("free", 7),
    ("free, fixed lease", 7),
    ("handed on", 7),
    ("freed here, fixed lease", 11),
    ("freed while subscribing", 11),
    ("freed while subscribing, fixed lease", 11),
    ("freed once subscribed", 19),
    ("freed once subscribed, fixed lease", 19),
    ("re-entry", 7),
    ("re-entry, fixed lease", 7),
];

/// Drops the futures with which `call` acquires the lock, in each of `positions`.
async fn cross_acquires(
    tally: &Tally,
    bench: &DropBench,
    function: &'static str,
    positions: &[Position],
    call: impl AsyncFn(&AnyLock) -> Option<Held>,
) {
    for &position in positions {
        for lease in LEASES {
            let name = (function, position.name(lease));
            for_each_cut(tally, name, &CutAt::SERIES, async |drop_point| {
                acquire_once(bench, &drop_point, position, lease, &call).await
            })
            .await;
        }
    }
}

/// Checks that messages and hand-overs wake the waiters, and that holder probes do not replace them.
///
/// A few probes find the lock free between a release and its message: about one in ten crossings on a busy machine. If a wake-up
/// is lost, each crossing has at least one such probe.
fn assert_all_were_woken(tally: &Tally, bench: &DropBench) {
    let (probes, crossings) = (bench.found_by_probes(), tally.total());
    println!("{probes} holder probes found the lock free");
    assert!(probes * 2 < crossings, "{probes} holder probes found the lock free in {crossings} crossings");
}

/// Returns true if the call was dropped before it ended.
pub async fn acquire_once(
    bench: &DropBench,
    drop_point: &DropPoint,
    position: Position,
    lease: Option<Duration>,
    call: &impl AsyncFn(&AnyLock) -> Option<Held>,
) -> bool {
    let lock = bench.any_lock(lease);
    let holder = match position {
        Position::Free | Position::Reentry => None,
        Position::Queued | Position::BusyHere | Position::AloneHere => Some(bench.rival(&bench.near)),
        _ => Some(bench.rival(&bench.other)),
    };
    let held = match &holder {
        Some(holder) => Some(holder.lock().await.unwrap()),
        None => None,
    };
    let outer = if position == Position::Reentry { Some(lock.lock().await.unwrap()) } else { None };

    shut_gate(&bench.proxy, drop_point.cut, has_fixed_order);
    let go = Arc::new(Notify::new());
    let releasing = tokio::spawn({
        let (passed, go) = (bench.proxy.passed(position.freed_at()), go.clone());
        async move {
            tokio::select! {
                () = passed => {}
                () = go.notified() => {}
            }
            match held {
                Some(held) => held.unlock().await,
                None => Ok(()),
            }
        }
    });
    let mut next_here = None;
    let outcome = drop_at(&bench.proxy, drop_point.cut, call(&lock), || {
        if !position.is_alone() {
            next_here = Some(bench.next_here());
        }
        if position == Position::Queued {
            go.notify_one();
        }
    })
    .await;

    if position.is_alone() {
        bench.proxy.open_gate();
        bench.idle(drop_point, usize::from(position == Position::AloneHere)).await;
    }
    let next_here = next_here.unwrap_or_else(|| bench.next_here());
    let next_there = bench.next_there(1).await;
    go.notify_one();
    bench.proxy.open_gate();
    let dropped = outcome.is_none();
    if let Some(guard) = outcome.flatten() {
        assert_eq!(guard.state(), HoldState::Held, "{drop_point}");
        guard.unlock().await.unwrap();
    }
    if let Some(outer) = outer {
        // This attempt runs after the key queue has undone the dropped call.
        lock.lock().await.unwrap().unlock().await.unwrap();
        bench.assert_held_alone(drop_point, &outer).await;
        outer.unlock().await.unwrap();
    }
    bench.served(drop_point, [next_here, next_there]).await;
    releasing.await.unwrap().unwrap_or_else(|error| panic!("{drop_point}: {error}"));
    bench.at_rest(drop_point).await;
    dropped
}

#[tokio::test]
async fn lock() {
    let (tally, bench) = (Tally::default(), DropBench::start().await);
    cross_acquires(&tally, &bench, "lock", &Position::WAITING, async |lock| Some(lock.lock().await.unwrap()))
        .await;
    assert_all_were_woken(&tally, &bench);
    bench.assert_no_renewal().await;
    tally.at_least(LEAST.map(|(position, least)| ("lock", position, least)));
}

#[tokio::test]
async fn try_lock() {
    let (tally, bench) = (Tally::default(), DropBench::start().await);
    let positions = [Position::Free, Position::BusyHere, Position::BusyThere, Position::Reentry];
    cross_acquires(&tally, &bench, "try_lock", &positions, async |lock| lock.try_lock().await.unwrap()).await;
    assert_all_were_woken(&tally, &bench);
    bench.assert_no_renewal().await;
    let names = ["free", "held here", "held there", "re-entry"];
    let fixed =
        ["free, fixed lease", "held here, fixed lease", "held there, fixed lease", "re-entry, fixed lease"];
    tally.at_least(names.into_iter().chain(fixed).map(|position| ("try_lock", position, 7)));
}

#[tokio::test]
async fn try_lock_for() {
    let (tally, bench) = (Tally::default(), DropBench::start().await);
    cross_acquires(&tally, &bench, "try_lock_for", &Position::WAITING, async |lock| {
        Some(lock.try_lock_for(FIXED).await.unwrap().expect("the lock is released in time"))
    })
    .await;
    // A wait behind another client has more frames, which must come before its end even if this machine stalls for a moment.
    for (positions, wait) in [
        ([Position::BusyHere, Position::AloneHere], Duration::from_millis(150)),
        ([Position::BusyThere, Position::AloneThere], Duration::from_millis(500)),
    ] {
        cross_acquires(&tally, &bench, "try_lock_for, timed out", &positions, async |lock| {
            match lock.try_lock_for(wait).await {
                // A slow server may not answer within so short a wait.
                Err(Error::TimedOut { .. }) => None,
                outcome => outcome.unwrap(),
            }
        })
        .await;
    }
    assert_all_were_woken(&tally, &bench);
    bench.assert_no_renewal().await;
    let waiting = LEAST.map(|(position, least)| ("try_lock_for", position, least));
    let timed_out = [
        ("held here", 3),
        ("held here, fixed lease", 3),
        ("held there", 11),
        ("held there, fixed lease", 11),
        ("alone behind this client", 3),
        ("alone behind this client, fixed lease", 3),
        ("alone behind another", 11),
        ("alone behind another, fixed lease", 11),
    ];
    let timed_out = timed_out.map(|(position, least)| ("try_lock_for, timed out", position, least));
    tally.at_least(waiting.into_iter().chain(timed_out));
}

/// Counts a running body until it is dropped.
struct BodyCount(Arc<AtomicUsize>);

impl BodyCount {
    fn begin(running: &Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Ordering::SeqCst);
        Self(running.clone())
    }
}

impl Drop for BodyCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn run() {
    let (tally, bench) = (Tally::default(), DropBench::start().await);
    let running = Arc::new(AtomicUsize::new(0));
    cross_acquires(&tally, &bench, "run", &Position::WAITING, async |lock| {
        // The body of the previous call, which is over.
        assert_eq!(running.load(Ordering::SeqCst), 0, "a body outlives its call");
        let running = running.clone();
        let body = async |_| {
            let _body = BodyCount::begin(&running);
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        };
        lock.as_lock().run(body).await.unwrap();
        None
    })
    .await;
    assert_all_were_woken(&tally, &bench);
    // The lease expires while the body runs.
    cross_acquires(&tally, &bench, "run, lost", &[Position::Free], async |lock| {
        assert_eq!(running.load(Ordering::SeqCst), 0, "a body outlives its call");
        let running = running.clone();
        let body = async |_| {
            let _body = BodyCount::begin(&running);
            std::future::pending::<()>().await
        };
        let outcome = lock.with_lease(Duration::from_millis(50)).as_lock().run(body).await;
        assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Expired, .. })), "{outcome:?}");
        None
    })
    .await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
    bench.assert_no_renewal().await;
    // The body and the release add ten drops.
    let waiting = LEAST.map(|(position, least)| ("run", position, least + 10));
    let lost = ["free", "free, fixed lease"].map(|position| ("run, lost", position, 13));
    tally.at_least(waiting.into_iter().chain(lost));
}

#[tokio::test]
async fn unlock() {
    let tally = Tally::default();
    let bench = DropBench::start().await;
    // The waiters: none, a task of the same client, a task of another client, or both.
    for (position, here, there) in [
        ("no waiter", false, false),
        ("a waiter here", true, false),
        ("a waiter there", false, true),
        ("waiters here and there", true, true),
    ] {
        for lease in LEASES {
            for_each_cut(&tally, ("unlock", position), &CutAt::SERIES, async |drop_point| {
                unlock_once(&bench, &drop_point, lease, here, there).await
            })
            .await;
        }
    }
    for_each_cut(&tally, ("unlock", "of one level"), &CutAt::SERIES, async |drop_point| {
        unlock_level_once(&bench, &drop_point).await
    })
    .await;
    for_each_cut(&tally, ("unlock", "lost"), &CutAt::SERIES, async |drop_point| {
        unlock_lost_once(&bench, &drop_point).await
    })
    .await;
    bench.assert_no_renewal().await;
    tally.at_least([
        ("unlock", "no waiter", 14),
        ("unlock", "a waiter here", 14),
        ("unlock", "a waiter there", 14),
        ("unlock", "waiters here and there", 14),
        ("unlock", "of one level", 7),
        ("unlock", "lost", 13),
    ]);
}

/// The caller leaves before the actor of the key has run, which has the same thread.
#[tokio::test]
async fn an_unlock_of_one_level_whose_caller_leaves_at_once() {
    let server = Server::start();
    let lock = Client::connect(server.url()).await.unwrap().lock("n");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let mut unlocking = Box::pin(inner.unlock());
    assert!(unlocking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(unlocking);
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap(), "one level was left");
}

/// Each of the functions below returns true if the call was dropped before it ended.
pub async fn unlock_once(
    bench: &DropBench,
    drop_point: &DropPoint,
    lease: Option<Duration>,
    here: bool,
    there: bool,
) -> bool {
    let guard = bench.any_lock(lease).lock().await.unwrap();
    let mut next = Vec::new();
    if there {
        next.push(bench.next_there(2).await);
    }
    if here {
        next.push(bench.next_here());
        tokio::task::yield_now().await;
    }
    shut_gate(&bench.proxy, drop_point.cut, has_fixed_order);
    let outcome = drop_at(&bench.proxy, drop_point.cut, guard.unlock(), || ()).await;
    bench.proxy.open_gate();
    bench.served(drop_point, next).await;
    bench.at_rest(drop_point).await;
    outcome.map(|outcome| outcome.unwrap()).is_none()
}

pub async fn unlock_level_once(bench: &DropBench, drop_point: &DropPoint) -> bool {
    let lock = bench.any_lock(None);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    shut_gate(&bench.proxy, drop_point.cut, has_fixed_order);
    let outcome = drop_at(&bench.proxy, drop_point.cut, inner.unlock(), || ()).await;
    bench.proxy.open_gate();
    lock.lock().await.unwrap().unlock().await.unwrap();
    bench.assert_held_alone(drop_point, &outer).await;
    outer.unlock().await.unwrap();
    bench.at_rest(drop_point).await;
    outcome.map(|outcome| outcome.unwrap()).is_none()
}

/// Another client holds the lock by the time of the unlock.
pub async fn unlock_lost_once(bench: &DropBench, drop_point: &DropPoint) -> bool {
    let guard = bench.any_lock(None).lock().await.unwrap();
    bench.delete_record();
    let others = bench.rival(&bench.other).lock().await.unwrap();
    shut_gate(&bench.proxy, drop_point.cut, not_a_heartbeat);
    let outcome = drop_at(&bench.proxy, drop_point.cut, guard.unlock(), || ()).await;
    bench.proxy.open_gate();
    let next = [bench.next_here(), bench.next_there(1).await];
    bench.assert_held_alone(drop_point, &others).await;
    others.unlock().await.unwrap();
    bench.served(drop_point, next).await;
    bench.at_rest(drop_point).await;
    outcome.map(|outcome| assert!(outcome.unwrap_err().is_lost())).is_none()
}
