//! `Client::examine`: what each server permits, and how it is set up. The tests of `doctor` in `cli/tests` cover the rest.

use crate::support::Server;
use crate::support::cluster::Cluster;
use redisson_lock::{Client, Error, blocking};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn each_master_of_a_cluster_is_examined() {
    let mut cluster = Cluster::start(3, 0);
    let client = Client::connect(cluster.url()).await.unwrap();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("default").arg("-zadd").exec(&mut cluster.masters[1].cli()).unwrap();
    let reports = client.examine().await.unwrap();
    let nodes: BTreeSet<_> = reports.iter().map(|report| report.node.clone()).collect();
    assert_eq!(nodes, cluster.masters.iter().map(Server::address).collect());
    for report in &reports {
        let lacks: Vec<_> = report.refused.keys().map(String::as_str).collect();
        let expected = if report.node == cluster.masters[1].address() { vec!["zadd"] } else { vec![] };
        assert_eq!(lacks, expected, "{report:?}");
        assert_eq!(report.info["redis_mode"], "cluster");
        assert_eq!(report.info["redis_version"], cluster.masters[0].version());
        assert_eq!(report.settings["save"], "");
        assert_eq!(report.restricted, None);
        let clock = report.clock.unwrap();
        assert!(
            clock.since_epoch > Duration::from_secs(1_700_000_000)
                && clock.round_trip < Duration::from_secs(9)
        );
    }
    assert_eq!(cluster.keys(), Vec::<String>::new());

    // Messages are sharded, so each master has its own subscriptions.
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("default")
        .arg("+@all")
        .arg("-ssubscribe")
        .exec(&mut cluster.masters[1].cli())
        .unwrap();
    for report in client.examine().await.unwrap() {
        let lacks: Vec<_> = report.refused.keys().map(String::as_str).collect();
        let expected = if report.node == cluster.masters[1].address() { vec!["ssubscribe"] } else { vec![] };
        assert_eq!(lacks, expected, "{report:?}");
    }
    cluster.masters[2].kill();
    assert!(client.examine().await.unwrap_err().is_unavailable());
}

#[test]
fn a_thread_examines_a_server_whose_user_may_do_little() {
    let server = Server::start();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER").arg("app").arg("on").arg(">canary-in-a-coal-mine").arg("~n").arg("&*").arg("+eval");
    user.arg("+evalsha").arg("+ping").exec(&mut server.cli()).unwrap();
    let url = format!("redis://app:canary-in-a-coal-mine@{}", server.address());
    let client = blocking::Client::connect(url).unwrap();
    let reports = client.examine().unwrap();
    let report = &reports[0];
    assert_eq!((&report.info, &report.settings), (&BTreeMap::new(), &BTreeMap::new()));
    assert!(report.clock.is_none());
    for command in ["set", "hset", "zadd", "publish", "role", "wait", "incr", "time"] {
        // The key can be written only if it can be deleted.
        assert_eq!(report.refused.contains_key(command), command != "incr", "{command}: {report:?}");
    }
    user = redis::cmd("ACL");
    user.arg("SETUSER").arg("app").arg("+@all").exec(&mut server.cli()).unwrap();
    let report = &client.examine().unwrap()[0];
    assert!(report.refused.is_empty() && report.restricted.is_some(), "{report:?}");
    user = redis::cmd("ACL");
    user.arg("SETUSER").arg("app").arg("-eval").arg("-evalsha").exec(&mut server.cli()).unwrap();
    assert!(matches!(client.examine(), Err(Error::Refused { .. })));
}
