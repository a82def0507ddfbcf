//! Redisson's locks whose record is a hash with one field: reentrant, spin, non-reentrant, fenced.

use std::time::Instant;

use super::{LONG, Stage, WATCHDOG_MS, ms, versions_since};
use crate::support::{eventually, subscribers, versions};

const CHANNEL: &str = "redisson_lock__channel:{n}";

#[tokio::test]
async fn a_lock_is_one_field_and_its_release_publishes_zero() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let owner = one.owner().await;

        let sent_at = Instant::now();
        one.lock_for("plain", "n", ms(20_000)).await.unwrap();
        stage.assert_record("n", [(&owner, "1")]);
        stage.assert_ends("n", 20_000, sent_at);
        one.lock("plain", "n").await.unwrap();
        stage.assert_record("n", [(&owner, "2")]);
        // The Java object remembers the lease of an earlier call.
        let lease = if stage.since(3, 14) { 20_000 } else { WATCHDOG_MS };
        stage.assert_ends("n", lease, sent_at);
        let sent_at = Instant::now();
        one.unlock("plain", "n").await.unwrap();
        stage.assert_record("n", [(&owner, "1")]);
        stage.assert_ends("n", lease, sent_at);
        assert!(stage.published().await.is_empty(), "{version}");
        let error = two.unlock("plain", "n").await.unwrap_err();
        assert_eq!(error.class, "IllegalMonitorStateException", "{version}");
        let message = format!(
            "attempt to unlock lock, not locked by current thread by node id: {} thread-id: {}",
            stage.client.uuid(),
            two.owner().await.rsplit(':').next().unwrap()
        );
        assert_eq!(error.message, message, "{version}");
        one.unlock("plain", "n").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");

        // The unlock of a hold that is gone.
        let outcome = one.unlock("plain", "n").await.result;
        assert_eq!(outcome.is_err(), stage.since(3, 11), "{version}: {outcome:?}");
        let messages = if stage.since(3, 11) { vec![] } else { vec![format!("{CHANNEL}=0")] };
        assert_eq!(stage.published().await, messages, "{version}");

        one.lock("plain", "n").await.unwrap();
        let forced = two.force_unlock("plain", "n").await.unwrap();
        assert_eq!(forced, stage.since(3, 10).then_some(true), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        let forced = two.force_unlock("plain", "n").await.unwrap();
        assert_eq!(forced, stage.since(3, 10).then_some(false), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_name_without_an_opening_brace_is_put_in_braces() {
    for version in versions() {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1");
        for (name, channel) in [
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("a{", "redisson_lock__channel:a{"),
            ("}{", "redisson_lock__channel:}{"),
            ("{}x", "redisson_lock__channel:{}x"),
            ("a}", "redisson_lock__channel:{a}}"),
        ] {
            one.lock("plain", name).await.unwrap();
            one.unlock("plain", name).await.unwrap();
            assert_eq!(stage.published().await, [format!("{channel}=0")], "{version}");
        }
    }
}

/// The release writes the latch for a retry that finds no record.
#[tokio::test]
async fn an_unlock_latch_outlives_the_release_in_some_versions() {
    for version in versions() {
        let stage = Stage::new(&version).await;
        let one = stage.thread("1");
        one.lock("plain", "n").await.unwrap();
        one.unlock("plain", "n").await.unwrap();
        let latches: Vec<String> = stage.run("KEYS *");
        if stage.since(4, 3) || !stage.since(3, 52) {
            assert!(latches.is_empty(), "{version}: {latches:?}");
            continue;
        }
        let [latch] = &latches[..] else { panic!("{version}: {latches:?}") };
        let id = latch.strip_prefix("redisson_unlock_latch:{n}:").expect(latch);
        assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{version}: {latch}");
        assert_eq!(stage.text(latch).as_deref(), Some("1"), "{version}");
        let ttl = stage.ttl(latch);
        assert!((1..=20_000).contains(&ttl), "{version}: {ttl}");
    }
}

#[tokio::test]
async fn a_spin_lock_publishes_nothing() {
    for version in versions_since(3, 15) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let sent_at = Instant::now();
        one.lock("spin", "n").await.unwrap();
        one.lock("plain", "n").await.unwrap();
        stage.assert_record("n", [(&one.owner().await, "2")]);
        stage.assert_ends("n", WATCHDOG_MS, sent_at);
        let waiting = two.lock("spin", "n");
        assert!(!stage.thread("3").try_lock("spin", "n").await.unwrap(), "{version}");
        one.unlock("spin", "n").await.unwrap();
        one.unlock("spin", "n").await.unwrap();
        waiting.await.unwrap();
        assert_eq!(subscribers(&stage.server, CHANNEL), 0, "{version}");
        two.unlock("spin", "n").await.unwrap();
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_non_reentrant_lock_refuses_its_owner_with_an_error() {
    for version in versions_since(4, 4) {
        for (kind, reentrant) in [("nonreentrant", "plain"), ("nonreentrantfair", "fair")] {
            let mut stage = Stage::new(&version).await;
            let (one, two) = (stage.thread("1"), stage.thread("2"));
            let owner = one.owner().await;
            one.lock(kind, "n").await.unwrap();
            stage.assert_record("n", [(&owner, "1")]);
            for error in [
                one.lock(kind, "n").await.unwrap_err(),
                one.try_lock(kind, "n").await.unwrap_err(),
                one.try_lock_within(kind, "n", LONG).await.unwrap_err(),
            ] {
                assert_eq!(error.class, "IllegalMonitorStateException", "{version}");
                // The message may name any thread of the client.
                let prefix = "Lock 'n' is non-reentrant and is already held by thread ";
                assert!(error.message.starts_with(prefix), "{version}: {error}");
            }
            stage.assert_record("n", [(&owner, "1")]);
            assert!(!two.try_lock(kind, "n").await.unwrap(), "{version}");
            one.lock(reentrant, "n").await.unwrap();
            stage.assert_record("n", [(&owner, "2")]);
            one.unlock(kind, "n").await.unwrap();
            one.unlock(kind, "n").await.unwrap();
            let messages = if kind == "nonreentrant" { vec![format!("{CHANNEL}=0")] } else { vec![] };
            assert_eq!(stage.published().await, messages, "{version} {kind}");
            assert!(stage.keys().is_empty(), "{version}");
        }
    }
}

const TOKEN: &str = "redisson_lock_token:{n}";

#[tokio::test]
async fn every_acquire_of_a_fenced_lock_raises_its_token() {
    for version in versions_since(3, 19) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let owner = one.owner().await;
        assert_eq!(one.token("n").await.unwrap(), Some(0), "{version}");

        assert_eq!(one.lock_and_get_token("n").await.unwrap(), 1, "{version}");
        stage.assert_record("n", [(&owner, "1")]);
        assert_eq!(stage.text(TOKEN).as_deref(), Some("1"), "{version}");
        assert_eq!(stage.ttl(TOKEN), -1, "{version}");
        assert_eq!(one.lock_and_get_token("n").await.unwrap(), 2, "{version}");
        one.lock("fenced", "n").await.unwrap();
        stage.assert_record("n", [(&owner, "3")]);
        assert_eq!(two.token("n").await.unwrap(), Some(3), "{version}");
        assert_eq!(two.try_lock_and_get_token("n", ms(0), ms(5000)).await.unwrap(), None, "{version}");
        assert!(!two.try_lock("fenced", "n").await.unwrap(), "{version}");
        assert_eq!(stage.text(TOKEN).as_deref(), Some("3"), "{version}");
        one.lock("plain", "n").await.unwrap();
        assert_eq!(stage.text(TOKEN).as_deref(), Some("3"), "{version}");
        for _ in 0..4 {
            assert!(stage.published().await.is_empty(), "{version}");
            one.unlock("fenced", "n").await.unwrap();
        }
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert_eq!(stage.keys(), [TOKEN], "{version}");
        stage.run::<()>("SET redisson_lock_token:{n} 41");
        let sent_at = Instant::now();
        assert_eq!(one.try_lock_and_get_token("n", LONG, ms(5000)).await.unwrap(), Some(42), "{version}");
        stage.assert_ends("n", 5000, sent_at);
    }
}

#[tokio::test]
async fn a_fenced_lock_ignores_leases_and_records_without_an_expiry() {
    for version in versions_since(3, 19) {
        let stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));

        // The lease is ignored.
        let sent_at = Instant::now();
        assert_eq!(one.lock_and_get_token_for("n", ms(5000)).await.unwrap(), 1, "{version}");
        stage.assert_ends("n", WATCHDOG_MS, sent_at);
        // A single attempt waits for the lock.
        let waiting = two.method("fenced", "n", "tryLockAndGetToken", &[]);
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        one.unlock("fenced", "n").await.unwrap();
        assert_eq!(waiting.await.unwrap(), "2", "{version}");
        two.unlock("fenced", "n").await.unwrap();

        // The methods that return a token ignore a record without an expiry.
        stage.run::<()>("HSET n somebody:1 1");
        assert_eq!(one.lock_and_get_token("n").await.unwrap(), -1, "{version}");
        let token = two.try_lock_and_get_token("n", ms(0), ms(5000)).await.unwrap();
        assert_eq!(token, Some(-1), "{version}");
        // The record blocks the methods that return no token.
        assert!(!two.try_lock("fenced", "n").await.unwrap(), "{version}");
        let waiting = one.lock("fenced", "n");
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        stage.assert_record("n", [("somebody:1", "1")]);
        assert_eq!(stage.text(TOKEN).as_deref(), Some("2"), "{version}");
        stage.run::<()>("DEL n");
        stage.run::<()>(&format!("PUBLISH {CHANNEL} 0"));
        waiting.await.unwrap();
    }
}

#[tokio::test]
async fn tokens_rise_from_hold_to_hold() {
    for version in versions_since(3, 19) {
        let stage = Stage::new(&version).await;
        let loops = ["1", "2", "3"].map(|thread| stage.thread(thread).loop_tokens("n", 10, "counter", ms(0)));
        let mut holds = Vec::new();
        for running in loops {
            holds.extend(running.await.unwrap());
        }
        holds.sort_unstable();
        let tokens: Vec<i64> = holds.iter().map(|hold| hold.2).collect();
        assert_eq!(tokens, Vec::from_iter(1..=30), "{version}");
        assert!(holds.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{version}: {holds:?}");
        assert_eq!(stage.text("counter").as_deref(), Some("30"), "{version}");
    }
}
