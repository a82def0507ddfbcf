//! Redisson's own configuration files, as each version writes them.

use crate::support::cluster::Cluster;
use crate::support::java::JavaClient;
use crate::support::kind::of_kinds;
use crate::support::{Java, Server};
use redisson_lock::{Client, RedissonConfig};
use std::time::Duration;

#[tokio::test]
async fn a_file_that_redisson_wrote_leads_to_the_same_locks() {
    const WATCHDOG: u64 = 12_345;
    let server = Server::with_args(&["--requirepass", "s/ecret@:1"]);
    for version in of_kinds() {
        let settings = ["password=s/ecret@:1", "timeout=4321"];
        let java = Java::get(&version).client_with(&server, WATCHDOG, &settings).await.unwrap();
        let config = RedissonConfig::parse(&java.configuration().await).unwrap();
        let unknown: Vec<_> = config.warnings().iter().filter(|it| it.ends_with("unknown")).collect();
        assert!(unknown.is_empty(), "{version}: {unknown:?}");
        excludes(&config.connect().await.unwrap(), &java, &version, WATCHDOG).await;
    }
}

#[tokio::test]
async fn also_one_of_a_cluster() {
    let cluster = Cluster::start(3, 0);
    let version = of_kinds().pop().expect("there is one");
    let java = Java::get(&version).client_in(&cluster.for_java(), &[]).await;
    let config = RedissonConfig::parse(&java.configuration().await).unwrap();
    excludes(&config.connect().await.unwrap(), &java, &version, 30_000).await;
}

async fn excludes(client: &Client, java: &JavaClient, version: &str, watchdog: u64) {
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    let left = lock.remaining_lease().await.unwrap().expect("it is held");
    let whole = Duration::from_millis(watchdog);
    assert!(left <= whole && left > whole / 2, "{version}: {left:?}");
    let thread = java.thread("t");
    assert!(!thread.try_lock("plain", "n").await.unwrap(), "{version}");
    guard.unlock().await.unwrap();
    assert!(thread.try_lock("plain", "n").await.unwrap(), "{version}");
    thread.unlock("plain", "n").await.unwrap();
}
