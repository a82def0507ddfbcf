//! Semaphores and latches compared with every tested version of Redisson: each method must leave the same keys, publish
//! the same messages and return the same answer from Rust and from Java. `permits_with_java` has both at the same
//! time.

use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use redisson_lock::Client;

use crate::support::java::objects::{JavaLatch, JavaPermits, JavaSemaphore};
use crate::support::raw::NAME;
use crate::support::{Java, RawRedis, Server, since, versions};

const TIMEOUTS: &str = "{n}:timeout";
const LEASE: Duration = Duration::from_secs(50);

/// The contents of a key before or after a call: nothing, or a number with or without an expiry.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    value: Option<String>,
    expires: bool,
}

/// The effects of a call. Each side makes permit ids of its own, so only the number of permits with each end counts.
#[derive(Debug, PartialEq)]
struct Done {
    answer: String,
    record: Record,
    permits: Vec<(Ends, usize)>,
    permits_expire: bool,
    messages: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    Over,
    /// Within a [`LEASE`] from now.
    WithLease,
    /// As set before the call.
    Later,
    Never,
}

struct Bench {
    raw: RawRedis,
    client: Client,
    java: (JavaSemaphore, JavaPermits, JavaLatch),
    version: String,
    _server: Server,
}

impl Bench {
    async fn of(version: String) -> Self {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        let raw = RawRedis::of(&server);
        let java = (java.semaphore(NAME), java.permits(NAME), java.latch(NAME));
        Self { raw, client, java, version, _server: server }
    }

    /// Makes the record anew, with these taken permits, each a score and an id.
    fn prepare(&self, before: &Record, taken: &[(&str, &str)]) {
        let raw = &self.raw;
        raw.run::<()>(&["FLUSHALL"]);
        if let Some(value) = &before.value {
            raw.run::<()>(&["SET", NAME, value]);
        }
        for (score, id) in taken {
            raw.run::<()>(&["ZADD", TIMEOUTS, score, id]);
        }
        if before.expires {
            raw.run::<()>(&["PEXPIRE", NAME, "60000"]);
        }
        raw.messages();
    }

    fn done(&self, answer: impl fmt::Display) -> Done {
        let raw = &self.raw;
        let (seconds, _): (f64, f64) = raw.run(&["TIME"]);
        let mut permits: Vec<(Ends, usize)> = Vec::new();
        let taken: Vec<(Vec<u8>, f64)> = raw.run(&["ZRANGE", TIMEOUTS, "0", "-1", "WITHSCORES"]);
        for (_, score) in taken {
            let left = score / 1000.0 - seconds;
            let ends = match left {
                ..0.0 => Ends::Over,
                ..=51.0 => Ends::WithLease,
                ..1e10 => Ends::Later,
                _ => {
                    assert_eq!(score, 922_337_203_685_477.0);
                    Ends::Never
                }
            };
            match permits.last_mut() {
                Some((last, count)) if *last == ends => *count += 1,
                _ => permits.push((ends, 1)),
            }
        }
        let record = Record { value: raw.run(&["GET", NAME]), expires: raw.ttl(NAME) >= 0 };
        Done {
            answer: answer.to_string(),
            record,
            permits,
            permits_expire: raw.ttl(TIMEOUTS) >= 0,
            messages: raw.messages(),
        }
    }
}

/// No record, and each of these numbers without and with an expiry.
fn records(values: &[&str]) -> Vec<Record> {
    let mut records = vec![Record { value: None, expires: false }];
    for value in values {
        for expires in [false, true] {
            records.push(Record { value: Some((*value).to_owned()), expires });
        }
    }
    records
}

