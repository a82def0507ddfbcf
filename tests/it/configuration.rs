//! Redisson's configuration files, as each version of Redisson writes them.

use crate::support::cluster::Cluster;
use crate::support::group::Group;
use crate::support::java::JavaClient;
use crate::support::kind::versions_for_all_kinds;
use crate::support::topology::{MasterDiscovery, Topology};
use crate::support::{Java, Server};
use redisson_lock::{Client, Credentials, Error, RedissonConfig};
use std::sync::Arc;
use std::time::Duration;

const WATCHDOG: u64 = 12_345;

#[tokio::test]
async fn a_redisson_file_leads_to_the_same_locks() {
    let server = Server::with_args(&["--requirepass", "s/canary-in-a-coal-mine@:1"]);
    for version in versions_for_all_kinds() {
        let settings = ["password=s/canary-in-a-coal-mine@:1", "timeout=4321"];
        let java = Java::get(&version).client_with(&server, WATCHDOG, &settings).await.unwrap();
        assert_same_locks(&java, &version).await;
    }
}

#[tokio::test]
async fn a_redisson_file_of_each_topology_leads_to_the_same_locks() {
    let (group, cluster) = (Arc::new(Group::start(3)), Cluster::start(3, 1));
    let ways = [MasterDiscovery::Sentinels, MasterDiscovery::Replicated, MasterDiscovery::MasterSlave];
    let mut topologies: Vec<_> = ways.map(|way| Topology::Group(group.clone(), way)).into();
    topologies.push(Topology::Cluster(cluster));
    for version in versions_for_all_kinds() {
        for topology in &topologies {
            let java = Java::get(&version).client_at(&topology.for_java(), WATCHDOG).await;
            assert_same_locks(&java, &format!("{version}, {}", topology.for_java())).await;
        }
    }
}

async fn assert_same_locks(java: &JavaClient, what: &str) {
    let config = RedissonConfig::parse(&java.configuration().await).unwrap();
    let unknown: Vec<_> = config.warnings().iter().filter(|it| it.ends_with("unknown")).collect();
    assert!(unknown.is_empty(), "{what}: {unknown:?}");
    assert_excludes_java(&config.connect().await.unwrap(), java, what, WATCHDOG).await;
}

