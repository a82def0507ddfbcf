//! Servers that lie, forge or leak, on purpose or not: they learn no password that is not theirs, choose no master by
//! themselves, and write nothing of their own into logs and errors.

use crate::support::canary::Log;
use crate::support::hostile::{array, node, range, unknown};
use crate::support::{CANARY, Hostile, Server, eventually, shows_no_canary};
use redisson_lock::{Client, ClientBuilder, Credentials, Error, Tls};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1500);
/// Ends the line and turns what follows red: a log line that the library never wrote.
const FORGED: &str = "10.0.0.1\n WARN forged: \u{1b}[31mred";

fn builder() -> ClientBuilder {
    Client::builder().response_timeout(TIMEOUT).connect_timeout(TIMEOUT)
}

/// On one line, and without escapes of a terminal.
#[track_caller]
fn is_plain(text: &str) {
    assert!(!text.contains(['\u{1b}', '\u{7}', '\n']), "{text:?}");
}

#[tokio::test]
async fn a_sentinel_that_asks_for_a_password_does_not_get_the_masters() {
    let sentinel = Hostile::asking_for_passwords().await;
    let url = format!("redis-sentinel://app:{CANARY}@{}/0#orders", sentinel.address());
    let error = builder().connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    shows_no_canary(&error);
    // Nor one that has had its own.
    let own = builder().sentinel_credentials(|| Credentials::password("its own")).connect(&url).await;
    assert_eq!(own.unwrap_err().code(), Some("NOAUTH"));
    let heard = sentinel.heard();
    assert!(heard.iter().any(|request| request.contains("its own")), "{heard:?}");
    assert!(heard.iter().all(|request| !request.contains(CANARY)), "{heard:?}");

    // Its user wants it to.
    let shared = builder().share_credentials_with_sentinels().connect(&url).await;
    assert_eq!(shared.unwrap_err().code(), Some("NOAUTH"));
    assert!(sentinel.heard().iter().any(|request| request.contains(CANARY)));
}

/// Whoever is between the client and a plain sentinel would choose the name that the master's certificate is for.
#[tokio::test]
async fn plain_sentinels_of_a_master_with_tls_are_refused_before_anything_is_sent() {
    let sentinel = Hostile::asking_for_passwords().await;
    let plain = || [format!("redis://{}", sentinel.address())];
    let master = format!("rediss://app:{CANARY}@master");
    let refused = async |builder: ClientBuilder, what: &str| {
        let error = builder.connect_by_sentinels(plain(), "orders", master.as_str()).await.unwrap_err();
        assert!(matches!(&error, Error::Misuse { message } if message.contains(what)), "{error:?}");
        shows_no_canary(&error);
    };
    refused(builder(), "Tls::server_name").await;
    refused(builder().tls(Tls::new()), "Tls::server_name").await;
    let named = || builder().tls(Tls::new().server_name("redis.example.org"));
    refused(named().share_credentials_with_sentinels(), "share_credentials_with_sentinels").await;
    assert_eq!(sentinel.connections(), 0);

    // By a name of the user's own choice the sentinel decides nothing.
    let error = named().connect_by_sentinels(plain(), "orders", master.as_str()).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert!(sentinel.heard().iter().all(|request| !request.contains(CANARY)));
}

#[tokio::test]
async fn one_sentinel_does_not_choose_the_master_against_the_others() {
    let server = Server::start();
    let false_master = Hostile::start(node).await;
    let liar = Hostile::sentinel("127.0.0.1", false_master.port(), 99).await;
    let honest = [
        Hostile::sentinel("127.0.0.1", server.port(), 1).await,
        Hostile::sentinel("127.0.0.1", server.port(), 1).await,
    ];
    let url = format!(
        "redis-sentinel://{},{},{}/0#orders",
        liar.address(),
        honest[0].address(),
        honest[1].address()
    );
    let client = builder().connect(url).await.unwrap();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(false_master.connections(), 0);

    // Where as many say this as that, nobody knows.
    let url = format!("redis-sentinel://{},{}/0#orders", liar.address(), honest[0].address());
    let error = builder().connect(url).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { reason, .. } if reason.contains("do not agree")),
        "{error:?}"
    );
    assert_eq!(false_master.connections(), 0);
}

