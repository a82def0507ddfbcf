//! The spans and events of docs/observability.md: each name, field and value.

use crate::support::spans::{Recorded, Spans};
use crate::support::{BUSY_WAIT, Server, eventually};
use futures_util::FutureExt;
use redisson_lock::{Client, HoldState, LossReason};
use std::collections::BTreeSet;
use std::time::Duration;
use tracing::Instrument;

const NAME: &str = "line\nbreak";

fn seconds(span: &Recorded, field: &str) -> f64 {
    let value = span.field(field).parse().unwrap_or(-1.0);
    assert!((0.0..60.0).contains(&value), "{field}: {span:#?}");
    value
}

/// A call that succeeds without a wait, and its hold until the release.
#[tokio::test]
async fn an_acquire_and_a_hold_have_the_documented_fields() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let spans = Spans::record();
    let fenced = client.fenced_lock(NAME);
    let work = async {
        let guard = fenced.lock().await.unwrap();
        (guard.owner().to_owned(), guard.token(), guard)
    };
    let (owner, token, guard) = work.instrument(tracing::debug_span!("caller")).await;

    let acquire = spans.only("redisson_lock.acquire");
    let (host, port) =
        server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    let expected = [
        ("lock", NAME),
        ("kind", "fenced lock"),
        ("owner", &owner),
        ("attempts", "1"),
        ("outcome", "acquired"),
        ("db.system.name", "redis"),
        ("db.operation.name", "acquire"),
        ("server.address", &host),
        ("server.port", &port),
        ("otel.kind", "client"),
        ("otel.status_code", ""),
        ("error.type", ""),
    ];
    for (field, value) in expected {
        assert_eq!(acquire.field(field), value, "{field}: {acquire:#?}");
    }
    seconds(&acquire, "waited");
    assert_eq!(acquire.parent, Some("caller"));
    let [event] = &acquire.events[..] else { panic!("{acquire:#?}") };
    assert_eq!(
        (event["message"].as_str(), &event["owner"], event["way"].as_str()),
        ("acquired", &owner, "directly")
    );
    assert!(spans.take("redisson_lock.wait").is_empty());

    assert!(spans.take("redisson_lock.hold").is_empty(), "the hold has not ended");
    guard.unlock().await.unwrap();
    let hold = spans.only("redisson_lock.hold");
    let expected =
        [("lock", NAME), ("kind", "fenced lock"), ("owner", &owner), ("end", "released"), ("reason", "")];
    for (field, value) in expected {
        assert_eq!(hold.field(field), value, "{field}: {hold:#?}");
    }
    assert_eq!(hold.field("token"), token.unwrap().to_string());
    assert!(hold.field("hold").parse::<u64>().is_ok());
    seconds(&hold, "held");
    // Beside the span of the call, and connected to it.
    assert_eq!((hold.parent, hold.follows), (Some("caller"), Some("redisson_lock.acquire")));

    // All fields are documented, and there are no others.
    let page = include_str!("../../docs/observability.md");
    for span in [&acquire, &hold] {
        let (_, rest) = page.split_once(&format!("| `{}` |", span.name)).unwrap();
        let row = rest.split('\n').next().unwrap().rsplit('|').nth(1).unwrap();
        let documented: BTreeSet<&str> = row.split('`').skip(1).step_by(2).collect();
        assert_eq!(documented, span.declared.iter().copied().collect());
    }
}

#[tokio::test]
async fn a_wait_is_within_the_span_of_its_call() {
    let server = Server::start();
    let (holder, waiter) =
        (Client::connect(server.url()).await.unwrap(), Client::connect(server.url()).await.unwrap());
    let guard = holder.lock(NAME).lock().await.unwrap();
    let spans = Spans::record();
    let lock = waiter.lock(NAME);
    let (inner, ()) = tokio::join!(lock.lock(), async {
        eventually(|| waiter.stats().waiting == 1).await;
        guard.unlock().await.unwrap();
    });
    let inner = inner.unwrap();
    let wait = spans.only("redisson_lock.wait");
    assert_eq!(wait.parent, Some("redisson_lock.acquire"));
    assert_eq!((wait.field("lock"), wait.field("kind")), (NAME, "reentrant lock"));
    assert_eq!(wait.field("owner"), inner.owner());
    assert_eq!(wait.declared, ["lock", "kind", "owner"]);
    let acquire = spans.only("redisson_lock.acquire");
    assert_eq!((acquire.field("outcome"), acquire.events[0]["way"].as_str()), ("acquired", "after a wait"));
    assert!(acquire.field("attempts").parse::<u32>().unwrap() >= 1, "{acquire:#?}");

    // A further level belongs to the same hold.
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(spans.only("redisson_lock.acquire").field("outcome"), "re_entered");
    assert!(spans.take("redisson_lock.hold").is_empty());
    inner.unlock().await.unwrap();
    assert_eq!(spans.only("redisson_lock.hold").field("end"), "released");
}

