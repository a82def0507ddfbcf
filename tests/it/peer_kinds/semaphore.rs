//! Redisson's counting semaphore.

use std::time::Instant;

use super::{LONG, Stage, ms, versions_since};
use crate::support::{eventually, subscribers, versions};

const CHANNEL: &str = "redisson_sc:{n}";

#[tokio::test]
async fn a_semaphore_is_a_number_and_publishes_the_free_permits() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1").semaphore("n"), stage.thread("2").semaphore("n"));
        assert_eq!(one.available_permits().await.unwrap(), 0, "{version}");
        assert!(!one.try_acquire(1).await.unwrap(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");

        assert!(one.try_set_permits(5).await.unwrap(), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=5")], "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("5"), "{version}");
        assert_eq!(stage.ttl("n"), -1, "{version}");
        assert!(!one.try_set_permits(7).await.unwrap(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");

        one.acquire(2).await.unwrap();
        assert!(!two.try_acquire(4).await.unwrap(), "{version}");
        assert!(two.try_acquire(3).await.unwrap(), "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert!(!two.try_acquire_within(1, ms(100)).await.unwrap(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");

        let waiting = two.acquire(2);
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        one.release(3).await.unwrap();
        waiting.await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=3")], "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        one.release(2).await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=3")], "{version}");
        assert_eq!(one.drain_permits().await.unwrap(), 3, "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert_eq!(one.drain_permits().await.unwrap(), 0, "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(one.delete().await.unwrap(), "{version}");
        assert!(!one.delete().await.unwrap(), "{version}");
        // A release creates the semaphore.
        one.release(1).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
    }
}

#[tokio::test]
async fn permits_can_be_reduced_below_zero() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").semaphore("n");
        one.release(1).await.unwrap();
        let publishes = stage.since(3, 16);
        stage.run::<()>("PEXPIRE n 60000");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        // The first `addPermits`, that of 3.12, subtracts the permits instead.
        if !stage.since(3, 13) {
            one.reduce_permits(3).await.unwrap();
            assert_eq!(stage.text("n").as_deref(), Some("-2"), "{version}");
            assert!(stage.published().await.is_empty(), "{version}");
            assert_eq!(stage.ttl("n"), -1, "{version}");
            continue;
        }
        // `addPermits` publishes a message from 3.16 on.
        let message_of = |permits: &str| Vec::from_iter(publishes.then(|| format!("{CHANNEL}={permits}")));
        one.add_permits(-3).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("-2"), "{version}");
        assert_eq!(stage.published().await, message_of("-2"), "{version}");
        assert_eq!(stage.ttl("n"), -1, "{version}");
        assert_eq!(one.available_permits().await.unwrap(), -2, "{version}");
        assert_eq!(one.drain_permits().await.unwrap(), -2, "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        stage.run::<()>("SET n -1 PX 60000");
        one.add_permits(4).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("3"), "{version}");
        assert_eq!(stage.published().await, message_of("3"), "{version}");
        assert_eq!(stage.ttl("n"), -1, "{version}");
        // A missing key counts as 0. A release keeps the expiry, and a drain removes it.
        stage.run::<()>("SET n 2 PX 60000");
        one.release(1).await.unwrap();
        assert!(stage.ttl("n") > 0, "{version}");
        assert_eq!(one.drain_permits().await.unwrap(), 3, "{version}");
        assert_eq!(stage.ttl("n"), -1, "{version}");
        stage.run::<()>("DEL n");
        one.add_permits(2).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("2"), "{version}");
        assert_eq!(
            stage.published().await,
            [vec![format!("{CHANNEL}=3")], message_of("2")].concat(),
            "{version}"
        );

        if !stage.since(3, 29) {
            continue;
        }
        stage.run::<()>("DEL n");
        let sent_at = Instant::now();
        assert!(one.try_set_permits_for(2, LONG).await.unwrap(), "{version}");
        stage.assert_ends("n", 20_000, sent_at);
        assert_eq!(stage.published().await, [format!("{CHANNEL}=2")], "{version}");
    }
}

#[tokio::test]
async fn release_if_exists_creates_no_semaphore() {
    for version in versions_since(4, 0) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").semaphore("n");
        assert!(!one.release_if_exists(2).await.unwrap(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(one.try_set_permits(1).await.unwrap(), "{version}");
        assert!(one.release_if_exists(2).await.unwrap(), "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("3"), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1"), format!("{CHANNEL}=3")], "{version}");
    }
}
