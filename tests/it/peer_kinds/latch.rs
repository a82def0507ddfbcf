//! Redisson's count-down latch.

use super::{LONG, Stage, ms};
use crate::support::{eventually, subscribers, versions};

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";

#[tokio::test]
async fn a_latch_is_a_number_that_is_deleted_at_zero() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1").latch("n"), stage.thread("2").latch("n"));
        // A latch that does not exist is open.
        two.await_().await.unwrap();
        assert_eq!(one.count().await.unwrap(), 0, "{version}");
        one.count_down().await.unwrap();
        assert!(stage.keys().is_empty() && stage.published().await.is_empty(), "{version}");

        assert!(one.try_set_count(2).await.unwrap(), "{version}");
        assert!(!one.try_set_count(3).await.unwrap(), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("2"), "{version}");
        assert_eq!(stage.ttl("n"), -1, "{version}");
        assert!(!two.await_within(ms(50)).await.unwrap(), "{version}");
        let waiting = two.await_within(LONG);
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        one.count_down().await.unwrap();
        assert!(stage.published().await.is_empty(), "{version}");
        assert_eq!(one.count().await.unwrap(), 1, "{version}");
        one.count_down().await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert!(waiting.await.unwrap(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_latch_of_zero_stays_and_is_open() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").latch("n");
        assert!(one.try_set_count(0).await.unwrap(), "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        one.await_().await.unwrap();
        one.count_down().await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

/// Java's own waiters sleep on. The `0` that this library publishes would wake them.
#[tokio::test]
async fn deleting_a_latch_publishes_one() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1").latch("n"), stage.thread("2").latch("n"));
        assert!(!one.delete().await.unwrap(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(one.try_set_count(2).await.unwrap(), "{version}");
        // The last read of the waiter before it sleeps. Older versions read only once they are subscribed.
        let reads = if stage.since(3, 11) { 2 } else { 1 };
        stage.server.commandstats_reset();
        let mut waiting = two.await_();
        eventually(|| stage.server.calls("get") == reads).await;
        assert_eq!(subscribers(&stage.server, CHANNEL), 1, "{version}");
        assert!(one.delete().await.unwrap(), "{version}");
        let messages = stage.published().await;
        assert_eq!(messages, [format!("{CHANNEL}=1"), format!("{CHANNEL}=1")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
        let slept = tokio::time::timeout(ms(500), &mut waiting).await;
        assert!(slept.is_err(), "{version}: {slept:?}");
        stage.run::<()>(&format!("PUBLISH {CHANNEL} 0"));
        waiting.await.unwrap();
    }
}

#[tokio::test]
async fn the_channel_always_has_braces() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        for name in ["a{b}c", "{x}", "a}"] {
            let latch = stage.thread("1").latch(name);
            assert!(latch.try_set_count(1).await.unwrap(), "{version}");
            let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
            assert_eq!(stage.published().await, [format!("{channel}=1")], "{version}");
        }
    }
}
