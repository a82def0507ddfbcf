//! The fair lock's queue and its waiters' scores.

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
    /// Of a waiter; how late the queue considers it dead.
    fn score(&self, owner: &str) -> i64 {
        let scores = self.zset(SCORES);
        let scored = scores.iter().find(|(member, _)| member == owner.as_bytes());
        scored.unwrap_or_else(|| panic!("{}: {owner} is not in {scores:?}", self.version)).1
    }

    async fn queue_becomes(&self, owners: &[&str]) {
        eventually(|| self.list(QUEUE) == owners).await;
    }
}

#[tokio::test]
async fn waiters_stand_in_a_queue_each_with_its_channel() {
    for version in versions_since(3, 11) {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        let allowance = millis(allowance);
        let mut stage = Stage::with(&version, setting.as_deref().as_slice()).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);

        let asked = Instant::now();
        one.lock_for("fair", "n", LONG).await.unwrap();
        stage.assert_record("n", [(&one.owner().await, "1")]);
        stage.assert_ends("n", 20_000, asked);
        assert!(!two.try_lock("fair", "n").await.unwrap(), "{version}");
        assert_eq!(stage.keys(), ["n"], "{version}");

        // By the record's end and the waiter's own allowance; then by the predecessor's. A wait that ends is an allowance
        // from 3.13 on.
        let (from, ends) = (wall_ms(), stage.ttl("n") + wall_ms());
        let second_in = two.lock("fair", "n");
        stage.queue_becomes(&[&second]).await;
        let (to, score) = (wall_ms(), stage.score(&second));
        assert!(
            (ends - (to - from) - 1..=ends + (to - from) + 1).contains(&(score - allowance)),
            "{version}"
        );
        let third_in = three.try_lock_within("fair", "n", ms(19_000));
        stage.queue_becomes(&[&second, &third]).await;
        let own = if stage.since(3, 13) { 19_000 } else { allowance };
        assert_eq!(stage.score(&third), score + own, "{version}");
        let fourth_in = four.lock("fair", "n");
        stage.queue_becomes(&[&second, &third, &fourth]).await;
        assert_eq!(stage.score(&fourth), score + own + allowance, "{version}");
        for owner in [&second, &third, &fourth] {
            eventually(|| subscribers(&stage.server, &channel(owner)) == 1).await;
        }
        assert_eq!(subscribers(&stage.server, "redisson_lock__channel:{n}"), 0, "{version}");

        // The head alone is told, and it takes its allowance out of the scores behind it.
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

        // The queue outlives a forced release.
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
async fn who_gives_up_lowers_the_scores_behind_it() {
    for version in versions_since(3, 11) {
        let (setting, allowance) = fair_allowance(&version, ALLOWANCE);
        let mut stage = Stage::with(&version, setting.as_deref().as_slice()).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        one.lock("fair", "n").await.unwrap();
        let _waiting = two.lock("fair", "n");
        stage.queue_becomes(&[&second]).await;
        let gives_up = three.try_lock_within("fair", "n", ms(1500));
        stage.queue_becomes(&[&second, &third]).await;
        let _behind = four.lock("fair", "n");
        stage.queue_becomes(&[&second, &third, &fourth]).await;
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
async fn the_dead_leave_the_queue_when_their_score_has_passed() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1");
        // Two that are dead and one that is not.
        stage.run::<()>("RPUSH redisson_lock_queue:{n} dead:1 dead:2 alive:1");
        let later = wall_ms() + 60_000;
        stage.run::<()>(&format!("ZADD redisson_lock_timeout:{{n}} 1 dead:1 2 dead:2 {later} alive:1"));
        assert!(!one.try_lock("fair", "n").await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), ["alive:1"], "{version}");
        assert_eq!(stage.zset(SCORES), [(b"alive:1".to_vec(), later)], "{version}");
        // Nobody holds it: the release still succeeds, and tells the head.
        let outcome = one.unlock("fair", "n").await.result;
        assert!(outcome.is_ok(), "{version}: {outcome:?}");
        assert_eq!(stage.published().await, [format!("{}=0", channel("alive:1"))], "{version}");

        // In the queue without a score: for ever, or an error.
        stage.run::<()>("DEL redisson_lock_timeout:{n}");
        let outcome = one.try_lock("fair", "n").await.result;
        if stage.since(3, 31) {
            assert!(!outcome.unwrap(), "{version}");
            assert_eq!(stage.list(QUEUE), ["alive:1"], "{version}");
        } else {
            assert_eq!(outcome.unwrap_err().class, "RedisException", "{version}");
        }
        stage.run::<()>("DEL redisson_lock_queue:{n}");
        let asked = Instant::now();
        one.lock("fair", "n").await.unwrap();
        stage.assert_ends("n", WATCHDOG_MS, asked);
    }
}

#[tokio::test]
async fn in_3_10_every_waiter_is_allowed_5_s_behind_the_head() {
    for version in versions_since(3, 10).filter(|version| version.starts_with("3.10.")) {
        let mut stage = Stage::new(&version).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        let started = Instant::now();
        one.lock("fair", "n").await.unwrap();
        let head = two.lock("fair", "n");
        stage.queue_becomes(&[&second]).await;
        let middle = three.lock("fair", "n");
        stage.queue_becomes(&[&second, &third]).await;
        let last = four.lock("fair", "n");
        // An attempt before and one behind the subscription; each attempt sets the score.
        eventually(|| stage.server.scripts() == 7).await;
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

/// Only when the head gives up are scores lowered, by what the second's was above the head's.
#[tokio::test]
async fn in_3_10_who_gives_up_behind_the_head_lowers_nothing() {
    for version in versions_since(3, 10).filter(|version| version.starts_with("3.10.")) {
        let mut stage = Stage::new(&version).await;
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|name| stage.thread(name));
        let (second, third, fourth) = (two.owner().await, three.owner().await, four.owner().await);
        let started = Instant::now();
        one.lock("fair", "n").await.unwrap();
        let head = two.try_lock_within("fair", "n", ms(2500));
        stage.queue_becomes(&[&second]).await;
        let middle = three.try_lock_within("fair", "n", ms(1500));
        stage.queue_becomes(&[&second, &third]).await;
        let _last = four.lock("fair", "n");
        eventually(|| stage.server.scripts() == 7).await;
        let (score, behind) = (stage.score(&second), stage.score(&fourth));
        assert_behind_by_5_s(score, behind, started);
        assert!(!middle.await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), [second.as_str(), &fourth], "{version}");
        assert_eq!((stage.score(&second), stage.score(&fourth)), (score, behind), "{version}");
        assert!(!head.await.unwrap(), "{version}");
        assert_eq!(stage.list(QUEUE), [fourth.as_str()], "{version}");
        assert_eq!(stage.score(&fourth), score, "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
    }
}

/// The client reads its clock twice for an attempt, so that the difference may come out longer.
fn assert_behind_by_5_s(head: i64, behind: i64, started: Instant) {
    let passed = millis(started.elapsed()) + 1;
    assert!((5000..=5000 + passed).contains(&(behind - head)), "{head}, {behind} within {passed} ms");
}