#[tokio::test]
async fn semaphores_match_java() {
    for version in versions() {
        let bench = Bench::of(version).await;
        let (java, ours) = (&bench.java.0, bench.client.semaphore(NAME));
        let mut methods = vec!["acquire", "acquire 3", "release", "release 2", "set", "drain", "available"];
        // Earlier versions publish nothing when permits are added.
        if since(&bench.version, 3, 16) {
            methods.extend(["add 2", "add -4"]);
        }
        if since(&bench.version, 3, 29) {
            methods.push("set for");
        }
        if since(&bench.version, 4, 0) {
            methods.push("release if exists");
        }
        for before in records(&["3", "0", "-2"]) {
            for method in &methods {
                // Versions 3.12 to 3.14 throw a ClassCastException of their own here.
                let throws = since(&bench.version, 3, 12) && !since(&bench.version, 3, 15);
                if *method == "drain" && before.value.is_none() && throws {
                    continue;
                }
                bench.prepare(&before, &[]);
                let javas = match *method {
                    "acquire" => java.try_acquire(1).await.unwrap().to_string(),
                    "acquire 3" => java.try_acquire(3).await.unwrap().to_string(),
                    "release" => format!("{:?}", java.release(1).await.unwrap()),
                    "release 2" => format!("{:?}", java.release(2).await.unwrap()),
                    "release if exists" => java.release_if_exists(2).await.unwrap().to_string(),
                    "set" => java.try_set_permits(5).await.unwrap().to_string(),
                    "set for" => java.try_set_permits_for(5, LEASE).await.unwrap().to_string(),
                    "drain" => java.drain_permits().await.unwrap().to_string(),
                    "available" => java.available_permits().await.unwrap().to_string(),
                    "add 2" => format!("{:?}", java.add_permits(2).await.unwrap()),
                    _ => format!("{:?}", java.add_permits(-4).await.unwrap()),
                };
                let javas = bench.done(javas);
                bench.prepare(&before, &[]);
                let take = async |permits| {
                    let taken = ours.try_acquire_many(permits).await.unwrap();
                    taken.map(|permit| permit.forget()).is_some().to_string()
                };
                let answer = match *method {
                    "acquire" => take(1).await,
                    "acquire 3" => take(3).await,
                    "release" => format!("{:?}", ours.release(1).await.unwrap()),
                    "release 2" => format!("{:?}", ours.release(2).await.unwrap()),
                    "release if exists" => ours.release_if_exists(2).await.unwrap().to_string(),
                    "set" => ours.try_set_permits(5).await.unwrap().to_string(),
                    "set for" => ours.try_set_permits_for(5, LEASE).await.unwrap().to_string(),
                    "drain" => ours.drain_permits().await.unwrap().to_string(),
                    "available" => ours.available_permits().await.unwrap().to_string(),
                    "add 2" => format!("{:?}", ours.add_permits(2).await.map(drop).unwrap()),
                    _ => format!("{:?}", ours.add_permits(-4).await.map(drop).unwrap()),
                };
                let ours = bench.done(answer);
                assert_eq!(ours, javas, "{}: {method} on {before:?}: ours, and Java's", bench.version);
            }
        }
    }
}

/// Permits that are taken before a call, each a score and an id.
const OVER: (&str, &str) = ("1000", "an id, long over");
const LATER: (&str, &str) = ("4000000000000", "an id for a time");
const NEVER: (&str, &str) = ("922337203685477", "an id for ever..");

