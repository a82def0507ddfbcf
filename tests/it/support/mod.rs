//! What the tests run against: real servers, and real Redissons.

// Not every method has a user at all times.
#![allow(dead_code)]

pub mod canary;
pub mod clock;
pub mod cluster;
pub mod contender;
pub mod crossing;
pub mod group;
pub mod hostile;
pub mod java;
pub mod keyspace;
pub mod kind;
pub mod log;
pub mod messages;
pub mod monitor;
pub mod peer;
pub mod product;
pub mod proxy;
pub mod random;
pub mod record;
pub mod scripts;
pub mod server;
pub mod stopwatch;
pub mod topology;
pub mod wire;
pub mod worker;

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

pub use canary::{CANARY, shows_no_canary};
pub use hostile::Hostile;
pub use java::Java;
pub use log::Log;
pub use messages::Messages;
pub use monitor::Monitor;
pub use proxy::Proxy;
pub use server::Server;
pub use stopwatch::Stopwatch;
pub use wire::{Faulty, Wire};
pub use worker::program;

/// The versions of Redisson to test against.
pub fn versions() -> Vec<String> {
    setting("REDISSON_LOCK_VERSIONS").split(',').map(str::to_owned).collect()
}

/// Whether `version` is `major.minor` or later.
pub fn since(version: &str, major: u32, minor: u32) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().expect("a version is numbers"));
    (parts.next(), parts.next()) >= (Some(major), Some(minor))
}

/// The setting with which that Redisson counts a silent waiter of a fair lock as gone after `wanted`, and after what time
/// it does. It is a setting from 3.46 on; from 3.13 on the time is 300 s, and before that 5 s.
pub fn fair_allowance(version: &str, wanted: Duration) -> (Option<String>, Duration) {
    if since(version, 3, 46) {
        return (Some(format!("fairLockWaitTimeout={}", wanted.as_millis())), wanted);
    }
    (None, Duration::from_secs(if since(version, 3, 13) { 300 } else { 5 }))
}

/// A setting of `cargo xtask test`. Without it a test fails rather than pass untried.
pub fn setting(name: &str) -> String {
    if let Some(test) = test_without(name) {
        panic!(
            "xtask/src/needs.rs does not find in the sources that {test} needs {name}, so `cargo xtask test` does not \
             set that up when it runs the test alone: name the setting, or call what names it, in a way that is found"
        );
    }
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with `cargo xtask test`"))
}

/// The test of this thread, if it is not one that needs `name` according to its sources. Every test has a server, and the Java
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

/// Waits until `condition` holds: for what has no event of its own to wait for, such as a server's view of us.
pub async fn eventually(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "what was waited for never came");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// How many connections subscribe to `channel`.
pub fn subscribers(server: &Server, channel: &str) -> u64 {
    let (_, count): (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query(&mut server.cli()).expect("NUMSUB");
    count
}

/// The median of nanoseconds, which are sorted by this.
pub fn median(nanoseconds: &mut [u64]) -> Duration {
    nanoseconds.sort_unstable();
    Duration::from_nanos(nanoseconds[nanoseconds.len() / 2])
}
