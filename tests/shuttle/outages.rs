//! Outages that follow the release of a permit whose reply is lost. The server keeps the mark of the release for an hour.

use super::run::{Pace, run};
use super::server::server;
use super::sync::time;
use crate::Semaphore;
use crate::config::options::Options;
use crate::connection::Topology;
use crate::engine;
use crate::protocol::keys::LockKeys;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "semaphore";

#[test]
fn a_release_counts_once_after_a_short_outage() {
    run("a_release_counts_once_after_a_short_outage", 20, Pace::Patient, 20 * MINUTE, || {
        release_before(10 * MINUTE)
    });
}

#[test]
fn a_release_counts_once_after_a_long_outage() {
    run("a_release_counts_once_after_a_long_outage", 20, Pace::Patient, 70 * MINUTE, || {
        release_before(61 * MINUTE)
    });
}

/// Releases the only permit. The release takes effect before the outage, and its repeat comes after it.
async fn release_before(outage: Duration) {
    server().create_permits(NAME, 1);
    let address = Topology::parse("redis://server", &Options::default()).expect("a URL");
    // A client that reconnects often makes many steps.
    let options = Options { reconnect_min: MINUTE, reconnect_max: MINUTE, ..Options::default() };
    let session = engine::connect(address, options).await.expect("a connection");
    let semaphore = Semaphore::new(session, LockKeys::new(NAME.into()));
    // From here on the server knows the scripts.
    semaphore.acquire().await.expect("a permit is free").release().await.expect("a reply");
    let permit = semaphore.acquire().await.expect("a permit is free");
    server().go_down_after(NAME, outage);
    let released = permit.release().await;
    assert!(released.is_err(), "a release was confirmed during an outage");
    time::sleep(outage + 2 * MINUTE).await;
    // The client sends the requests for a semaphore in order, so the repeat comes before this one.
    let permit = semaphore.try_acquire().await.expect("the server is back");
    assert!(permit.is_some(), "the permit is taken");
    assert_eq!(server().free_permits(NAME), 0, "a release counted twice");
    permit.expect("taken").release().await.expect("the release is confirmed");
}
