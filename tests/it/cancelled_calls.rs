//! Futures that do not wait for the lock, each dropped at every point that it can reach: queries, `force_unlock`, `lost`,
//! `connect` and `close`. `cancellation` does the same to the futures that wait for it.

use std::cell::RefCell;
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Lock, LossReason};

use crate::support::drop_point::{
    ClientRuntime, CutAt, DropBench, DropPoint, NAME, Tally, drop_at, for_each_cut, has_fixed_order,
    not_a_heartbeat, on, prompt, shut_gate, soon,
};
use crate::support::{Proxy, Server, Stopwatch};

/// Longer than any of these tests, so that an expiring lease cannot stand in for a missing release.
const FIXED: Duration = Duration::from_secs(60);

#[tokio::test]
async fn queries() {
    let tally = Tally::default();
    let bench = DropBench::start().await;
    cross_query(&tally, &bench, "is_locked", async |lock| {
        let _ = lock.is_locked().await.unwrap();
    })
    .await;
    cross_query(&tally, &bench, "is_held", async |lock| {
        let _ = lock.is_held().await.unwrap();
    })
    .await;
    cross_query(&tally, &bench, "hold_count", async |lock| {
        let _ = lock.hold_count().await.unwrap();
    })
    .await;
    cross_query(&tally, &bench, "remaining_lease", async |lock| {
        let _ = lock.remaining_lease().await.unwrap();
    })
    .await;
    cross_query(&tally, &bench, "holder", async |lock| drop(lock.holder().await.unwrap())).await;
    bench.assert_no_renewal().await;
    let mut rows = Vec::new();
    for function in ["is_locked", "is_held", "hold_count", "remaining_lease", "holder"] {
        rows.extend(["free", "held here", "held there"].map(|position| (function, position, 7)));
    }
    tally.at_least(rows);
}

async fn cross_query(tally: &Tally, bench: &DropBench, function: &'static str, call: impl AsyncFn(&Lock)) {
    let lock = bench.lock(None);
    let there = bench.other.lock(NAME);
    for (position, holder) in [("free", None), ("held here", Some(&lock)), ("held there", Some(&there))] {
        let held = match holder {
            Some(holder) => Some(holder.lock().await.unwrap()),
            None => None,
        };
        let before = bench.record();
        for_each_cut(tally, (function, position), &CutAt::SERIES, async |drop_point| {
            shut_gate(&bench.proxy, drop_point.cut, not_a_heartbeat);
            let outcome = drop_at(&bench.proxy, drop_point.cut, call(&lock), || ()).await;
            bench.proxy.open_gate();
            // The client does not take the reply to the dropped call for the reply to another.
            let (holder, count) = tokio::join!(lock.holder(), lock.hold_count());
            let holder = holder.unwrap().map(|holder| holder.owner().to_owned());
            assert_eq!(holder.as_deref(), held.as_ref().map(|held| held.owner()), "{drop_point}");
            assert_eq!(count.unwrap(), u64::from(position == "held here"), "{drop_point}");
            assert_eq!(bench.record(), before, "{drop_point}");
            outcome.is_none()
        })
        .await;
        if let Some(held) = held {
            held.unlock().await.unwrap();
        }
        bench.at_rest(&DropPoint { function, position, cut: CutAt::Polls(0) }).await;
    }
}

#[tokio::test]
async fn force_unlock() {
    let tally = Tally::default();
    let bench = DropBench::start().await;
    let (here, there) = (bench.lock(None), bench.other.lock(NAME));
    for (position, holder) in [("free", None), ("held here", Some(&here)), ("held there", Some(&there))] {
        for_each_cut(&tally, ("force_unlock", position), &CutAt::SERIES, async |drop_point| {
            let held = match holder {
                Some(holder) => Some(holder.lock().await.unwrap()),
                None => None,
            };
            let link = bench.proxy.link(0).await;
            let before = link.count(|words| words.len() == 5 && has_fixed_order(words));
            shut_gate(&bench.proxy, drop_point.cut, not_a_heartbeat);
            let outcome = drop_at(&bench.proxy, drop_point.cut, here.force_unlock(), || ()).await;
            let next = if held.is_some() { Some(bench.next_there(1).await) } else { None };
            bench.proxy.open_gate();
            // A call that was polled may have been sent. If so, it frees the lock before this query runs, whichever client holds it.
            assert!(!here.is_held().await.unwrap() || position == "held here");
            let forced = link.count(|words| words.len() == 5 && has_fixed_order(words)) - before;
            assert!(
                forced == 1 || matches!(drop_point.cut, CutAt::Polls(0 | 1)),
                "{drop_point}: the command was not sent"
            );
            if let Some(held) = held {
                let lost = held.unlock().await.is_err_and(|error| error.is_lost());
                assert_eq!(lost, forced == 1, "{drop_point}");
            }
            let next = next.into_iter().chain([bench.next_here()]);
            bench.served(&drop_point, next).await;
            bench.at_rest(&drop_point).await;
            outcome.map(|freed| assert_eq!(freed.unwrap(), holder.is_some(), "{drop_point}")).is_none()
        })
        .await;
    }
    bench.assert_no_renewal().await;
    tally.at_least(["free", "held here", "held there"].map(|position| ("force_unlock", position, 7)));
}

