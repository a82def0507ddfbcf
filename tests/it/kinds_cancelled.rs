//! Futures that want a lock of each kind, or give it back, each dropped at every point at which it can stand. As
//! `cancellation` does it for the reentrant lock, with fewer positions.

use crate::cancellation::{Position, acquire_once, unlock_level_once, unlock_lost_once, unlock_once};
use crate::support::crossing::{Bench, Cut, Tally, series};
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
}

async fn cross_all(kind: Kind) {
    let (tally, bench) = (Tally::default(), Bench::of(kind).await);
    let mut waiting = vec![Position::Free, Position::Queued, Position::Subscribing, Position::Subscribed];
    if kind.is_reentrant() {
        waiting.push(Position::Reentry);
    }
    for position in waiting {
        series(&tally, ("lock", position.name(None)), &Cut::SERIES, async |crossing| {
            let call = async |lock: &redisson_lock::Lock| Some(lock.lock().await.unwrap());
            acquire_once(&bench, &crossing, position, None, &call).await
        })
        .await;
    }
    for position in [Position::Free, Position::BusyHere, Position::BusyThere] {
        series(&tally, ("try_lock", position.name(None)), &Cut::SERIES, async |crossing| {
            let call = async |lock: &redisson_lock::Lock| lock.try_lock().await.unwrap();
            acquire_once(&bench, &crossing, position, None, &call).await
        })
        .await;
    }
    for (position, waits) in [("nobody waits", false), ("both wait", true)] {
        series(&tally, ("unlock", position), &Cut::SERIES, async |crossing| {
            unlock_once(&bench, &crossing, None, waits, waits).await
        })
        .await;
    }
    if kind.is_reentrant() {
        series(&tally, ("unlock", "of one level"), &Cut::SERIES, async |crossing| {
            unlock_level_once(&bench, &crossing).await
        })
        .await;
    }
    // The string of a read hold would stay behind until its lease is over.
    if kind != Kind::Read {
        series(&tally, ("unlock", "lost"), &Cut::SERIES, async |crossing| {
            unlock_lost_once(&bench, &crossing).await
        })
        .await;
    }
    bench.no_renewal_follows().await;
    let reentrant = ["re-entry", "of one level"];
    let here = |position| kind.is_reentrant() || !reentrant.contains(&position);
    let least = LEAST.into_iter().filter(|&(_, position, _)| here(position));
    tally.at_least(least.filter(|&(_, position, _)| kind != Kind::Read || position != "lost"));
}

/// How often at least, as there: each frame is cut twice, and there are the polls.
const LEAST: [(&str, &str, usize); 12] = [
    ("lock", "free", 7),
    ("lock", "handed on", 7),
    ("lock", "freed while subscribing", 11),
    ("lock", "freed once subscribed", 19),
    ("lock", "re-entry", 7),
    ("try_lock", "free", 7),
    ("try_lock", "held here", 7),
    ("try_lock", "held there", 7),
    ("unlock", "nobody waits", 7),
    ("unlock", "both wait", 7),
    ("unlock", "of one level", 7),
    ("unlock", "lost", 13),
];