/// The sentinels have a password of their own, or the master's password if the caller shares it.
#[tokio::test]
async fn files_with_sentinel_passwords_or_replicated_servers_connect() {
    let group = Group::start(1);
    let acl = |server: &Server, rules: &[&str]| {
        redis::cmd("ACL").arg("SETUSER").arg(rules).exec(&mut server.cli()).unwrap();
    };
    for server in [&group.master, &group.replica] {
        acl(server, &["app", "on", ">s/canary-in-a-coal-mine@:1", "+@all", "~*", "&*"]);
    }
    let client = Client::connect(group.master.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let sentinel = &group.sentinels[0];
    acl(sentinel, &["app", "on", ">s/canary-in-a-coal-mine@:1", "+@all", "~*", "&*"]);
    acl(sentinel, &["default", "resetpass", ">canary-in-a-coal-mine-other"]);
    let of = |own: &str| {
        format!(
            "sentinelServersConfig:\n  sentinelAddresses: ['redis://{}']\n  masterName: orders\n  username: app\n  \
             password: s/canary-in-a-coal-mine@:1\n{own}",
            sentinel.address()
        )
    };
    let replicated = format!(
        "replicatedServersConfig:\n  nodeAddresses: ['redis://{}', 'redis://{}']\n  username: app\n  password: s/canary-in-a-coal-mine@:1\n",
        group.replica.address(),
        group.master.address()
    );
    for (file, shared) in [
        (of("  sentinelPassword: canary-in-a-coal-mine-other\n"), false),
        (of("  sentinelUsername: app\n"), true),
        (of(""), true),
        (replicated, false),
    ] {
        let config = RedissonConfig::parse(&file).unwrap();
        let config = if shared { config.share_credentials_with_sentinels() } else { config };
        let client = config.connect().await.unwrap();
        assert!(client.lock("n").try_lock().await.unwrap().is_none(), "{file}");
    }
    let given =
        RedissonConfig::parse(&of("").replace("s/canary-in-a-coal-mine@:1", "canary-in-a-coal-mine-wrong"))
            .unwrap();
    let given = given.credentials(|| Credentials::new("app", "s/canary-in-a-coal-mine@:1"));
    let given = given.share_credentials_with_sentinels().connect().await.unwrap();
    assert!(given.lock("n").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

/// Redisson's mapper leaves a name alone that begins with the prefix. For other classes the client always adds the prefix.
#[tokio::test]
async fn a_name_mapper_with_a_prefix_is_applied() {
    let server = Server::start();
    let keys = || {
        let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
        keys.sort();
        keys
    };
    for (class, expected) in [
        ("org.redisson.config.PrefixNameMapper", ["app:n", "app:o"]),
        ("com.example.Prefix", ["app:app:o", "app:n"]),
    ] {
        let file = format!(
            "singleServerConfig:\n  address: '{}'\nnameMapper: !<{class}>\n  prefix: 'app:'\n",
            server.url()
        );
        let client = RedissonConfig::parse(&file).unwrap().connect().await.unwrap();
        let held = (client.lock("n").lock().await.unwrap(), client.lock("app:o").lock().await.unwrap());
        assert_eq!(keys(), expected, "{class}");
        held.0.unlock().await.unwrap();
        held.1.unlock().await.unwrap();
    }
}

/// Java's address classes decode the user information in the same way.
#[tokio::test]
async fn an_address_may_contain_encoded_credentials() {
    let server = Server::with_args(&["--requirepass", "s/canary-in-a-coal-mine c+@1"]);
    let file = |userinfo: &str| {
        format!("singleServerConfig: {{address: 'redis://{userinfo}@{}'}}", server.address())
    };
    for userinfo in [
        "s%2Fcanary-in-a-coal-mine+c%2B%401",
        ":s%2Fcanary-in-a-coal-mine%20c%2B%401",
        "default:s%2Fcanary-in-a-coal-mine+c%2B%401",
    ] {
        RedissonConfig::parse(&file(userinfo)).unwrap().connect().await.unwrap();
    }
    let wrong = RedissonConfig::parse(&file("s%2Fcanary-in-a-coal-mine+c+%401")).unwrap().connect().await;
    assert_eq!(wrong.unwrap_err().code(), Some("WRONGPASS"));
}

/// An unknown mode must not be weaker than the default.
#[test]
fn a_weak_verification_mode_warns_and_an_unknown_one_fails() {
    let file = |mode: &str| {
        let file = format!("singleServerConfig: {{address: 'rediss://h:1', sslVerificationMode: {mode}}}");
        RedissonConfig::parse(&file)
    };
    assert!(file("STRICT").unwrap().warnings().is_empty());
    for weaker in ["CA_ONLY", "NONE"] {
        let warnings = file(weaker).unwrap().warnings().concat();
        assert!(warnings.contains("sslVerificationMode"), "{weaker}: {warnings}");
    }
    for unknown in ["strict", "FULL", "STRICTT", "''"] {
        let error = file(unknown).unwrap_err();
        assert!(matches!(&error, Error::Misuse { .. }), "{unknown}: {error:?}");
        assert!(error.to_string().contains("STRICT, CA_ONLY or NONE"), "{unknown}: {error}");
    }
}

#[test]
fn the_aliases_of_a_file_are_counted_before_expansion() {
    let file = (1..=5).fold("l0: &l0 [x]\n".to_owned(), |text, level| {
        text + &format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 9].join(","))
    });
    let error = RedissonConfig::parse(&file).unwrap_err();
    assert!(matches!(&error, Error::Misuse { message, .. } if message.contains("values")), "{error}");
    let long = RedissonConfig::parse(&"#".repeat((1 << 20) + 1)).unwrap_err();
    assert!(matches!(&long, Error::Misuse { message, .. } if message.contains("1048576 bytes")), "{long}");
}

async fn assert_excludes_java(client: &Client, java: &JavaClient, what: &str, watchdog: u64) {
    let lock = client.lock("n");
    let guard = lock.lock().await.unwrap();
    let left = lock.remaining_lease().await.unwrap().expect("it is held");
    let whole = Duration::from_millis(watchdog);
    assert!(left <= whole && left > whole / 2, "{what}: {left:?}");
    let thread = java.thread("t");
    assert!(!thread.try_lock("plain", "n").await.unwrap(), "{what}");
    guard.unlock().await.unwrap();
    assert!(thread.try_lock("plain", "n").await.unwrap(), "{what}");
    thread.unlock("plain", "n").await.unwrap();
}
