//! The cost of records with very many fields or with impossible counts, measured by the server's own CPU accounting and not by
//! the wall clock.

use std::time::Duration;

use redisson_lock::{Client, Error, ReadWriteLock};

use crate::support::Server;

/// At 200,000 fields a reply with all of them takes the server well over 20 ms.
const FIELDS: u32 = 200_000;
const BOUND_US: u64 = 5000;
/// Long enough for the server to answer, even if this machine stalls for a moment.
const WAIT: Duration = Duration::from_millis(300);

/// Fills the hash `n` for one minute, with `first` as its first field.
fn fill(server: &Server, first: [&str; 2]) {
    let fill = "redis.call('hset', KEYS[1], ARGV[1], ARGV[2]) \
                for i = 1, ARGV[3] do redis.call('hset', KEYS[1], 'owner-' .. i, '1') end \
                redis.call('pexpire', KEYS[1], 60000)";
    let mut command = redis::cmd("EVAL");
    command.arg(fill).arg(1).arg("n").arg(&first).arg(FIELDS).exec(&mut server.cli()).unwrap();
}

/// The time in us that the server spends on the call: the least of three runs, because other processes of the machine add to it.
async fn server_time_us<F: Future<Output = Result<(), Error>>>(server: &Server, call: impl Fn() -> F) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..3 {
        server.commandstats_reset();
        call().await.unwrap();
        least = least.min(server.busy_us());
    }
    least
}

macro_rules! assert_cheap {
    ($server:expr, $what:expr, $call:expr) => {
        let us = server_time_us(&$server, || async { $call.await.map(drop) }).await;
        assert!(us < BOUND_US, "{} took the server {us} us", $what);
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_very_many_fields_makes_no_call_expensive() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    fill(&server, ["owner-0", "1"]);
    for (kind, lock) in
        [("lock", client.lock("n")), ("fair", client.fair_lock("n")), ("fenced", client.fenced_lock("n"))]
    {
        assert_cheap!(server, format!("{kind}: try_lock"), lock.try_lock());
        assert_cheap!(server, format!("{kind}: holder"), lock.holder());
        assert_cheap!(server, format!("{kind}: is_locked"), lock.is_locked());
        // Includes some holder probes.
        assert_cheap!(server, format!("{kind}: try_lock_for"), lock.try_lock_for(WAIT));
        let holder = lock.holder().await.unwrap().expect("the record names holders");
        assert!(holder.owner().starts_with("owner-"), "{holder:?}");
        assert_eq!(holder.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_write_record_with_very_many_fields_makes_no_call_expensive() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    fill(&server, ["mode", "read"]);
    let lock = client.read_write_lock("n");
    assert_cheap!(server, "write: try_lock", lock.write().try_lock());
    assert_cheap!(server, "write: try_lock_for", lock.write().try_lock_for(WAIT));
    assert_cheap!(server, "write: holder", lock.write().holder());
    assert_cheap!(server, "read: is_locked", lock.read().is_locked());
    async fn read(lock: &ReadWriteLock) -> Result<(), Error> {
        lock.read().lock().await?.unlock().await
    }
    assert_cheap!(server, "read: lock and unlock", read(&lock));
    assert!(lock.read().is_locked().await.unwrap());
    assert!(!lock.write().is_locked().await.unwrap());
    let left: i64 = redis::cmd("PTTL").arg("n").query(&mut server.cli()).unwrap();
    assert!(left > 30_000, "a leaving reader shortened the TTL of the others: {left}");
}

/// A reader's count is the number of its timeout keys, each of which expires with one hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_huge_count_makes_no_release_expensive() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock("n");
    for count in ["3000000", "1e6", "-1", "nan", "much"] {
        let mut cli = server.cli();
        redis::cmd("FLUSHALL").exec(&mut cli).unwrap();
        let guard = lock.read().lock().await.unwrap();
        redis::cmd("HSET").arg("n").arg(&["first", count, "second", "1000000"]).exec(&mut cli).unwrap();
        server.commandstats_reset();
        guard.unlock().await.unwrap();
        let reads = server.calls("pttl");
        assert!(reads < 3000, "{count}: {reads} keys were read");
        let owners: Vec<String> = redis::cmd("HKEYS").arg("n").query(&mut cli).unwrap();
        assert_eq!(owners, ["mode", "first", "second"], "{count}");
        let left: i64 = redis::cmd("PTTL").arg("n").query(&mut cli).unwrap();
        assert!((1..=30_000).contains(&left), "{count}: {left}");
    }
}
