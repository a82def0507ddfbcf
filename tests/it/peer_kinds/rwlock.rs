//! Both sides of Redisson's read/write lock.

use std::time::Instant;

use redisson_lock::{Client, HoldState};

use super::{LONG, Stage, millis, ms, versions_since};
use crate::support::{Java, eventually, subscribers};

const CHANNEL: &str = "redisson_rwlock:{n}";

/// The timeout key of an owner's n-th read hold.
fn timeout(owner: &str, n: u32) -> String {
    format!("{{n}}:{owner}:rwlock_timeout:{n}")
}

#[tokio::test]
async fn readers_share_a_record_and_each_hold_has_a_timeout_key() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let (first, second) = (one.owner().await, two.owner().await);

        let sent_at = Instant::now();
        one.lock_for("read", "n", LONG).await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "1")]);
        stage.assert_ends("n", 20_000, sent_at);
        assert_eq!(stage.text(&timeout(&first, 1)).as_deref(), Some("1"), "{version}");
        stage.assert_ends(&timeout(&first, 1), 20_000, sent_at);

        let again = Instant::now();
        one.lock_for("read", "n", ms(10_000)).await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "2")]);
        stage.assert_ends(&timeout(&first, 2), 10_000, again);
        stage.assert_ends(&timeout(&first, 1), 20_000, sent_at);
        // Versions before 3.11 shorten the expiry.
        if stage.since(3, 11) {
            stage.assert_ends("n", 20_000, sent_at);
        } else {
            stage.assert_ends("n", 10_000, again);
        }
        assert_eq!(one.hold_count("read", "n").await.unwrap(), 2, "{version}");

        let other = Instant::now();
        two.lock_for("read", "n", ms(25_000)).await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "2"), (&second, "1")]);
        stage.assert_ends("n", 25_000, other);
        assert_eq!(
            stage.keys(),
            {
                let mut keys = ["n".to_owned(), timeout(&first, 1), timeout(&first, 2), timeout(&second, 1)];
                keys.sort();
                keys
            },
            "{version}"
        );
        for thread in [&one, &two, &stage.thread("3")] {
            assert!(!thread.try_lock("write", "n").await.unwrap(), "{version}");
            assert!(thread.is_locked("read", "n").await.unwrap(), "{version}");
            assert!(!thread.is_locked("write", "n").await.unwrap(), "{version}");
        }

        // A release deletes the timeout key with the highest number. The longest timeout that is left is the record's expiry.
        one.unlock("read", "n").await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "1"), (&second, "1")]);
        assert_eq!(stage.text(&timeout(&first, 2)), None, "{version}");
        stage.assert_ends("n", 25_000, other);
        two.unlock("read", "n").await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "1")]);
        stage.assert_ends("n", 20_000, sent_at);
        assert!(stage.published().await.is_empty(), "{version}");
        one.unlock("read", "n").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_read_release_ends_readers_without_timeout_keys() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        one.lock("read", "n").await.unwrap();
        two.lock("read", "n").await.unwrap();
        stage.run::<()>(&format!("DEL {}", timeout(&two.owner().await, 1)));
        one.unlock("read", "n").await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
    }
}

