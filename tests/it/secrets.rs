//! No public type shows a credential in its Debug output, and no error that a wrong one leads to.

use crate::support::canary::debugs_no_canary;
use crate::support::{CANARY, Server, shows_no_canary};
use redisson_lock::{Client, Credentials, Owner, RedissonConfig, Tls};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn no_public_type_shows_a_credential() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    debugs_no_canary(&Credentials::new(CANARY, CANARY));
    debugs_no_canary(&Credentials::password(CANARY));
    debugs_no_canary(&Tls::new().identity(CANARY, CANARY).certificate_authorities(CANARY));
    let builder = Client::builder()
        .credentials(|| Credentials::password(CANARY))
        .sentinel_credentials(|| Credentials::new("app", CANARY));
    debugs_no_canary(&builder);
    for file in [
        format!("singleServerConfig: {{address: 'redis://{}', password: {CANARY}}}", server.address()),
        format!("singleServerConfig: {{address: 'redis://app:{CANARY}@{}'}}", server.address()),
        format!(
            "sentinelServersConfig: {{sentinelAddresses: ['redis://{CANARY}@a:1'], masterName: m, \
             password: {CANARY}, sentinelPassword: {CANARY}}}"
        ),
    ] {
        debugs_no_canary(&RedissonConfig::parse(&file).unwrap());
    }

    let client = builder.connect(server.url()).await.unwrap();
    debugs_no_canary(&client);
    let lock = client.lock("n");
    debugs_no_canary(&lock);
    debugs_no_canary(&lock.with_owner(&Owner::unique()));
    let guard = lock.lock().await.unwrap();
    debugs_no_canary(&guard);
    debugs_no_canary(&*guard);
    guard.unlock().await.unwrap();
    debugs_no_canary(&client.read_write_lock("n"));
    debugs_no_canary(&client.semaphore("n"));
    debugs_no_canary(&client.expirable_semaphore("n"));
    debugs_no_canary(&client.count_down_latch("n"));
    debugs_no_canary(&client.map_entry("map", b"n"));
    client.close().await;
}

/// Neither the one that was given nor the one that would have been right.
#[tokio::test]
async fn no_error_of_a_connection_shows_a_credential() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let wrong = format!("{CANARY}-but-wrong");
    let at = server.address();
    for url in [
        format!("redis://:{wrong}@{at}"),
        format!("redis://default:{wrong}@{at}/3"),
        format!("redis://{at}/3"),
        format!("redis-cluster://:{wrong}@{at}"),
        format!("redis-cluster://:{CANARY}@{at}"),
        format!("redis-sentinel://:{CANARY}@{at}/0#orders"),
        format!("redis-replicated://:{wrong}@{at}/0"),
        format!("rediss://:{CANARY}@127.0.0.1:1"),
        format!("redis+unix:///nowhere?pass={CANARY}"),
        format!("redis://:{CANARY}@{at}/x"),
        format!("nowhere://:{CANARY}@{at}"),
    ] {
        let builder = Client::builder().connect_timeout(Duration::from_millis(1500));
        shows_no_canary(&builder.connect(&url).await.unwrap_err());
    }
}

/// A password of another sort would leak unseen.
#[test]
fn the_suite_has_no_password_but_the_canary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "rs") && !path.ends_with("secrets.rs"));
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        for (n, line) in text.lines().enumerate() {
            let after = |mark: &'static str| line.split(mark).skip(1);
            let begins = |rest: &&str| rest.starts_with(|sign: char| sign.is_ascii_alphabetic());
            // In an ACL rule, in a URL, and as a server's setting.
            let rules = after("\">").chain(after(" >")).filter(begins);
            let urls =
                after("app:").chain(after("://:")).filter_map(|rest| rest.split_once('@')).map(|it| it.0);
            let all = rules.chain(urls.filter(begins)).chain(after("requirepass\", "));
            if all.into_iter().any(|password| !password.to_ascii_lowercase().contains("canary")) {
                wrong.push(format!("{}:{}: {line}", path.display(), n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
