//! Redisson's multi lock, red lock and group lock.

use std::time::Instant;

use super::{LONG, Stage, WATCHDOG_MS, ms, versions_since, wall_ms};
use crate::support::java::JavaThread;
use crate::support::{Java, Server, eventually, subscribers, versions};

const CHANNEL: &str = "redisson_lock__channel:{g}";
/// The hashes of the values `x` and `y`.
const X: &str = "UAtNwcfhLzLiIyViPu3ySw";
const Y: &str = "aontSToqYqQXNA8h9vd9SA";

#[tokio::test]
async fn a_multi_lock_is_several_locks_of_one_thread() {
    for version in versions() {
        let stage = Stage::new(&version).await;
        let other = Server::start();
        let elsewhere = Java::get(&version).client(&other, 0).await;
        let one = stage.thread("1");
        let members =
            [(&stage.client, "plain", "a"), (&elsewhere, "fair", "b"), (&stage.client, "write", "c")];
        one.combine("multi", "all", &members).await.unwrap();

        let sent_at = Instant::now();
        one.lock("multi", "all").await.unwrap();
        let owner = one.owner().await;
        stage.assert_record("a", [(&owner, "1")]);
        stage.assert_ends("a", WATCHDOG_MS, sent_at);
        stage.assert_record("c", [("mode", "write"), (&format!("{owner}:write"), "1")]);
        let id = owner.rsplit(':').next().unwrap();
        let there: Vec<(String, String)> = redis::cmd("HGETALL").arg("b").query(&mut other.cli()).unwrap();
        assert_eq!(there, [(format!("{}:{id}", elsewhere.uuid()), "1".to_owned())], "{version}");
        one.unlock("multi", "all").await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_multi_lock_holds_all_or_none() {
    for version in versions_since(3, 10) {
        let stage = Stage::new(&version).await;
        let other = Server::start();
        let elsewhere = Java::get(&version).client(&other, 0).await;
        let one = stage.thread("1");
        let members =
            [(&stage.client, "plain", "a"), (&elsewhere, "plain", "b"), (&stage.client, "write", "c")];
        one.combine("multi", "all", &members).await.unwrap();

        // In the end, every record has this lease.
        let sent_at = Instant::now();
        assert!(one.try_lock_within_for("multi", "all", LONG, LONG).await.unwrap(), "{version}");
        stage.assert_ends("a", 20_000, sent_at);
        stage.assert_ends("c", 20_000, sent_at);
        one.unlock("multi", "all").await.unwrap();
        // Older versions lock each member for twice the wait at first. Without a wait that is no time at all.
        let locked = one.try_lock_within_for("multi", "all", ms(0), LONG).await.unwrap();
        assert_eq!(locked, stage.since(3, 17), "{version}");
        if locked {
            one.unlock("multi", "all").await.unwrap();
        }
        assert!(stage.keys().is_empty(), "{version}");
        let sent_at = Instant::now();
        one.lock_for("multi", "all", LONG).await.unwrap();
        stage.assert_ends("a", 20_000, sent_at);
        one.unlock("multi", "all").await.unwrap();

        let holder = elsewhere.thread("2");
        holder.lock("plain", "b").await.unwrap();
        assert!(!one.try_lock("multi", "all").await.unwrap(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
        let waiting = one.lock("multi", "all");
        eventually(|| subscribers(&other, "redisson_lock__channel:{b}") == 1).await;
        holder.unlock("plain", "b").await.unwrap();
        waiting.await.unwrap();
        one.unlock("multi", "all").await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
    }
}

/// In 3.3.2 one busy lock uses up the whole wait.
#[tokio::test]
async fn a_red_lock_needs_a_majority() {
    for version in versions_since(3, 10) {
        let stage = Stage::new(&version).await;
        let others = [Server::start(), Server::start()];
        let java = Java::get(&version);
        let (second, third) = (java.client(&others[0], 0).await, java.client(&others[1], 0).await);
        let one = stage.thread("1");
        let members = [&stage.client, &second, &third].map(|client| (client, "plain", "n"));
        one.combine("red", "most", &members).await.unwrap();

        second.thread("2").lock("plain", "n").await.unwrap();
        assert!(one.try_lock_within_for("red", "most", ms(3000), LONG).await.unwrap(), "{version}");
        stage.assert_record("n", [(&one.owner().await, "1")]);
        one.unlock("red", "most").await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
        third.thread("2").lock("plain", "n").await.unwrap();
        assert!(!one.try_lock_within_for("red", "most", ms(500), LONG).await.unwrap(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

impl Stage {
    /// Asserts that the group's record has these values, (hash, owner, count), and returns when each hold ends.
    #[track_caller]
    fn assert_group<const N: usize>(&self, values: [(&str, &str, &str); N]) -> [i64; N] {
        let mut record = self.hash("g");
        let seen = format!("{record:?}");
        let mut take = |field: String| record.remove(&field).unwrap_or_default();
        let ends = values.map(|(hash, owner, count)| {
            assert_eq!(take(hash.to_owned()), owner, "{}: {seen}", self.version);
            assert_eq!(take(format!("{hash}:{owner}:lock_count")), count, "{}", self.version);
            take(format!("{hash}:{owner}:expire_time")).parse().expect("the expiry is a number")
        });
        assert!(record.is_empty(), "{}: also {record:?}", self.version);
        ends
    }

    /// A thread with group locks for `x`, for `y` and for both, with the aliases `x`, `y` and `xy`.
    async fn member(&self, name: &str) -> JavaThread {
        let thread = self.thread(name);
        for (alias, values) in [("x", &["x"][..]), ("y", &["y"]), ("xy", &["x", "y"])] {
            thread.group(alias, "g", values).await.unwrap();
        }
        thread
    }
}

#[tokio::test]
async fn a_group_is_a_hash_with_three_fields_per_value() {
    for version in versions_since(3, 38) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.member("1").await, stage.member("2").await);
        let (first, second) = (one.owner().await, two.owner().await);

        let (from, sent_at) = (wall_ms(), Instant::now());
        one.lock_for("group", "x", LONG).await.unwrap();
        let [x] = stage.assert_group([(X, &first, "1")]);
        assert!((from + 20_000..=wall_ms() + 20_000).contains(&x), "{version}: {x}");
        stage.assert_ends("g", 20_000, sent_at);
        assert!(!two.try_lock("group", "xy").await.unwrap(), "{version}");
        let sent_at = Instant::now();
        assert!(two.try_lock("group", "y").await.unwrap(), "{version}");
        stage.assert_group([(X, &first, "1"), (Y, &second, "1")]);
        stage.assert_ends("g", WATCHDOG_MS, sent_at);
        assert!(two.is_locked("group", "x").await.unwrap(), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");

        let waiting = one.lock_for("group", "xy", ms(10_000));
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        let from = wall_ms();
        two.unlock("group", "y").await.unwrap();
        waiting.await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        let [same, y] = stage.assert_group([(X, &first, "2"), (Y, &first, "1")]);
        assert_eq!(same, x, "{version}: a re-entry shortened the lease");
        assert!((from + 10_000..=wall_ms() + 10_000).contains(&y), "{version}: {y}");

        // A partial release publishes a message, too, and sets the expiry of the remaining holds anew.
        let from = wall_ms();
        one.unlock("group", "x").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        let [moved, same] = stage.assert_group([(X, &first, "1"), (Y, &first, "1")]);
        assert!((from + 20_000..=wall_ms() + 20_000).contains(&moved), "{version}: {moved}");
        assert_eq!(same, y, "{version}");
        one.unlock("group", "xy").await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_failed_group_release_still_takes_effect() {
    for version in versions_since(3, 38) {
        let mut stage = Stage::new(&version).await;
        let one = stage.member("1").await;
        let error = one.unlock("group", "x").await.unwrap_err();
        assert_eq!(error.class, "IllegalMonitorStateException", "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        one.lock("group", "x").await.unwrap();
        let error = one.unlock("group", "xy").await.unwrap_err();
        assert_eq!(error.class, "IllegalMonitorStateException", "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_group_ignores_expired_values() {
    for version in versions_since(3, 38) {
        let stage = Stage::new(&version).await;
        let one = stage.member("1").await;
        let owner = one.owner().await;
        let past = wall_ms() - 1;
        stage.run::<()>(&format!("HSET g {X} dead:1 {X}:dead:1:expire_time {past} {X}:dead:1:lock_count 3"));
        assert!(one.try_lock("group", "x").await.unwrap(), "{version}");
        assert_eq!(stage.hash("g")[&format!("{X}:{owner}:lock_count")], "1", "{version}");
        assert_eq!(stage.hash("g")[X], owner, "{version}");
    }
}

#[tokio::test]
async fn force_unlock_of_a_group_fails_unless_all_values_are_held() {
    for version in versions_since(3, 38) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.member("1").await, stage.member("2").await);
        assert_eq!(two.force_unlock("group", "x").await.unwrap_err().class, "RedisException", "{version}");
        one.lock("group", "xy").await.unwrap();
        assert_eq!(two.force_unlock("group", "x").await.unwrap(), Some(true), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=0")], "{version}");
        stage.assert_group([(Y, &one.owner().await, "1")]);
        assert_eq!(two.force_unlock("group", "xy").await.unwrap_err().class, "RedisException", "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}