#[tokio::test]
async fn refused_calls_have_their_outcome() {
    let mut server = Server::start();
    let holder = Client::connect(server.url()).await.unwrap();
    let _guard = holder.mutex(NAME).lock().await.unwrap();
    let client = Client::connect(server.url()).await.unwrap();
    let spans = Spans::record();
    let mutex = client.mutex(NAME);

    assert!(mutex.try_lock().await.unwrap().is_none());
    assert_eq!(spans.only("redisson_lock.acquire").field("outcome"), "busy");
    assert!(mutex.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    let timed_out = spans.only("redisson_lock.acquire");
    assert_eq!(timed_out.field("outcome"), "timed_out");
    assert!(seconds(&timed_out, "waited") >= BUSY_WAIT.as_secs_f64());
    let mut pending = Box::pin(mutex.lock());
    assert!(pending.as_mut().now_or_never().is_none());
    drop(pending);
    let cancelled = spans.only("redisson_lock.acquire");
    assert_eq!((cancelled.field("outcome"), cancelled.field("otel.status_code")), ("cancelled", ""));

    server.kill();
    let error = loop {
        match mutex.try_lock().await {
            Err(error) => break error,
            Ok(None) => {}
            Ok(Some(_)) => panic!("another client holds the lock"),
        }
    };
    let failed = spans.take("redisson_lock.acquire").pop().unwrap();
    assert_eq!((failed.field("outcome"), failed.field("otel.status_code")), ("failed", "ERROR"));
    assert_eq!(failed.field("otel.status_description"), error.to_string());
    assert!(
        format!("{error:?}").starts_with(failed.field("error.type"))
            && !failed.field("error.type").is_empty()
    );
    assert!(spans.take("redisson_lock.hold").is_empty());
}

#[tokio::test]
async fn a_hold_shows_renewals_and_its_loss() {
    let server = Server::start();
    let builder = Client::builder().watchdog_timeout(Duration::from_secs(2));
    let client = builder.connect(server.url()).await.unwrap();
    let spans = Spans::record();
    let guard = client.mutex(NAME).lock().await.unwrap();
    eventually(|| client.stats().renewals.done > 0).await;
    let _: () = redis::cmd("DEL").arg(NAME).query(&mut server.cli()).unwrap();
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Gone));
    let hold = spans.only("redisson_lock.hold");
    let (reason, end) = (LossReason::Gone.to_string(), hold.events.last().unwrap());
    assert_eq!((hold.field("end"), hold.field("reason")), ("lost", "gone"));
    assert_eq!(hold.field("otel.status_code"), "ERROR");
    assert_eq!(hold.field("otel.status_description"), reason);
    assert_eq!((end["message"].as_str(), end["reason"].as_str()), ("lost", "gone"));
    let renewed = &hold.events[0];
    assert_eq!((renewed["message"].as_str(), renewed["lease"].as_str()), ("renewed", "2.0"));
    assert!((0.0..2.0).contains(&renewed["left"].parse().unwrap()));

    // The passing of a latch is a call, but no hold.
    client.count_down_latch("latch").wait().await.unwrap();
    assert_eq!(spans.take("redisson_lock.acquire").pop().unwrap().field("outcome"), "acquired");
    // A permit that is given up.
    client.semaphore("permits").try_set_permits(1).await.unwrap();
    client.semaphore("permits").acquire().await.unwrap().forget();
    let ends: Vec<_> =
        spans.take("redisson_lock.hold").iter().map(|hold| hold.field("end").to_owned()).collect();
    assert_eq!(ends, ["unended"]);
}
