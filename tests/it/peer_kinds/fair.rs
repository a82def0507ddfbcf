//! Redisson's fair lock: its queue and the scores of its waiters.

use std::time::{Duration, Instant};

use super::{LONG, Stage, WATCHDOG_MS, millis, ms, versions_since, wall_ms};
use crate::support::{eventually, fair_allowance, subscribers};

const QUEUE: &str = "redisson_lock_queue:{n}";
const SCORES: &str = "redisson_lock_timeout:{n}";
const ALLOWANCE: Duration = Duration::from_secs(60);

fn channel(owner: &str) -> String {
    format!("redisson_lock__channel:{{n}}:{owner}")
}

impl Stage {
    /// The score of a waiter: the time from which the queue considers it dead.
    fn score(&self, owner: &str) -> i64 {
        let scores = self.zset(SCORES);
        let scored = scores.iter().find(|(member, _)| member == owner.as_bytes());
        scored.unwrap_or_else(|| panic!("{}: {owner} is not in {scores:?}", self.version)).1
    }

    async fn wait_for_queue(&self, owners: &[&str]) {
        eventually(|| self.list(QUEUE) == owners).await;
    }

    /// Waits until this many scripts have run. A waiter of 3.10 attempts once before it subscribes and once after that, and each
    /// attempt sets its score from the current time, or from the score of the first waiter.
    async fn wait_for_attempts(&self, scripts: u64) {
        eventually(|| self.server.scripts() == scripts).await;
    }
}

#[tokio::test]
async fn each_waiter_has_a_queue_entry_and_a_channel() {
    for version in versions_since(3, 11) {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        let allowance = millis(allowance);
        let mut stage = Stage::with(&version, setting.as_deref().as_slice()).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);

        let sent_at = Instant::now();
        one.lock_for("fair", "n", LONG).await.unwrap();
        stage.assert_record("n", [(&one.owner().await, "1")]);
        stage.assert_ends("n", 20_000, sent_at);
        assert!(!two.try_lock("fair", "n").await.unwrap(), "{version}");
        assert_eq!(stage.keys(), ["n"], "{version}");

        // The first score is the record's expiry plus the wait timeout; each further score is that of the predecessor plus the
        // waiter's own wait timeout. From 3.13 on, the time limit of a wait replaces its wait timeout.
        let (from, ends) = (wall_ms(), stage.ttl("n") + wall_ms());
        let second_in = two.lock("fair", "n");
        stage.wait_for_queue(&[&second]).await;
        let (to, score) = (wall_ms(), stage.score(&second));
        assert!(
            (ends - (to - from) - 1..=ends + (to - from) + 1).contains(&(score - allowance)),
            "{version}"
        );
        let third_in = three.try_lock_within("fair", "n", ms(19_000));
        stage.wait_for_queue(&[&second, &third]).await;
        let own = if stage.since(3, 13) { 19_000 } else { allowance };
        assert_eq!(stage.score(&third), score + own, "{version}");
        let fourth_in = four.lock("fair", "n");
        stage.wait_for_queue(&[&second, &third, &fourth]).await;
        assert_eq!(stage.score(&fourth), score + own + allowance, "{version}");
        for owner in [&second, &third, &fourth] {
            eventually(|| subscribers(&stage.server, &channel(owner)) == 1).await;
        }
        assert_eq!(subscribers(&stage.server, "redisson_lock__channel:{n}"), 0, "{version}");

        // Only the first waiter gets a message, and it subtracts its wait timeout from the scores behind it.
        one.unlock("fair", "n").await.unwrap();
        second_in.await.unwrap();
        assert_eq!(stage.published().await, [format!("{}=0", channel(&second))], "{version}");
        assert_eq!(stage.list(QUEUE), [third.as_str(), &fourth], "{version}");
        assert_eq!(stage.score(&third), score + own - allowance, "{version}");
        assert_eq!(stage.score(&fourth), score + own, "{version}");
        two.lock("fair", "n").await.unwrap();
        stage.assert_record("n", [(&second, "2")]);
        two.unlock("fair", "n").await.unwrap();
        assert!(stage.published().await.is_empty(), "{version}");

        // The queue outlives a force-unlock.
        assert_eq!(stage.thread("5").force_unlock("fair", "n").await.unwrap(), Some(true), "{version}");
        assert!(third_in.await.unwrap(), "{version}");
        assert_eq!(stage.published().await, [format!("{}=0", channel(&third))], "{version}");
        assert_eq!(stage.zset(SCORES), [(fourth.clone().into_bytes(), score)], "{version}");
        three.unlock("fair", "n").await.unwrap();
        fourth_in.await.unwrap();
        four.unlock("fair", "n").await.unwrap();
        assert_eq!(stage.published().await, [format!("{}=0", channel(&fourth))], "{version}");
        assert!(stage.keys().is_empty(), "{version}");
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_lowers_the_scores_behind_it() {
    for version in versions_since(3, 11) {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        let mut stage = Stage::with(&version, setting.as_deref().as_slice()).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        one.lock("fair", "n").await.unwrap();
        let _waiting = two.lock("fair", "n");
        stage.wait_for_queue(&[&second]).await;
        let gives_up = three.try_lock_within("fair", "n", ms(1500));
        stage.wait_for_queue(&[&second, &third]).await;
        let _behind = four.lock("fair", "n");
        stage.wait_for_queue(&[&second, &third, &fourth]).await;
        let (before, last) = (stage.score(&second), stage.score(&fourth));
        assert!(!gives_up.await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), [second.as_str(), &fourth], "{version}");
        assert_eq!(stage.score(&second), before, "{version}");
        let own = if stage.since(3, 13) { 1500 } else { millis(allowance) };
        assert_eq!(stage.score(&fourth), last - own, "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

#[tokio::test]
async fn dead_waiters_are_removed_once_their_score_has_passed() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1");
        // Two dead waiters, and one that is alive.
        stage.run::<()>("RPUSH redisson_lock_queue:{n} dead:1 dead:2 alive:1");
        let later = wall_ms() + 60_000;
        stage.run::<()>(&format!("ZADD redisson_lock_timeout:{{n}} 1 dead:1 2 dead:2 {later} alive:1"));
        assert!(!one.try_lock("fair", "n").await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), ["alive:1"], "{version}");
        assert_eq!(stage.zset(SCORES), [(b"alive:1".to_vec(), later)], "{version}");
        // No owner holds the lock. The release still succeeds, and publishes to the first waiter.
        let outcome = one.unlock("fair", "n").await.result;
        assert!(outcome.is_ok(), "{version}: {outcome:?}");
        assert_eq!(stage.published().await, [format!("{}=0", channel("alive:1"))], "{version}");

        // A waiter without a score stays in the queue for ever, or causes an error.
        stage.run::<()>("DEL redisson_lock_timeout:{n}");
        let outcome = one.try_lock("fair", "n").await.result;
        if stage.since(3, 31) {
            assert!(!outcome.unwrap(), "{version}");
            assert_eq!(stage.list(QUEUE), ["alive:1"], "{version}");
        } else {
            assert_eq!(outcome.unwrap_err().class, "RedisException", "{version}");
        }
        stage.run::<()>("DEL redisson_lock_queue:{n}");
        let sent_at = Instant::now();
        one.lock("fair", "n").await.unwrap();
        stage.assert_ends("n", WATCHDOG_MS, sent_at);
    }
}