#[tokio::test]
async fn expirable_permits_match_java() {
    for version in versions() {
        let bench = Bench::of(version).await;
        let (java, ours) = (&bench.java.1, bench.client.expirable_semaphore(NAME));
        let (endless, leased) = (ours.without_lease(), ours.with_lease(LEASE));
        let mut methods = vec!["acquire", "acquire for", "acquire, release", "set", "available"];
        if since(&bench.version, 3, 10) {
            methods.extend(["add 2", "add -4"]);
        }
        if since(&bench.version, 3, 19) {
            methods.extend(["all", "taken", "set all 5", "set all 1", "set all 0"]);
        }
        if since(&bench.version, 3, 23) {
            methods.push("acquire 2");
        }
        let mut records = records(&["3", "0"]);
        // Before 3.12 the permits never expired, whatever the expiry of their semaphore.
        records.retain(|record| !record.expires || since(&bench.version, 3, 12));
        for before in records {
            for taken in [&[][..], &[OVER, LATER, NEVER], &[OVER, ("1001", "another, as old."), LATER]] {
                for method in &methods {
                    // The acquire would wait.
                    let free = before.value.as_deref().map_or(0, |value| value.parse::<i64>().unwrap());
                    let over = taken.iter().filter(|taken| taken.0.len() < 6).count() as i64;
                    if (*method == "acquire 2" && free + over.min(2) < 2)
                        || (*method == "acquire, release" && free + over.min(1) < 1)
                    {
                        continue;
                    }
                    bench.prepare(&before, taken);
                    let javas = match *method {
                        "acquire" => java.try_acquire().await.unwrap().is_some().to_string(),
                        "acquire for" => java
                            .try_acquire_within_for(Duration::ZERO, LEASE)
                            .await
                            .unwrap()
                            .is_some()
                            .to_string(),
                        "acquire 2" => java.acquire_many_for(2, LEASE).await.unwrap().len().to_string(),
                        "acquire, release" => {
                            let id = java.acquire().await.unwrap();
                            format!("{:?}", java.release(&id).await.unwrap())
                        }
                        "set" => java.try_set_permits(5).await.unwrap().to_string(),
                        "available" => java.available_permits().await.unwrap().to_string(),
                        "all" => java.permits().await.unwrap().to_string(),
                        "taken" => java.acquired_permits().await.unwrap().to_string(),
                        "set all 5" => format!("{:?}", java.set_permits(5).await.unwrap()),
                        "set all 1" => format!("{:?}", java.set_permits(1).await.unwrap()),
                        "set all 0" => format!("{:?}", java.set_permits(0).await.unwrap()),
                        "add 2" => format!("{:?}", java.add_permits(2).await.unwrap()),
                        _ => format!("{:?}", java.add_permits(-4).await.unwrap()),
                    };
                    let javas = bench.done(javas);
                    bench.prepare(&before, taken);
                    let answer = match *method {
                        "acquire" => {
                            endless.try_acquire().await.unwrap().map(|p| p.forget()).is_some().to_string()
                        }
                        "acquire for" => {
                            leased.try_acquire().await.unwrap().map(|p| p.forget()).is_some().to_string()
                        }
                        "acquire 2" => {
                            let permit = leased.acquire_many(2).await.unwrap();
                            let ids = permit.ids().len().to_string();
                            permit.forget();
                            ids
                        }
                        "acquire, release" => {
                            let permit = endless.acquire().await.unwrap();
                            format!("{:?}", permit.release().await.unwrap())
                        }
                        "set" => ours.try_set_permits(5).await.unwrap().to_string(),
                        "available" => ours.available_permits().await.unwrap().to_string(),
                        "all" => ours.permits().await.unwrap().to_string(),
                        "taken" => ours.acquired_permits().await.unwrap().to_string(),
                        "set all 5" => format!("{:?}", ours.set_permits(5).await.map(drop).unwrap()),
                        "set all 1" => format!("{:?}", ours.set_permits(1).await.map(drop).unwrap()),
                        "set all 0" => format!("{:?}", ours.set_permits(0).await.map(drop).unwrap()),
                        "add 2" => format!("{:?}", ours.add_permits(2).await.map(drop).unwrap()),
                        _ => format!("{:?}", ours.add_permits(-4).await.map(drop).unwrap()),
                    };
                    let ours = bench.done(answer);
                    assert_eq!(
                        ours, javas,
                        "{}: {method} on {before:?}, {taken:?}: ours, and Java's",
                        bench.version
                    );
                }
            }
        }
    }
}

