//! The cost of records with very many fields or with impossible counts. The server measures it, and it is compared with the cost of a
//! script that reads such a record as a whole, so neither the speed of the machine nor its load decides.

use std::time::Duration;

use redisson_lock::{Client, Error, ReadWriteLock};

use crate::support::Server;

const FIELDS: u32 = 200_000;
/// A call is cheap if it takes the server less than this part of the time in which a script reads the record. To send all of it in one
/// reply takes about a third.
const CHEAP: u64 = 20;
/// Long enough for the server to answer, even if this machine stalls for a moment.
const WAIT: Duration = Duration::from_millis(300);

/// A server whose hash `n` has very many fields for one minute.
struct Filled {
    server: Server,
    /// The time in us to read them all.
    whole_us: u64,
}

impl Filled {
    /// `first` is the first field.
    async fn start(first: [&str; 2]) -> Self {
        let server = Server::start();
        let fill = "redis.call('hset', KEYS[1], ARGV[1], ARGV[2]) \
                    for i = 1, ARGV[3] do redis.call('hset', KEYS[1], 'owner-' .. i, '1') end \
                    redis.call('pexpire', KEYS[1], 60000)";
        let mut command = redis::cmd("EVAL");
        command.arg(fill).arg(1).arg("n").arg(&first).arg(FIELDS).exec(&mut server.cli()).unwrap();
        let mut read = redis::cmd("EVAL");
        read.arg("return #redis.call('hgetall', KEYS[1])").arg(1).arg("n");
        let whole_us = server_time_us(&server, async || read.exec(&mut server.cli()).unwrap()).await;
        Self { server, whole_us }
    }
}

/// The time in us that the server spends on the call: the least of three runs, because other processes of the machine add to it.
async fn server_time_us(server: &Server, call: impl AsyncFn()) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..3 {
        server.commandstats_reset();
        call().await;
        least = least.min(server.busy_us());
    }
    least
}

macro_rules! assert_cheap {
    ($filled:expr, $what:expr, $call:expr) => {
        let us = server_time_us(&$filled.server, async || _ = $call.await.unwrap()).await;
        let whole = $filled.whole_us;
        assert!(us < whole / CHEAP, "{} took the server {us} us, and the whole record {whole} us", $what);
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_very_many_fields_makes_no_call_expensive() {
    let filled = Filled::start(["owner-0", "1"]).await;
    let client = Client::connect(filled.server.url()).await.unwrap();
    for (kind, lock) in
        [("lock", client.lock("n")), ("fair", client.fair_lock("n")), ("fenced", client.fenced_lock("n"))]
    {
        assert_cheap!(filled, format!("{kind}: try_lock"), lock.try_lock());
        assert_cheap!(filled, format!("{kind}: holder"), lock.holder());
        assert_cheap!(filled, format!("{kind}: is_locked"), lock.is_locked());
        // Includes some holder probes.
        assert_cheap!(filled, format!("{kind}: try_lock_for"), lock.try_lock_for(WAIT));
        let holder = lock.holder().await.unwrap().expect("the record names holders");
        assert!(holder.owner().starts_with("owner-"), "{holder:?}");
        assert_eq!(holder.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_write_record_with_very_many_fields_makes_no_call_expensive() {
    let filled = Filled::start(["mode", "read"]).await;
    let client = Client::connect(filled.server.url()).await.unwrap();
    let lock = client.read_write_lock("n");
    assert_cheap!(filled, "write: try_lock", lock.write().try_lock());
    assert_cheap!(filled, "write: try_lock_for", lock.write().try_lock_for(WAIT));
    assert_cheap!(filled, "write: holder", lock.write().holder());
    assert_cheap!(filled, "read: is_locked", lock.read().is_locked());
    async fn read(server: &Server, lock: &ReadWriteLock, lease: Duration) -> Result<(), Error> {
        let guard = lock.read().with_lease(lease).lock().await?;
        redis::cmd("PEXPIRE").arg("n").arg(60_000).exec(&mut server.cli()).unwrap();
        guard.unlock().await
    }
    assert_cheap!(filled, "read: lock and unlock", read(&filled.server, &lock, Duration::from_secs(30)));
    // The hold outlasts the record, so its release would have to read all other timeouts.
    let longest = Duration::from_secs(6000);
    assert_cheap!(filled, "read: lock and unlock the longest hold", read(&filled.server, &lock, longest));
    assert!(lock.read().is_locked().await.unwrap());
    assert!(!lock.write().is_locked().await.unwrap());
    let left: i64 = redis::cmd("PTTL").arg("n").query(&mut filled.server.cli()).unwrap();
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
