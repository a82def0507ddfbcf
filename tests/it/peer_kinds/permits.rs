//! Redisson's expirable semaphore, whose permits have ids and may expire.

use std::time::Instant;

use super::{LONG, Stage, ms, versions_since, wall_ms};
use crate::support::{eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";
const IDS: &str = "{n}:timeout";
/// The score of a permit that never expires.
const NEVER: i64 = 922_337_203_685_477;

/// The bytes of an id as Redis stores them.
fn raw(stage: &Stage, id: &str) -> Vec<u8> {
    assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    if !stage.since(3, 17) {
        return id.as_bytes().to_vec();
    }
    let byte = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
    (0..16).map(|at| byte(2 * at)).collect()
}

#[tokio::test]
async fn a_permit_is_an_id_with_its_expiry() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1").permits("n"), stage.thread("2").permits("n"));
        assert!(one.try_set_permits(2).await.unwrap(), "{version}");
        assert!(!one.try_set_permits(3).await.unwrap(), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=2")], "{version}");

        let forever = one.acquire().await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        assert_eq!(stage.zset(IDS), [(raw(&stage, &forever), NEVER)], "{version}");
        let from = wall_ms();
        let leased = two.try_acquire_within_for(ms(0), LONG).await.unwrap().unwrap();
        let ids = stage.zset(IDS);
        assert_eq!((ids.len(), &ids[0].0), (2, &raw(&stage, &leased)), "{version}");
        assert!((from + 20_000..=wall_ms() + 20_000).contains(&ids[0].1), "{version}: {ids:?}");
        assert_eq!(two.try_acquire().await.unwrap(), None, "{version}");
        assert_eq!(stage.keys(), ["n", IDS], "{version}");
        assert_eq!((stage.ttl("n"), stage.ttl(IDS)), (-1, -1), "{version}");
        assert!(stage.published().await.is_empty(), "{version}");

        let from = wall_ms();
        assert!(one.update_lease_time(&leased, ms(60_000)).await.unwrap(), "{version}");
        let score = stage.zset(IDS)[0].1;
        assert!((from + 60_000..=wall_ms() + 60_000).contains(&score), "{version}: {score}");
        assert!(!one.update_lease_time(&id_of(0), ms(60_000)).await.unwrap(), "{version}");

        // Any thread may release a permit.
        let waiting = two.acquire();
        eventually(|| subscribers(&stage.server, CHANNEL) == 1).await;
        one.release(&leased).await.unwrap();
        let next = waiting.await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        assert!(one.try_release(&next).await.unwrap(), "{version}");
        assert_eq!(stage.published().await, [format!("{CHANNEL}=1")], "{version}");
        assert!(!one.try_release(&next).await.unwrap(), "{version}");
        assert_eq!(one.release(&next).await.unwrap_err().class, "RedisException", "{version}");
        one.release(&forever).await.unwrap();
        assert_eq!(stage.published().await, [format!("{CHANNEL}=2")], "{version}");
        assert_eq!(stage.keys(), ["n"], "{version}");
    }
}

fn message_of(permits: i32) -> String {
    format!("{CHANNEL}={permits}")
}

fn id_of(byte: u8) -> String {
    format!("{byte:02x}").repeat(16)
}

/// Adds an id to the set, as if its permit had been acquired and its lease had expired.
fn add_expired(stage: &Stage, byte: u8) -> String {
    let id = id_of(byte);
    redis::cmd("ZADD")
        .arg(IDS)
        .arg(i64::from(byte))
        .arg(raw(stage, &id))
        .exec(&mut stage.server.cli())
        .unwrap();
    id
}