#[tokio::test]
async fn lost() {
    let tally = Tally::default();
    let bench = DropBench::start().await;
    // Ends during `lost`, and not before, even if this machine stalls for a moment.
    let short = Duration::from_millis(300);
    // The event that ends the hold while `lost` waits.
    for (position, lease, last) in [
        ("released", None, HoldState::Released),
        ("expired", Some(short), HoldState::Lost(LossReason::Expired)),
        ("gone", None, HoldState::Lost(LossReason::Gone)),
        ("gone, fixed lease", Some(FIXED), HoldState::Lost(LossReason::Gone)),
    ] {
        for_each_cut(&tally, ("lost", position), &CutAt::SERIES, async |drop_point| {
            let guard = bench.lock(lease).lock().await.unwrap();
            let status = guard.status();
            let also = tokio::spawn({
                let status = status.clone();
                async move { status.lost().await }
            });
            let links = bench.proxy.count();
            let link = bench.proxy.link(if links == 2 { 0 } else { links - 1 }).await;
            shut_gate(&bench.proxy, drop_point.cut, has_fixed_order);
            let mut guard = Some(guard);
            let mut end = || match last {
                HoldState::Released => drop(guard.take()),
                HoldState::Lost(LossReason::Gone) => {
                    // After a reconnect, the client checks every hold.
                    bench.delete_record();
                    link.cut();
                }
                _ => {}
            };
            let mut ended = false;
            let outcome = drop_at(&bench.proxy, drop_point.cut, status.lost(), || {
                ended = true;
                end();
            })
            .await;
            if !ended {
                assert_eq!(status.state(), HoldState::Held, "{drop_point}");
                end();
            }
            bench.proxy.open_gate();
            let reported = prompt(&Stopwatch::start(), also).await.expect("`lost` was late").unwrap();
            assert_eq!((reported, status.state()), (last, last), "{drop_point}");
            drop(guard);
            bench.served(&drop_point, [bench.next_here(), bench.next_there(1).await]).await;
            bench.at_rest(&drop_point).await;
            outcome.map(|state| assert_eq!(state, last, "{drop_point}")).is_none()
        })
        .await;
    }
    bench.assert_no_renewal().await;
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
    let (client_runtime, mut cli) = (ClientRuntime::new(), server.cli());
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
        for_each_cut(&tally, ("connect", position), &CutAt::SERIES, async |drop_point| {
            shut_gate(&proxy, drop_point.cut, |_| true);
            let call = on(client_runtime.handle(), Client::connect(&url));
            let outcome = drop_at(&proxy, drop_point.cut, call, || ()).await;
            proxy.open_gate();
            let dropped = outcome.is_none();
            drop(outcome.map(|client| client.unwrap()));
            soon(&format!("{drop_point}: the tasks to end"), || client_runtime.tasks() == 0).await;
            soon(&format!("{drop_point}: the connections to end"), || connections() == 1).await;
            dropped
        })
        .await;
    }
    tally.at_least([("connect", "plain", 7), ("connect", "with a user and a database", 15)]);
}

/// A release is in flight when the client is closed.
#[tokio::test]
async fn close() {
    let tally = Tally::default();
    let bench = DropBench::start().await;
    let connections = bench.connections();
    for_each_cut(&tally, ("close", "a release in flight"), &CutAt::SERIES, async |drop_point| {
        let (client_runtime, proxy) = (ClientRuntime::new(), Proxy::start(bench.server.port()).await);
        let client = client_runtime.connect(Client::builder(), &proxy).await;
        let lock = client.lock(NAME);
        let blocker = bench.other.lock("busy").lock().await.unwrap();
        let waiting = tokio::spawn({
            let lock = client.lock("busy");
            async move { lock.lock().await }
        });
        soon("a subscription", || !bench.channels().is_empty()).await;
        let guard = lock.lock().await.unwrap();
        // If the cut counts polls, the gate holds the release back: `close` is polled that often before the release can finish.
        match drop_point.cut {
            CutAt::Polls(polls) | CutAt::Woken(polls) if polls < 4 => {
                shut_gate(&proxy, CutAt::Before(0), has_fixed_order)
            }
            cut => shut_gate(&proxy, cut, has_fixed_order),
        }
        drop(guard);
        let dropped = drop_at(&proxy, drop_point.cut, client.close(), || ()).await.is_none();
        proxy.open_gate();
        if dropped {
            // The client is still open.
            blocker.unlock().await.unwrap();
            waiting.await.unwrap().unwrap().unlock().await.unwrap();
            lock.lock().await.unwrap().unlock().await.unwrap();
            client.close().await;
        } else {
            assert!(matches!(waiting.await.unwrap(), Err(Error::Closed { .. })));
            blocker.unlock().await.unwrap();
        }
        soon("the record to go", || bench.record().is_empty()).await;
        soon("the tasks to end", || client_runtime.tasks() == 0).await;
        soon("the connections to end", || bench.connections() == connections).await;
        soon("the subscriptions to end", || bench.channels().is_empty()).await;
        dropped
    })
    .await;
    tally.at_least([("close", "a release in flight", 11)]);
}