#[tokio::test]
async fn a_writer_excludes_others_and_its_re_entries_add_leases() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let writer = format!("{}:write", one.owner().await);

        let sent_at = Instant::now();
        one.lock_for("write", "n", LONG).await.unwrap();
        stage.assert_record("n", [("mode", "write"), (&writer, "1")]);
        stage.assert_ends("n", 20_000, sent_at);
        assert!(one.is_locked("write", "n").await.unwrap(), "{version}");
        assert!(!one.is_locked("read", "n").await.unwrap(), "{version}");
        for kind in ["read", "write"] {
            assert!(!two.try_lock(kind, "n").await.unwrap(), "{version}");
        }
        one.lock_for("write", "n", LONG).await.unwrap();
        stage.assert_record("n", [("mode", "write"), (&writer, "2")]);
        stage.assert_ends("n", 40_000, sent_at);
        let error = two.unlock("write", "n").await.unwrap_err();
        assert_eq!(error.class, "IllegalMonitorStateException", "{version}");

        let released = Instant::now();
        one.unlock("write", "n").await.unwrap();
        stage.assert_record("n", [("mode", "write"), (&writer, "1")]);
        stage.assert_ends("n", 20_000, released);
        assert!(stage.published().await.is_empty(), "{version}");
        one.unlock("write", "n").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_writer_may_read_and_then_downgrade() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        let first = one.owner().await;
        let writer = format!("{first}:write");
        one.lock_for("write", "n", LONG).await.unwrap();
        let reading = Instant::now();
        one.lock_for("read", "n", ms(25_000)).await.unwrap();
        stage.assert_record("n", [("mode", "write"), (&writer, "1"), (&first, "1")]);
        stage.assert_ends(&timeout(&first, 1), 25_000, reading);
        stage.assert_ends("n", 25_000, reading);
        assert_eq!(two.is_locked("read", "n").await.unwrap(), stage.since(3, 24), "{version}");
        assert!(two.is_locked("write", "n").await.unwrap(), "{version}");
        assert!(!two.try_lock("read", "n").await.unwrap(), "{version}");

        // A read release sets the record's expiry to the longest read timeout that is left, whatever the write lease is.
        one.lock_for("read", "n", ms(28_000)).await.unwrap();
        one.unlock("read", "n").await.unwrap();
        stage.assert_ends("n", 25_000, reading);
        stage.assert_record("n", [("mode", "write"), (&writer, "1"), (&first, "1")]);

        let before = stage.ttl("n");
        one.unlock("write", "n").await.unwrap();
        stage.assert_record("n", [("mode", "read"), (&first, "1")]);
        assert!((1..=before).contains(&stage.ttl("n")), "{version}");
        // Waiting readers get no message.
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(two.try_lock("read", "n").await.unwrap(), "{version}");
        two.unlock("read", "n").await.unwrap();
        one.unlock("read", "n").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn waiters_of_both_sides_share_one_channel() {
    for version in versions_since(3, 10) {
        let stage = Stage::new(&version).await;
        let (one, two, three) = (stage.thread("1"), stage.thread("2"), stage.thread("3"));
        one.lock("write", "n").await.unwrap();
        let readers = [two.lock("read", "n"), three.lock("read", "n")];
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        one.unlock("write", "n").await.unwrap();
        for reader in readers {
            reader.await.unwrap();
        }
        let writer = one.lock("write", "n");
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        two.unlock("read", "n").await.unwrap();
        three.unlock("read", "n").await.unwrap();
        writer.await.unwrap();
        one.unlock("write", "n").await.unwrap();
    }
}

#[tokio::test]
async fn force_unlock_acts_on_its_own_side_only() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1"), stage.thread("2"));
        for (kind, other, message) in [("read", "write", "0"), ("write", "read", "1")] {
            one.lock(kind, "n").await.unwrap();
            assert_eq!(two.force_unlock(other, "n").await.unwrap(), Some(false), "{version} {other}");
            assert!(stage.published().await.is_empty(), "{version}");
            assert!(one.is_held(kind, "n").await.unwrap(), "{version}");
            assert_eq!(two.force_unlock(kind, "n").await.unwrap(), Some(true), "{version} {kind}");
            assert_eq!(stage.published().await, [format!("{CHANNEL}={message}")], "{version} {kind}");
            // The timeout key of a reader stays.
            let left = if kind == "read" { vec![timeout(&one.owner().await, 1)] } else { vec![] };
            assert_eq!(stage.keys(), left, "{version} {kind}");

            // The release of a lost hold.
            let outcome = one.unlock(kind, "n").await.result;
            assert_eq!(outcome.is_err(), stage.since(3, 44), "{version} {kind}: {outcome:?}");
            assert_eq!(stage.published().await, [format!("{CHANNEL}={message}")], "{version} {kind}");
            stage.run::<()>("FLUSHALL");
        }
    }
}

