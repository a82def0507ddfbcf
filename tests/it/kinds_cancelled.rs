//! Futures that acquire or release a lock of each kind, each dropped at every point that it can reach.
//!
//! `cancellation` does the same for the reentrant lock, in more positions.

use crate::cancellation::{Position, acquire_once, unlock_level_once, unlock_lost_once, unlock_once};
use crate::support::any_lock::AnyLock;
use crate::support::drop_point::{CutAt, DropBench, Tally, for_each_cut};
use crate::support::kind::Kind;

macro_rules! crossed {
    ($($test:ident: $kind:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $test() {
            cross_all(Kind::$kind).await;
        }
    )*};
}

crossed! {
    a_fair_lock: Fair,
    a_fenced_lock: Fenced,
    a_spin_lock: Spin,
    a_non_reentrant_lock: NonReentrant,
    a_non_reentrant_fair_lock: NonReentrantFair,
    a_read_lock: Read,
    a_write_lock: Write,
    a_value_lock: Value,
    a_group_lock: Group,
    a_multi_lock: Multi,
    a_red_lock: Red,
    a_semaphore: Semaphore,
    an_expirable_permit: Permit,
}

async fn cross_all(kind: Kind) {
    let (tally, bench) = (Tally::default(), DropBench::of(kind).await);
    let mut waiting = vec![Position::Free, Position::Queued, Position::Subscribing, Position::Subscribed];
    if kind.is_reentrant() {
        waiting.push(Position::Reentry);
    }
    for position in waiting {
        for_each_cut(&tally, ("lock", position.name(None)), &CutAt::SERIES, async |drop_point| {
            let call = async |lock: &AnyLock| Some(lock.lock().await.unwrap());
            acquire_once(&bench, &drop_point, position, None, &call).await
        })
        .await;
    }
    for position in [Position::Free, Position::BusyHere, Position::BusyThere] {
        for_each_cut(&tally, ("try_lock", position.name(None)), &CutAt::SERIES, async |drop_point| {
            let call = async |lock: &AnyLock| lock.try_lock().await.unwrap();
            acquire_once(&bench, &drop_point, position, None, &call).await
        })
        .await;
    }
    for (position, has_waiters) in [("no waiter", false), ("waiters here and there", true)] {
        for_each_cut(&tally, ("unlock", position), &CutAt::SERIES, async |drop_point| {
            unlock_once(&bench, &drop_point, None, has_waiters, has_waiters).await
        })
        .await;
    }
    if kind.is_reentrant() {
        for_each_cut(&tally, ("unlock", "of one level"), &CutAt::SERIES, async |drop_point| {
            unlock_level_once(&bench, &drop_point).await
        })
        .await;
    }
    if kind.is_lost_with_its_records() {
        for_each_cut(&tally, ("unlock", "lost"), &CutAt::SERIES, async |drop_point| {
            unlock_lost_once(&bench, &drop_point).await
        })
        .await;
    }
    bench.assert_no_renewal().await;
    let applies = |position| match position {
        "re-entry" | "of one level" => kind.is_reentrant(),
        "lost" => kind.is_lost_with_its_records(),
        _ => true,
    };
    let least_of = |position, least| match position {
        // The unlock of a lost hold also asks for the current holder, which adds frames.
        "lost" if kind.reports_the_new_holder() => least + 6,
        // Permits pass to a waiter of the client without a request. Then only cuts at polls are left.
        "handed on" if kind == Kind::Semaphore => 3,
        "waiters here and there" if kind == Kind::Semaphore => 1,
        _ => least,
    };
    // A call on a red lock ends with the replies of a majority, and the frames at the proxy may come later. Then only cuts at
    // polls are left.
    let share = if kind == Kind::Red { 2 } else { 1 };
    let least = LEAST.into_iter().filter(|&(_, position, _)| applies(position));
    tally.at_least(
        least.map(|(function, position, least)| (function, position, least_of(position, least) / share)),
    );
}

/// The minimum number of drops, as in `cancellation`: each frame is cut twice, and the polls add some.
const LEAST: [(&str, &str, usize); 12] = [
    ("lock", "free", 7),
    ("lock", "handed on", 7),
    ("lock", "freed while subscribing", 11),
    ("lock", "freed once subscribed", 19),
    ("lock", "re-entry", 7),
    ("try_lock", "free", 7),
    ("try_lock", "held here", 7),
    ("try_lock", "held there", 7),
    ("unlock", "no waiter", 7),
    ("unlock", "waiters here and there", 7),
    ("unlock", "of one level", 7),
    ("unlock", "lost", 7),
];
