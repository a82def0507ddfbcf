//! No public type shows a credential in its Debug output, and no error of a connection shows one.

use crate::support::canary::{SENTINEL_CANARY, assert_no_canary_in_debug};
use crate::support::{CANARY, Server, assert_no_canary};
use redisson_lock::{Client, Credentials, Owner, RedissonConfig, Tls};
use std::fs;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn no_public_type_shows_a_credential() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    assert_no_canary_in_debug(&Credentials::new(CANARY, CANARY));
    assert_no_canary_in_debug(&Credentials::password(CANARY));
    assert_no_canary_in_debug(&Tls::new().identity(CANARY, CANARY).certificate_authorities(CANARY));
    let builder = Client::builder()
        .credentials(|| Credentials::password(CANARY))
        .sentinel_credentials(|| Credentials::new("app", CANARY));
    assert_no_canary_in_debug(&builder);
    for file in [
        format!("singleServerConfig: {{address: 'redis://{}', password: {CANARY}}}", server.address()),
        format!("singleServerConfig: {{address: 'redis://app:{CANARY}@{}'}}", server.address()),
        format!(
            "sentinelServersConfig: {{sentinelAddresses: ['redis://{CANARY}@a:1'], masterName: m, \
             password: {CANARY}, sentinelPassword: {CANARY}}}"
        ),
        // Java takes everything behind the scheme for the path.
        format!("singleServerConfig: {{address: 'redis+uds:///run/redis.sock?user={CANARY}&pass={CANARY}'}}"),
    ] {
        assert_no_canary_in_debug(&RedissonConfig::parse(&file).unwrap());
    }

    let client = builder.connect(server.url()).await.unwrap();
    assert_no_canary_in_debug(&client);
    let lock = client.lock("n");
    assert_no_canary_in_debug(&lock);
    assert_no_canary_in_debug(&lock.with_owner(&Owner::unique()));
    let guard = lock.lock().await.unwrap();
    assert_no_canary_in_debug(&guard);
    assert_no_canary_in_debug(&guard.status());
    guard.unlock().await.unwrap();
    assert_no_canary_in_debug(&client.read_write_lock("n"));
    assert_no_canary_in_debug(&client.semaphore("n"));
    assert_no_canary_in_debug(&client.expirable_semaphore("n"));
    assert_no_canary_in_debug(&client.count_down_latch("n"));
    assert_no_canary_in_debug(&client.map_entry("map", b"n"));
    client.close().await;
}

/// Neither the credential that was given, nor the right one.
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
        assert_no_canary(&builder.connect(&url).await.unwrap_err());
    }
}

/// Any other password could leak unseen.
#[test]
fn canaries_are_the_only_passwords_of_the_suite() {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|path| path.extension().is_some_and(|it| it == "rs") && !path.ends_with("secrets.rs"));
    assert!(files.iter().any(|path| path.ends_with("support/group.rs")), "{files:?}");
    // The text of a canary, or the name of its constant.
    let is_canary = |password: &str| {
        [CANARY, SENTINEL_CANARY, "{CANARY", "SENTINEL_CANARY"].iter().any(|it| password.contains(it))
            || password.starts_with("CANARY")
    };
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
            // The last argument. What a callback reads from a cell was put there by `Password::new`.
            let given =
                after("Credentials::password(").chain(after("Credentials::new(")).filter_map(last_argument);
            let given = given.filter(|password| !password.starts_with('*'));
            let all = rules.chain(urls.filter(begins)).chain(after("requirepass\", "));
            let all = all.chain(given).chain(after("Password::new("));
            if all.into_iter().any(|password| !is_canary(password)) {
                wrong.push(format!("{}:{}: {line}", path.display(), n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The last argument of a call on one line, of which `rest` follows the opening parenthesis.
fn last_argument(rest: &str) -> Option<&str> {
    rest.split_once(')')?.0.rsplit(", ").next()
}