#[tokio::test]
async fn the_last_read_release_under_a_write_hold_keeps_the_expiry() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1");
        let writer = format!("{}:write", one.owner().await);
        one.lock_for("write", "n", LONG).await.unwrap();
        let reading = Instant::now();
        one.lock_for("read", "n", ms(25_000)).await.unwrap();
        one.unlock("read", "n").await.unwrap();
        stage.assert_record("n", [("mode", "write"), (&writer, "1")]);
        stage.assert_ends("n", 25_000, reading);
        assert_eq!(stage.keys(), ["n"], "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

/// In versions before 3.11, the first read already shortens the write hold.
#[tokio::test]
async fn a_re_entered_read_shortens_a_write_hold() {
    for version in versions_since(3, 10) {
        let stage = Stage::new(&version).await;
        let one = stage.thread("1");
        let sent_at = Instant::now();
        one.lock_for("write", "n", ms(60_000)).await.unwrap();
        let reading = Instant::now();
        one.lock_for("read", "n", ms(10_000)).await.unwrap();
        if stage.since(3, 11) {
            stage.assert_ends("n", 60_000, sent_at);
        } else {
            stage.assert_ends("n", 10_000, reading);
        }
        one.lock_for("read", "n", ms(5000)).await.unwrap();
        one.unlock("read", "n").await.unwrap();
        stage.assert_ends("n", 10_000, reading);
    }
}

/// The watchdog timeout, for holds without a lease of their own.
const SHORT_MS: i64 = 1500;

#[tokio::test]
async fn a_readers_renewal_covers_the_record_and_timeout_keys() {
    let mut running = tokio::task::JoinSet::new();
    for version in versions_since(3, 10) {
        for holds in [1, 2] {
            running.spawn(renewals_of_a_reader(version.clone(), holds));
        }
    }
    running.join_all().await;
}

/// The renewals of a reader with this number of holds, while another reader has a longer lease.
async fn renewals_of_a_reader(version: String, holds: u32) {
    let stage = Stage::new(&version).await;
    let client = Java::get(&version).client(&stage.server, SHORT_MS.unsigned_abs()).await;
    let (one, other) = (client.thread("1"), stage.thread("2"));
    let (ours, theirs) = (one.owner().await, timeout(&other.owner().await, 1));
    for _ in 0..holds {
        one.lock("read", "n").await.unwrap();
    }
    let sent_at = Instant::now();
    other.lock_for("read", "n", LONG).await.unwrap();
    stage.assert_ends("n", 20_000, sent_at);

    // The longer lease does not prevent the renewal, and the renewed hold outlasts its own lease.
    eventually(|| stage.ttl("n") <= SHORT_MS).await;
    let renewed = Instant::now();
    eventually(|| millis(renewed.elapsed()) > SHORT_MS + 500).await;
    assert!((1..=SHORT_MS).contains(&stage.ttl("n")), "{version}");
    // Versions 3.44 to 3.52 fail after they have renewed the record, if any reader has two holds.
    let fails = stage.since(3, 44) && !stage.since(4, 0) && holds > 1;
    for n in 1..=holds {
        assert_eq!(stage.text(&timeout(&ours, n)).is_some(), !fails, "{version}: {n} of {holds}");
    }
    // Versions from 4.6 on leave the timeout keys of other owners alone.
    let shortened = stage.ttl(&theirs) <= SHORT_MS;
    assert_eq!(shortened, !stage.since(4, 6) && !fails, "{version}: {holds}");
}

/// A Java reader's renewal sets the record's expiry to its own lease. Such a reader may come before or after the Rust reader, and
/// may die after any of its renewals.
#[tokio::test]
async fn a_rust_reader_keeps_the_record_after_a_shorter_java_reader() {
    let mut running = tokio::task::JoinSet::new();
    for version in versions_since(3, 10) {
        for java_comes_first in [true, false] {
            running.spawn(outlives_a_java_reader(version.clone(), java_comes_first));
        }
    }
    running.join_all().await;
}

async fn outlives_a_java_reader(version: String, java_comes_first: bool) {
    let what = format!("{version}, Java first: {java_comes_first}");
    let stage = Stage::new(&version).await;
    let java = Java::get(&version).client(&stage.server, SHORT_MS.unsigned_abs()).await;
    let thread = java.thread("1");
    // Without Java, the longer lease is renewed after 5 s at the earliest. The shorter one is renewed after at most 3 s, and then
    // every 3 s.
    let lease = if java_comes_first { ms(30_000) } else { ms(9000) };
    let client = Client::builder().watchdog_timeout(lease).connect(stage.server.url()).await.unwrap();
    let lock = client.read_write_lock("n");
    let guard = if java_comes_first {
        thread.lock("read", "n").await.unwrap();
        lock.read().lock().await.unwrap()
    } else {
        let guard = lock.read().lock().await.unwrap();
        thread.lock("read", "n").await.unwrap();
        let deadline = guard.deadline();
        eventually(|| guard.deadline() > deadline).await;
        guard
    };
    eventually(|| stage.ttl("n") <= SHORT_MS).await;
    // Java's holds stay, and nothing renews them.
    java.shutdown().await;
    drop(thread);
    // From now on, only the renewal of the Rust reader extends the expiry.
    eventually(|| !(1..=SHORT_MS).contains(&stage.ttl("n"))).await;
    assert!(stage.ttl("n") > SHORT_MS, "{what}: the record is gone, and the reader is {:?}", guard.state());
    assert_eq!(guard.state(), HoldState::Held, "{what}");
    assert!(client.read_write_lock("n").write().try_lock().await.is_err(), "{what}");
    guard.unlock().await.unwrap();
}