#[tokio::test]
async fn in_3_10_every_score_is_5_s_above_that_of_the_first() {
    for version in versions_since(3, 10).filter(|version| version.starts_with("3.10.")) {
        let mut stage = Stage::new(&version).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        let started = Instant::now();
        one.lock("fair", "n").await.unwrap();
        let head = two.lock("fair", "n");
        stage.wait_for_attempts(3).await;
        let middle = three.lock("fair", "n");
        stage.wait_for_attempts(5).await;
        let last = four.lock("fair", "n");
        stage.wait_for_attempts(7).await;
        assert_eq!(stage.list(QUEUE), [second.as_str(), &third, &fourth], "{version}");
        let [head_score, score, same] = [&second, &third, &fourth].map(|owner| stage.score(owner));
        assert_behind_by_5_s(head_score, score, started);
        assert_behind_by_5_s(head_score, same, started);

        one.unlock("fair", "n").await.unwrap();
        head.await.unwrap();
        assert_eq!(stage.published().await, [format!("{}=0", channel(&second))], "{version}");
        assert_eq!((stage.score(&third), stage.score(&fourth)), (score, same), "{version}");
        two.unlock("fair", "n").await.unwrap();
        middle.await.unwrap();
        three.unlock("fair", "n").await.unwrap();
        last.await.unwrap();
        four.unlock("fair", "n").await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
    }
}

/// Only the first waiter lowers scores when it gives up: by 5 s, whatever the difference of the scores.
#[tokio::test]
async fn in_3_10_giving_up_behind_the_first_lowers_no_score() {
    for version in versions_since(3, 10).filter(|version| version.starts_with("3.10.")) {
        let mut stage = Stage::new(&version).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        let started = Instant::now();
        one.lock("fair", "n").await.unwrap();
        let head = two.try_lock_within("fair", "n", ms(5000));
        stage.wait_for_attempts(3).await;
        let middle = three.try_lock_within("fair", "n", ms(2500));
        stage.wait_for_attempts(5).await;
        let _last = four.lock("fair", "n");
        stage.wait_for_attempts(7).await;
        assert_eq!(stage.list(QUEUE), [second.as_str(), &third, &fourth], "{version}");
        let (score, behind) = (stage.score(&second), stage.score(&fourth));
        assert_behind_by_5_s(score, behind, started);
        assert!(!middle.await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), [second.as_str(), &fourth], "{version}");
        assert_eq!((stage.score(&second), stage.score(&fourth)), (score, behind), "{version}");
        assert!(!head.await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), [fourth.as_str()], "{version}");
        assert_eq!(stage.score(&fourth), behind - 5000, "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

/// The client reads its clock twice for an attempt, so the difference may be longer.
fn assert_behind_by_5_s(head: i64, behind: i64, started: Instant) {
    let passed = millis(started.elapsed()) + 1;
    assert!((5000..=5000 + passed).contains(&(behind - head)), "{head}, {behind} within {passed} ms");
}
