//! The servers, peers and tools of the tests.

// Not every method has a caller at all times.
#![allow(dead_code)]

pub mod any_lock;
pub mod authority;
pub mod browser;
pub mod canary;
pub mod clock;
pub mod cluster;
pub mod drop_point;
pub mod group;
pub mod hostile;
pub mod java;
pub mod keyspace;
pub mod kind;
pub mod log;
pub mod messages;
pub mod monitor;
pub mod peer;
pub mod postgres;
pub mod product;
pub mod prometheus;
pub mod proxy;
pub mod random;
pub mod raw;
pub mod record;
pub mod scripts;
pub mod server;
pub mod spans;
pub mod stopwatch;
pub mod tally;
pub mod topology;
pub mod wake_ups;
pub mod worker;

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

pub use canary::{CANARY, assert_no_canary};
pub use hostile::HostileServer;
pub use java::Java;
pub use log::WarningLog;
pub use messages::Messages;
pub use monitor::Monitor;
pub use proxy::Proxy;
pub use raw::{FaultyClient, RawRedis};
pub use server::Server;
pub use stopwatch::Stopwatch;
pub use wake_ups::{WOKEN, WakeUps};
pub use worker::program;

/// A wait for a lock that stays busy. A call that gets no reply during its wait fails, so a wait that must end as busy lasts longer
/// than a stall of the machine.
pub const BUSY_WAIT: Duration = Duration::from_secs(2);

/// The versions of Redisson to test against.
pub fn versions() -> Vec<String> {
    setting("REDISSON_LOCK_VERSIONS").split(',').map(str::to_owned).collect()
}

/// Whether `version` is `major.minor` or later.
pub fn since(version: &str, major: u32, minor: u32) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().expect("a version is numbers"));
    (parts.next(), parts.next()) >= (Some(major), Some(minor))
}

/// The setting that has this Redisson drop a silent waiter of a fair lock after `wanted`, and the time after which it
/// does. The setting exists since 3.46. From 3.13 on the time is 300 s, and before that 5 s.
pub fn fair_allowance(version: &str, wanted: Duration) -> (Option<String>, Duration) {
    if since(version, 3, 46) {
        return (Some(format!("fairLockWaitTimeout={}", wanted.as_millis())), wanted);
    }
    (None, Duration::from_secs(if since(version, 3, 13) { 300 } else { 5 }))
}

/// A setting of `cargo xtask test`. Without it a test fails, rather than pass untried.
pub fn setting(name: &str) -> String {
    if let Some(test) = test_without(name) {
        panic!(
            "xtask/src/needs.rs does not find in the sources that {test} needs {name}, so `cargo xtask test` does not \
             set that up when it runs the test alone: name the setting, or call a function that names it, where it is found"
        );
    }
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with `cargo xtask test`"))
}

/// The test of this thread, if its sources do not show that it needs `name`. Every test has the server, and the Java
/// programs come with their versions.
fn test_without(name: &str) -> Option<String> {
    let thread = thread::current();
    let needs = fs::read_to_string(env::var_os("REDISSON_LOCK_NEEDS")?).ok()?;
    let test = thread.name()?;
    let of_test = needs.lines().find_map(|line| line.strip_prefix(test)?.strip_prefix(' '))?;
    let found = ["REDISSON_LOCK_SERVER", "REDISSON_LOCK_PEERS"].contains(&name)
        || of_test.split(' ').any(|need| need == name);
    (!found).then(|| test.to_owned())
}

/// Waits until `condition` holds. For conditions without an event of their own, such as a server's view of its clients.
pub async fn eventually(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "the condition never held");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The number of connections that subscribe to `channel`.
pub fn subscribers(server: &Server, channel: &str) -> u64 {
    let (_, count): (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(&mut server.cli()).expect("NUMSUB");
    count
}