/// Redis repeats the arguments of a command that it does not know, and a password is one of those of `AUTH` and `HELLO`.
#[tokio::test]
async fn a_server_that_repeats_what_it_does_not_know_repeats_no_password() {
    let without_auth = Hostile::start(unknown).await;
    let url = format!("redis://app:{CANARY}@{}", without_auth.address());
    let error = builder().connect(url).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    shows_no_canary(&error);

    // Sharded messages need RESP3, and so `HELLO`.
    let log = Log::capture();
    let without_hello = Hostile::cluster(|port| array(&[range(0, 16383, "127.0.0.1", port)])).await;
    let url = format!("redis-cluster://app:{CANARY}@{}", without_hello.address());
    let client = builder().connect(url).await.unwrap();
    eventually(|| log.text().contains("could not connect for subscriptions")).await;
    client.close().await;
    let text = log.text();
    assert!(text.contains("unknown command"), "{text}");
    assert!(!text.contains(CANARY), "{text}");
}

#[tokio::test]
async fn what_a_server_says_is_escaped_in_errors_and_logs() {
    let log = Log::capture();
    let forging = |words: &[String]| match words[0].as_str() {
        "EVALSHA" => format!("-ERR {FORGED}\r\n"),
        _ => node(words),
    };
    let server = Hostile::start(forging).await;
    let error = builder().connect(format!("redis://{}", server.address())).await.unwrap_err();
    assert!(error.to_string().contains("red"), "{error}");
    is_plain(&error.to_string());

    // And what it says of itself.
    let old = Hostile::start(|_| "$26\r\nredis_version:4.0.\u{1b}[31mred\r\n".into()).await;
    let error = builder().connect(format!("redis://{}", old.address())).await.unwrap_err();
    assert!(error.to_string().contains("too old"), "{error}");
    is_plain(&error.to_string());
    log.text().lines().for_each(is_plain);
}

#[tokio::test]
async fn a_host_that_is_no_host_is_not_connected_to() {
    let log = Log::capture();
    let refused = |outcome: Result<Client, Error>| {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("not understood"), "{error}");
        is_plain(&error.to_string());
    };
    let cluster = Hostile::cluster(|port| array(&[range(0, 16383, FORGED, port)])).await;
    refused(builder().connect(format!("redis-cluster://{}", cluster.address())).await);

    let sentinel = Hostile::sentinel(FORGED, 6379, 1).await;
    refused(builder().connect(format!("redis-sentinel://{}/0#orders", sentinel.address())).await);

    // Nothing ends the word but a space.
    for code in ["MOVED", "ASK"] {
        let moving = Hostile::start(move |words| match words[0].as_str() {
            "EVALSHA" => format!("-{code} 1 10.0.0.1\u{1b}[31mred:6379\r\n"),
            _ => node(words),
        })
        .await;
        let error = builder().connect(format!("redis://{}", moving.address())).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{error:?}");
        is_plain(&error.to_string());
    }
    log.text().lines().for_each(is_plain);
    assert!(!log.text().contains("\n WARN forged"), "{}", log.text());
}

#[tokio::test]
async fn a_layout_beyond_all_bounds_is_refused_and_nobody_is_connected_to() {
    let announced = Hostile::start(node).await;
    let port = announced.port();
    // A master of its own for each slot.
    let masters = move |_| {
        let range = |slot: u16| range(slot, slot, &format!("127.1.{}.{}", slot / 250, slot % 250), port);
        array(&(0..5_000).map(range).collect::<Vec<_>>())
    };
    // Each slot thousands of times.
    let ranges = move |_| array(&vec![range(0, 16383, "127.0.0.1", port); 5_000]);
    let backwards = move |_| array(&[range(5, 4, "127.0.0.1", port)]);
    for (cluster, what) in [
        (Hostile::cluster(masters).await, "more than the 1000"),
        (Hostile::cluster(ranges).await, "more than the 16384"),
        (Hostile::cluster(backwards).await, "not understood"),
    ] {
        let url = format!("redis-cluster://:{CANARY}@{}", cluster.address());
        let error = builder().connect(url).await.unwrap_err();
        assert!(
            matches!(&error, Error::Unavailable { reason, .. } if reason.contains(what)),
            "{what}: {error:?}"
        );
    }
    assert_eq!(announced.connections(), 0);
}
