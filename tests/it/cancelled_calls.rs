//! The futures that don't wait for the lock, each dropped at every point at which it can stand: questions,
//! `force_unlock`, `lost`, `connect` and `close`. See `cancellation`, which does the same to those that do.

use std::cell::RefCell;
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Holding, Lock, LossReason};

use crate::support::crossing::{
    Aside, Bench, Crossing, Cut, NAME, PROMPT, Tally, cross, not_a_heartbeat, of_the_lock, on, series, shut,
    soon,
};
use crate::support::{Proxy, Server};

/// Longer than any of these tests, so that no lease does what a release should.
const FIXED: Duration = Duration::from_secs(60);

#[tokio::test]
async fn questions() {
    let tally = Tally::default();
    let bench = Bench::start().await;
    cross_question(&tally, &bench, "is_locked", async |lock| {
        let _ = lock.is_locked().await.unwrap();
    })
    .await;
    cross_question(&tally, &bench, "is_held", async |lock| {
        let _ = lock.is_held().await.unwrap();
    })
    .await;
    cross_question(&tally, &bench, "hold_count", async |lock| {
        let _ = lock.hold_count().await.unwrap();
    })
    .await;
    cross_question(&tally, &bench, "remaining_lease", async |lock| {
        let _ = lock.remaining_lease().await.unwrap();
    })
    .await;
    cross_question(&tally, &bench, "holder", async |lock| drop(lock.holder().await.unwrap())).await;
    bench.no_renewal_follows().await;
    let mut rows = Vec::new();
    for function in ["is_locked", "is_held", "hold_count", "remaining_lease", "holder"] {
        rows.extend(["free", "held here", "held there"].map(|position| (function, position, 7)));
    }
    tally.at_least(rows);
}

async fn cross_question(tally: &Tally, bench: &Bench, function: &'static str, call: impl AsyncFn(&Lock)) {
    let lock = bench.lock(None);
    let there = bench.other.lock(NAME);
    for (position, holder) in [("free", None), ("held here", Some(&lock)), ("held there", Some(&there))] {
        let held = match holder {
            Some(holder) => Some(holder.lock().await.unwrap()),
            None => None,
        };
        let before = bench.record();
        series(tally, (function, position), &Cut::SERIES, async |crossing| {
            shut(&bench.proxy, crossing.cut, not_a_heartbeat);
            let outcome = cross(&bench.proxy, crossing.cut, call(&lock), || ()).await;
            bench.proxy.open_gate();
            // The answer to what was dropped is not taken for another's.
            let (holder, count) = tokio::join!(lock.holder(), lock.hold_count());
            let holder = holder.unwrap().map(|holder| holder.owner().to_owned());
            assert_eq!(holder.as_deref(), held.as_ref().map(|held| held.owner()), "{crossing}");
            assert_eq!(count.unwrap(), u64::from(position == "held here"), "{crossing}");
            assert_eq!(bench.record(), before, "{crossing}");
            outcome.is_none()
        })
        .await;
        if let Some(held) = held {
            held.unlock().await.unwrap();
        }
        bench.at_rest(&Crossing { function, position, cut: Cut::Polls(0) }).await;
    }
}

#[tokio::test]
async fn force_unlock() {
    let tally = Tally::default();
    let bench = Bench::start().await;
    let (here, there) = (bench.lock(None), bench.other.lock(NAME));
    for (position, holder) in [("free", None), ("held here", Some(&here)), ("held there", Some(&there))] {
        series(&tally, ("force_unlock", position), &Cut::SERIES, async |crossing| {
            let held = match holder {
                Some(holder) => Some(holder.lock().await.unwrap()),
                None => None,
            };
            let link = bench.proxy.link(0).await;
            let before = link.count(|words| words.len() == 5 && of_the_lock(words));
            shut(&bench.proxy, crossing.cut, not_a_heartbeat);
            let outcome = cross(&bench.proxy, crossing.cut, here.force_unlock(), || ()).await;
            let next = if held.is_some() { Some(bench.next_there(1).await) } else { None };
            bench.proxy.open_gate();
            // What was polled may have been sent, and frees whoever holds the lock when it arrives: before this.
            assert!(!here.is_held().await.unwrap() || position == "held here");
            let forced = link.count(|words| words.len() == 5 && of_the_lock(words)) - before;
            assert!(forced == 1 || matches!(crossing.cut, Cut::Polls(0 | 1)), "{crossing}: not sent");
            if let Some(held) = held {
                let lost = held.unlock().await.is_err_and(|error| error.is_lost());
                assert_eq!(lost, forced == 1, "{crossing}");
            }
            let next = next.into_iter().chain([bench.next_here()]);
            bench.served(&crossing, next).await;
            bench.at_rest(&crossing).await;
            outcome.map(|freed| assert_eq!(freed.unwrap(), holder.is_some(), "{crossing}")).is_none()
        })
        .await;
    }
    bench.no_renewal_follows().await;
    tally.at_least(["free", "held here", "held there"].map(|position| ("force_unlock", position, 7)));
}

