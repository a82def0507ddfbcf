//! Outages around the release of a permit. The server keeps the mark of a release for an hour.

use super::contention::connect;
use super::run::{Pace, run};
use super::server::{Outage, server};
use super::sync::time;
use crate::Semaphore;
use crate::config::options::Options;
use crate::protocol::keys::LockKeys;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than it takes to reconnect.
const PAUSE: Duration = Duration::from_secs(120);
const NAME: &str = "semaphore";

#[test]
fn a_release_counts_once_after_a_short_outage() {
    run("a_release_counts_once_after_a_short_outage", 20, Pace::Patient, 70 * MINUTE, || {
        release_before(10 * MINUTE)
    });
}

#[test]
fn a_release_counts_once_after_a_long_outage() {
    run("a_release_counts_once_after_a_long_outage", 20, Pace::Patient, 70 * MINUTE, || {
        release_before(61 * MINUTE)
    });
}

/// The half hour counts from the first send without an answer.
#[test]
fn a_release_that_waited_long_for_a_connection_is_repeated() {
    run(
        "a_release_that_waited_long_for_a_connection_is_repeated",
        20,
        Pace::Patient,
        70 * MINUTE,
        || async {
            let semaphore = semaphore().await;
            let permit = semaphore.acquire().await.expect("a permit is free");
            server().go_down_for(60 * MINUTE);
            // The client notices that, so it sends nothing before the end.
            time::sleep(PAUSE).await;
            let released = permit.release().await;
            assert!(released.is_err(), "a release was confirmed during an outage");
            time::sleep(50 * MINUTE).await;
            // The server is back now, until the first send reaches it.
            server().plan(Outage::Before(NAME, MINUTE));
            time::sleep(MINUTE + 2 * PAUSE).await;
            assert_free(&semaphore).await;
        },
    );
}

/// Releases the only permit. The release takes effect before the outage, and its repeat comes after it.
async fn release_before(outage: Duration) {
    let semaphore = semaphore().await;
    let permit = semaphore.acquire().await.expect("a permit is free");
    server().plan(Outage::After(NAME, outage));
    let released = permit.release().await;
    assert!(released.is_err(), "a release was confirmed during an outage");
    time::sleep(outage + PAUSE).await;
    assert_free(&semaphore).await;
}

/// A semaphore of a new client, with one permit.
async fn semaphore() -> Semaphore {
    server().create_permits(NAME, 1);
    // A client that reconnects often makes many steps.
    let options = Options { reconnect_min: MINUTE, reconnect_max: MINUTE, ..Options::default() };
    let semaphore = Semaphore::new(connect(options).await, LockKeys::new(NAME.into()));
    // From here on the server knows the scripts.
    semaphore.acquire().await.expect("a permit is free").release().await.expect("a reply");
    semaphore
}

/// The permit is free, once. The client sends the requests for a semaphore in order, so earlier ones have been answered.
async fn assert_free(semaphore: &Semaphore) {
    let permit = semaphore.try_acquire().await.expect("the server is back").expect("the permit is free");
    assert_eq!(server().free_permits(NAME), 0, "a release counted twice");
    permit.release().await.expect("the release is confirmed");
}