#[tokio::test]
async fn expired_permits_are_collected_by_acquires_and_queries() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").permits("n");
        assert!(one.try_set_permits(1).await.unwrap(), "{version}");
        stage.run::<()>("SET n 0");
        stage.published().await;
        for byte in [1, 2, 3] {
            add_expired(&stage, byte);
        }
        // An acquire of one permit collects one of them.
        let id = one.acquire_for(LONG).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert_eq!(stage.published().await, [message_of(1)], "{version}");
        let ids: Vec<_> = stage.zset(IDS).into_iter().map(|(id, _)| id).collect();
        assert_eq!(
            ids,
            [2, 3]
                .map(|byte| raw(&stage, &id_of(byte)))
                .into_iter()
                .chain([raw(&stage, &id)])
                .collect::<Vec<_>>(),
            "{version}"
        );
        assert_eq!(one.available_permits().await.unwrap(), 2, "{version}");
        assert_eq!(stage.published().await, [message_of(2)], "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("2"), "{version}");
        assert_eq!(stage.zset(IDS).len(), 1, "{version}");

        // The release of an expired permit takes effect. Since 3.17 it also returns that it came too late.
        stage.run::<()>("SET n 0");
        let (first, second) = (add_expired(&stage, 4), add_expired(&stage, 5));
        assert_eq!(one.try_release(&first).await.unwrap(), !stage.since(3, 17), "{version}");
        assert_eq!(stage.published().await, [message_of(1)], "{version}");
        let outcome = one.release(&second).await.result;
        assert_eq!(outcome.is_err(), stage.since(3, 17), "{version}: {outcome:?}");
        assert_eq!(stage.published().await, [message_of(2)], "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("2"), "{version}");
        assert_eq!(stage.zset(IDS).len(), 1, "{version}");

        // These calls collect nothing.
        add_expired(&stage, 6);
        one.release(&id).await.unwrap();
        assert_eq!(stage.published().await, [message_of(3)], "{version}");
        one.add_permits(2).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("5"), "{version}");
        assert_eq!(stage.published().await, [message_of(2)], "{version}");
        one.add_permits(-4).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        assert!(!one.try_set_permits(9).await.unwrap(), "{version}");
        assert_eq!(stage.zset(IDS), [(raw(&stage, &id_of(6)), 6)], "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        // This call collects them, even though it concerns one of them.
        stage.run::<()>("SET n 0");
        assert!(!one.update_lease_time(&id_of(6), LONG).await.unwrap(), "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        assert_eq!(stage.published().await, [message_of(1)], "{version}");
        assert!(stage.zset(IDS).is_empty(), "{version}");
    }
}

/// A waiter sleeps until the earliest expiry and collects the permit by itself.
#[tokio::test]
async fn a_waiter_collects_an_expired_permit() {
    for version in versions_since(3, 10) {
        let mut stage = Stage::new(&version).await;
        let (one, two) = (stage.thread("1").permits("n"), stage.thread("2").permits("n"));
        assert!(one.try_set_permits(1).await.unwrap(), "{version}");
        let sent_at = Instant::now();
        let lost = one.acquire_for(ms(400)).await.unwrap();
        let next = two.acquire().await.unwrap();
        assert!(sent_at.elapsed() >= ms(400), "{version}: {:?}", sent_at.elapsed());
        assert_ne!(lost, next, "{version}");
        assert_eq!(stage.zset(IDS), [(raw(&stage, &next), NEVER)], "{version}");
        assert_eq!(stage.published().await, [message_of(1), message_of(1)], "{version}");
    }
}

#[tokio::test]
async fn permits_are_acquired_and_released_in_lists() {
    for version in versions_since(3, 41) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").permits("n");
        one.set_permits(5).await.unwrap();
        assert_eq!(stage.published().await, [message_of(5)], "{version}");
        let forever = one.acquire_many(2).await.unwrap();
        let leased = one.acquire_many_for(2, LONG).await.unwrap();
        assert_eq!((forever.len(), leased.len(), stage.zset(IDS).len()), (2, 2, 4), "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("1"), "{version}");
        assert_eq!(one.acquired_permits().await.unwrap(), 4, "{version}");
        assert_eq!(one.permits().await.unwrap(), 5, "{version}");
        let left = one.lease_time(&leased[0]).await.unwrap();
        assert!((1..=20_000).contains(&left), "{version}: {left}");
        assert_eq!(one.lease_time(&forever[0]).await.unwrap(), -1, "{version}");
        let unknown = id_of(7);
        assert_eq!(one.lease_time(&unknown).await.unwrap_err().class, "RedisException", "{version}");
        assert!(stage.published().await.is_empty(), "{version}");

        // The message is the number of all permits, including those in use.
        for (permits, free, message) in
            [(7, "3", Some(message_of(7))), (7, "3", None), (2, "-2", Some(message_of(2)))]
        {
            one.set_permits(permits).await.unwrap();
            assert_eq!(stage.text("n").as_deref(), Some(free), "{version}");
            assert_eq!(stage.published().await, Vec::from_iter(message), "{version}");
        }

        // Either all permits of a list are released or none.
        one.release_many(&leased).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert_eq!(stage.published().await, [message_of(2)], "{version}");
        let mixed = [forever[0].clone(), unknown];
        assert_eq!(one.try_release_many(&mixed).await.unwrap(), 0, "{version}");
        assert_eq!(one.release_many(&mixed).await.unwrap_err().class, "RedisException", "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("0"), "{version}");
        assert_eq!(stage.zset(IDS).len(), 2, "{version}");
        assert!(stage.published().await.is_empty(), "{version}");
        assert_eq!(one.try_release_many(&forever).await.unwrap(), 2, "{version}");
        assert_eq!(stage.published().await, [message_of(2)], "{version}");
        assert_eq!(stage.keys(), ["n"], "{version}");
    }
}

#[tokio::test]
async fn queries_collect_all_expired_permits() {
    for version in versions_since(3, 41) {
        let mut stage = Stage::new(&version).await;
        let one = stage.thread("1").permits("n");
        assert!(one.try_set_permits(1).await.unwrap(), "{version}");
        let id = one.acquire().await.unwrap();
        stage.published().await;
        for query in 0..5 {
            stage.run::<()>("SET n 0");
            add_expired(&stage, 1);
            add_expired(&stage, 2);
            let (seen, expected) = match query {
                0 => (one.available_permits().await, 2),
                1 => (one.acquired_permits().await, 1),
                2 => (one.permits().await, 3),
                3 => (one.lease_time(&id).await, -1),
                _ => {
                    assert!(one.update_lease_time(&id, LONG).await.unwrap(), "{version}");
                    (one.available_permits().await, 2)
                }
            };
            assert_eq!(seen.unwrap(), expected, "{version} {query}");
            assert_eq!(stage.text("n").as_deref(), Some("2"), "{version} {query}");
            assert_eq!(stage.published().await, [message_of(2)], "{version} {query}");
            assert_eq!(stage.zset(IDS).len(), 1, "{version} {query}");
        }
        // The release of a list publishes the collected permits and the released ones separately.
        stage.run::<()>("SET n 1");
        add_expired(&stage, 1);
        assert_eq!(one.try_release_many(&[id]).await.unwrap(), 1, "{version}");
        assert_eq!(stage.text("n").as_deref(), Some("3"), "{version}");
        assert_eq!(stage.published().await, [message_of(2), message_of(1)], "{version}");
        assert!(stage.zset(IDS).is_empty(), "{version}");
        // Setting the permits collects nothing: an expired permit still counts as in use.
        add_expired(&stage, 1);
        one.set_permits(5).await.unwrap();
        assert_eq!(stage.text("n").as_deref(), Some("4"), "{version}");
        assert_eq!(stage.published().await, [message_of(5)], "{version}");
        assert_eq!(stage.zset(IDS).len(), 1, "{version}");
    }
}

/// The set of ids gets the expiry of the record, from 3.12 on.
#[tokio::test]
async fn the_set_of_ids_expires_with_the_record() {
    for version in versions_since(3, 10) {
        let stage = Stage::new(&version).await;
        let one = stage.thread("1").permits("n");
        assert!(one.try_set_permits(1).await.unwrap(), "{version}");
        let sent_at = Instant::now();
        stage.run::<()>("PEXPIRE n 60000");
        one.acquire().await.unwrap();
        stage.assert_ends("n", 60_000, sent_at);
        if stage.since(3, 12) {
            stage.assert_ends(IDS, 60_000, sent_at);
        } else {
            assert_eq!(stage.ttl(IDS), -1, "{version}");
        }
    }
}