#[tokio::test]
async fn lost() {
    let tally = Tally::default();
    let bench = Bench::start().await;
    let short = Duration::from_millis(60);
    // What ends the hold while it is watched.
    for (position, lease, last) in [
        ("released", None, HoldState::Released),
        ("expired", Some(short), HoldState::Lost(LossReason::Expired)),
        ("gone", None, HoldState::Lost(LossReason::Gone)),
        ("gone, fixed lease", Some(FIXED), HoldState::Lost(LossReason::Gone)),
    ] {
        series(&tally, ("lost", position), &Cut::SERIES, async |crossing| {
            let guard = bench.lock(lease).lock().await.unwrap();
            let holding = Holding::clone(&guard);
            let also = tokio::spawn({
                let holding = holding.clone();
                async move { holding.lost().await }
            });
            let links = bench.proxy.count();
            let link = bench.proxy.link(if links == 2 { 0 } else { links - 1 }).await;
            shut(&bench.proxy, crossing.cut, of_the_lock);
            let mut guard = Some(guard);
            let mut end = || match last {
                HoldState::Released => drop(guard.take()),
                HoldState::Lost(LossReason::Gone) => {
                    // A new connection looks at every hold.
                    bench.delete_record();
                    link.cut();
                }
                _ => {}
            };
            let mut ended = false;
            let outcome = cross(&bench.proxy, crossing.cut, holding.lost(), || {
                ended = true;
                end();
            })
            .await;
            if !ended {
                assert_eq!(holding.state(), HoldState::Held, "{crossing}");
                end();
            }
            bench.proxy.open_gate();
            let told = tokio::time::timeout(PROMPT, also).await.expect("told at once").unwrap();
            assert_eq!((told, holding.state()), (last, last), "{crossing}");
            drop(guard);
            bench.served(&crossing, [bench.next_here(), bench.next_there(1).await]).await;
            bench.at_rest(&crossing).await;
            outcome.map(|state| assert_eq!(state, last, "{crossing}")).is_none()
        })
        .await;
    }
    bench.no_renewal_follows().await;
    tally.at_least([
        ("lost", "released", 3),
        ("lost", "expired", 3),
        ("lost", "gone", 7),
        ("lost", "gone, fixed lease", 7),
    ]);
}

#[tokio::test]
async fn connect() {
    let tally = Tally::default();
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let (aside, mut cli) = (Aside::new(), server.cli());
    redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", ">canary-in-a-coal-mine", "~*", "&*", "+@all"])
        .exec(&mut cli)
        .unwrap();
    let cli = RefCell::new(cli);
    let connections = || -> usize {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut cli.borrow_mut()).unwrap();
        list.lines().count()
    };
    let full = proxy.url().replace("redis://", "redis://app:canary-in-a-coal-mine@") + "/3";
    for (position, url) in [("plain", proxy.url()), ("with a user and a database", full)] {
        series(&tally, ("connect", position), &Cut::SERIES, async |crossing| {
            shut(&proxy, crossing.cut, |_| true);
            let call = on(aside.handle(), Client::connect(&url));
            let outcome = cross(&proxy, crossing.cut, call, || ()).await;
            proxy.open_gate();
            let dropped = outcome.is_none();
            drop(outcome.map(|client| client.unwrap()));
            soon(&format!("{crossing}: an end of the tasks"), || aside.tasks() == 0).await;
            soon(&format!("{crossing}: an end of the connections"), || connections() == 1).await;
            dropped
        })
        .await;
    }
    tally.at_least([("connect", "plain", 7), ("connect", "with a user and a database", 15)]);
}

/// A release is under way when the client is closed.
#[tokio::test]
async fn close() {
    let tally = Tally::default();
    let bench = Bench::start().await;
    let connections = bench.connections();
    series(&tally, ("close", "a release under way"), &Cut::SERIES, async |crossing| {
        let (aside, proxy) = (Aside::new(), Proxy::start(bench.server.port()).await);
        let client = aside.connect(Client::builder(), &proxy).await;
        let lock = client.lock(NAME);
        let blocker = bench.other.lock("busy").lock().await.unwrap();
        let waiting = tokio::spawn({
            let lock = client.lock("busy");
            async move { lock.lock().await }
        });
        soon("a subscription", || !bench.channels().is_empty()).await;
        let guard = lock.lock().await.unwrap();
        // By polls: the release stands at the gate until it was polled so often, or for ever.
        match crossing.cut {
            Cut::Polls(polls) | Cut::Woken(polls) if polls < 4 => shut(&proxy, Cut::Before(0), of_the_lock),
            cut => shut(&proxy, cut, of_the_lock),
        }
        drop(guard);
        let dropped = cross(&proxy, crossing.cut, client.close(), || ()).await.is_none();
        proxy.open_gate();
        if dropped {
            // It is open.
            blocker.unlock().await.unwrap();
            waiting.await.unwrap().unwrap().unlock().await.unwrap();
            lock.lock().await.unwrap().unlock().await.unwrap();
            client.close().await;
        } else {
            assert!(matches!(waiting.await.unwrap(), Err(Error::Unavailable { .. })));
            blocker.unlock().await.unwrap();
        }
        soon("an end of the record", || bench.record().is_empty()).await;
        soon("an end of the tasks", || aside.tasks() == 0).await;
        soon("an end of the connections", || bench.connections() == connections).await;
        soon("an end of the subscriptions", || bench.channels().is_empty()).await;
        dropped
    })
    .await;
    tally.at_least([("close", "a release under way", 11)]);
}
