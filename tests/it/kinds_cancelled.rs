//! Futures that want a lock of each kind, or give it back, each dropped at every point at which it can stand. As
//! `cancellation` does it for the reentrant lock, with fewer positions.

use crate::cancellation::{Position, acquire_once, unlock_level_once, unlock_lost_once, unlock_once};
use crate::support::contender::Contender;
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
    a_value_lock: Value,
    a_group_lock: Group,
    a_multi_lock: Multi,
    a_red_lock: Red,
    a_semaphore: Semaphore,
    an_expirable_permit: Permit,
}

async fn cross_all(kind: Kind) {
    let (tally, bench) = (Tally::default(), Bench::of(kind).await);
    let mut waiting = vec![Position::Free, Position::Queued, Position::Subscribing, Position::Subscribed];
    if kind.is_reentrant() {
        waiting.push(Position::Reentry);
    }
    for position in waiting {
        series(&tally, ("lock", position.name(None)), &Cut::SERIES, async |crossing| {
            let call = async |lock: &Contender| Some(lock.lock().await.unwrap());
            acquire_once(&bench, &crossing, position, None, &call).await
        })
        .await;
    }
    for position in [Position::Free, Position::BusyHere, Position::BusyThere] {
        series(&tally, ("try_lock", position.name(None)), &Cut::SERIES, async |crossing| {
            let call = async |lock: &Contender| lock.try_lock().await.unwrap();
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
    if kind.is_lost_with_its_records() {
        series(&tally, ("unlock", "lost"), &Cut::SERIES, async |crossing| {
            unlock_lost_once(&bench, &crossing).await
        })
        .await;
    }
    bench.no_renewal_follows().await;
    let here = |position| match position {
        "re-entry" | "of one level" => kind.is_reentrant(),
        "lost" => kind.is_lost_with_its_records(),
        _ => true,
    };
    // Before the last one ends, it asks who holds it.
    let more = |position| if position == "lost" && kind.names_its_holder() { 6 } else { 0 };
    let least = LEAST.into_iter().filter(|&(_, position, _)| here(position));
    tally.at_least(least.map(|(function, position, least)| (function, position, least + more(position))));
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
    ("unlock", "lost", 7),
];