/// The calls that name one permit, which another process may have taken.
#[tokio::test]
async fn calls_with_a_permit_id_match_java() {
    const UNKNOWN: (&str, &str) = ("", "an unknown id...");
    for version in versions() {
        let bench = Bench::of(version).await;
        let (java, ours) = (&bench.java.1, bench.client.expirable_semaphore(NAME));
        let mut calls = Vec::new();
        for permit in [OVER, LATER, NEVER, UNKNOWN] {
            // Earlier versions report the release of an expired permit as a success.
            if permit != OVER || since(&bench.version, 3, 17) {
                calls.push(("release", permit));
            }
            if since(&bench.version, 3, 10) {
                calls.push(("update", permit));
            }
            if since(&bench.version, 3, 41) {
                calls.push(("lease", permit));
            }
        }
        let mut records = records(&["3", "0"]);
        records.retain(|record| !record.expires || since(&bench.version, 3, 12));
        for before in records {
            for &(call, (score, id)) in &calls {
                let taken = [OVER, ("1001", "another, as old."), LATER, NEVER];
                let hex: String = id.bytes().map(|byte| format!("{byte:02x}")).collect();
                // Before 3.17 an id is the text itself.
                let javas_id = if since(&bench.version, 3, 17) { &*hex } else { id };
                bench.prepare(&before, &taken);
                let javas = match call {
                    "release" => java.try_release(javas_id).await.unwrap().to_string(),
                    "update" => java.update_lease_time(javas_id, LEASE).await.unwrap().to_string(),
                    _ => match java.lease_time(javas_id).await.result {
                        Err(_) => "none".to_owned(),
                        Ok(-1) => "never".to_owned(),
                        Ok(left) => (left > 0).to_string(),
                    },
                };
                let javas = bench.done(javas);
                bench.prepare(&before, &taken);
                let answer = match call {
                    "release" => ours.release(&hex).await.unwrap().to_string(),
                    "update" => ours.update_lease(&hex, LEASE).await.unwrap().to_string(),
                    _ => match ours.remaining_lease(&hex).await.unwrap() {
                        None => "none".to_owned(),
                        Some(Duration::MAX) => "never".to_owned(),
                        Some(left) => (left > Duration::ZERO).to_string(),
                    },
                };
                let ours = bench.done(answer);
                let (version, of) = (&bench.version, (score, id));
                assert_eq!(ours, javas, "{version}: {call} {of:?} on {before:?}: ours, and Java's");
            }
        }
    }
}

#[tokio::test]
async fn latches_match_java() {
    // At the same time, because the waits for a closed latch take long.
    join_all(versions().into_iter().map(latches_match)).await;
}

async fn latches_match(version: String) {
    let bench = Bench::of(version).await;
    let (java, ours) = (&bench.java.2, bench.client.count_down_latch(NAME));
    for before in records(&["3", "1", "0", "-2"]) {
        for method in ["set", "set 0", "count down", "count", "delete", "await"] {
            bench.prepare(&before, &[]);
            // The wait for an open latch ends at once. The other one is long enough for a reply, even if this machine stalls for a
            // moment: without a reply, our wait fails.
            let closed = ["3", "1"].map(Some).contains(&before.value.as_deref());
            let wait = Duration::from_secs(if closed { 1 } else { 10 });
            let javas = match method {
                "set" => java.try_set_count(5).await.unwrap().to_string(),
                "set 0" => java.try_set_count(0).await.unwrap().to_string(),
                "count down" => format!("{:?}", java.count_down().await.unwrap()),
                "count" => java.count().await.unwrap().to_string(),
                "await" => java.await_within(wait).await.unwrap().to_string(),
                _ => java.delete().await.unwrap().to_string(),
            };
            let javas = bench.done(javas);
            bench.prepare(&before, &[]);
            let answer = match method {
                "set" => ours.try_set_count(5).await.unwrap().to_string(),
                "set 0" => ours.try_set_count(0).await.unwrap().to_string(),
                "count down" => format!("{:?}", ours.count_down().await.unwrap()),
                "count" => ours.count().await.unwrap().to_string(),
                "await" => ours.wait_for(wait).await.unwrap().to_string(),
                _ => ours.delete().await.unwrap().to_string(),
            };
            let mut ours = bench.done(answer);
            if method == "delete" && before.value.is_some() {
                // Java's delete publishes that something changed, and its own waiters sleep on.
                assert_eq!(ours.messages[0].1, "0");
                ours.messages[0].1 = "1".to_owned();
            }
            if method == "count" && before.value.as_deref() == Some("-2") {
                // Ours returns how many counts are left.
                assert_eq!(ours.answer, "0");
                ours.answer = "-2".to_owned();
            }
            assert_eq!(ours, javas, "{}: {method} on {before:?}: ours, and Java's", bench.version);
        }
    }
}
