//! Servers that lie, forge or leak, on purpose or not.
//!
//! Such a server receives no password but its own, cannot choose a master alone, and cannot forge log lines or error messages.

use crate::support::canary::{CapturedLog, SENTINEL_CANARY, assert_no_canary_in_debug};
use crate::support::hostile::{array, node, range, unknown};
use crate::support::{CANARY, HostileServer, Server, assert_no_canary, eventually};
use redisson_lock::{Client, ClientBuilder, Credentials, Error, Phase, RedissonConfig, Servers, Tls};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const TIMEOUT: Duration = Duration::from_millis(1500);
/// A host name that ends the log line and colours the rest red, to forge a line that the library never wrote.
const FORGED: &str = "10.0.0.1\n WARN forged: \u{1b}[31mred";

fn builder() -> ClientBuilder {
    Client::builder().response_timeout(TIMEOUT).connect_timeout(TIMEOUT)
}

/// Checks that the text is on one line and has no terminal escapes.
#[track_caller]
fn assert_plain(text: &str) {
    assert!(!text.contains(['\u{1b}', '\u{7}', '\n']), "{text:?}");
}

#[tokio::test]
async fn a_sentinel_that_asks_for_a_password_does_not_get_the_masters() {
    let sentinel = HostileServer::asking_for_passwords().await;
    let url = format!("redis-sentinel://app:{CANARY}@{}/0#orders", sentinel.address());
    let error = builder().connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert_no_canary(&error);
    // A sentinel that has received its own password does not get the master's either.
    let own = builder().sentinel_credentials(|| Credentials::password(SENTINEL_CANARY));
    assert_no_canary_in_debug(&own);
    let error = own.connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert_no_canary(&error);
    let requests = sentinel.heard();
    assert!(requests.iter().any(|request| request.contains(SENTINEL_CANARY)), "{requests:?}");
    assert!(requests.iter().all(|request| !request.contains(CANARY)), "{requests:?}");

    // The user asks for it explicitly.
    let error = builder().share_credentials_with_sentinels().connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert_no_canary(&error);
    assert!(sentinel.heard().iter().any(|request| request.contains(CANARY)));
}

/// Redisson itself sends the master's password in both cases.
#[tokio::test]
async fn a_redisson_file_sends_the_masters_password_to_sentinels_only_on_request() {
    let sentinel = HostileServer::asking_for_passwords().await;
    let config = |own: &str| {
        let file = format!(
            "sentinelServersConfig:\n  sentinelAddresses: ['redis://{}']\n  masterName: orders\n  username: app\n  \
             password: {CANARY}\n  timeout: 1500\n{own}",
            sentinel.address()
        );
        let config = RedissonConfig::parse(&file).unwrap();
        assert_no_canary_in_debug(&config);
        config
    };
    let error = config("").connect().await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    for remedy in ["sentinelPassword", "share_credentials_with_sentinels"] {
        assert!(error.to_string().contains(remedy), "{error}");
    }
    assert_no_canary(&error);
    for own in ["  sentinelUsername: watcher\n", "  sentinelUsername: watcher\n  sentinelPassword: ''\n"] {
        let error = config(own).connect().await.unwrap_err();
        for remedy in ["sentinelUsername", "sentinelPassword", "share_credentials_with_sentinels"] {
            assert!(matches!(&error, Error::Misuse { message, .. } if message.contains(remedy)), "{error:?}");
        }
        assert_no_canary(&error);
    }
    let heard = || sentinel.heard().join("\n");
    assert!(!heard().contains(CANARY), "{}", heard());

    // The file's own password for sentinels takes precedence over the request.
    let own = format!("  sentinelPassword: {SENTINEL_CANARY}\n");
    let error = config(&own).share_credentials_with_sentinels().connect().await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert_no_canary(&error);
    assert!(heard().contains(&format!("AUTH {SENTINEL_CANARY}")), "{}", heard());
    assert!(!heard().contains(CANARY), "{}", heard());

    for (own, sent) in [("", "AUTH app "), ("  sentinelUsername: watcher\n", "AUTH watcher ")] {
        let error = config(own).share_credentials_with_sentinels().connect().await.unwrap_err();
        assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
        assert_no_canary(&error);
        assert!(heard().contains(&format!("{sent}{CANARY}")), "{}", heard());
    }
}

/// An attacker between the client and a plain sentinel could choose the name that the master's certificate must match.
#[tokio::test]
async fn plain_sentinels_of_a_master_with_tls_are_refused_before_anything_is_sent() {
    let sentinel = HostileServer::asking_for_passwords().await;
    let plain = || [format!("redis://{}", sentinel.address())];
    let master = format!("rediss://app:{CANARY}@master");
    let refused = async |builder: ClientBuilder, what: &str| {
        let error =
            builder.connect_with(Servers::sentinels(plain(), "orders", master.as_str())).await.unwrap_err();
        assert!(matches!(&error, Error::Misuse { message, .. } if message.contains(what)), "{error:?}");
        assert_no_canary(&error);
    };
    refused(builder(), "Tls::server_name").await;
    refused(builder().tls(Tls::new()), "Tls::server_name").await;
    let named = || builder().tls(Tls::new().server_name("redis.example.org"));
    refused(named().share_credentials_with_sentinels(), "share_credentials_with_sentinels").await;
    assert_eq!(sentinel.connections(), 0);

    // With a server name that the user has set, the sentinel decides nothing.
    let error =
        named().connect_with(Servers::sentinels(plain(), "orders", master.as_str())).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
    assert_no_canary(&error);
    assert!(sentinel.heard().iter().all(|request| !request.contains(CANARY)));
}

/// The master of such a client proves no name, so whoever speaks for a plain sentinel could name a server with any certificate that
/// the client accepts. A server name does not help.
#[tokio::test]
async fn plain_sentinels_of_a_master_with_an_unverified_name_are_refused() {
    let sentinel = HostileServer::asking_for_passwords().await;
    let master = format!("rediss://app:{CANARY}@master");
    let refused = async |tls: Option<Tls>, master: &str| {
        let builder = tls.into_iter().fold(builder(), ClientBuilder::tls);
        let plain = [format!("redis://{}", sentinel.address())];
        let error = builder.connect_with(Servers::sentinels(plain, "orders", master)).await.unwrap_err();
        assert!(
            matches!(&error, Error::Misuse { message, .. } if message.contains("use rediss:// for the sentinels") && !message.contains("server_name")),
            "{error:?}"
        );
        assert_no_canary(&error);
    };
    for tls in [Tls::new().danger_accept_any_server_name(), Tls::new().danger_accept_any_certificate()] {
        refused(Some(tls.clone()), &master).await;
        refused(Some(tls.server_name("redis.example.org")), &master).await;
    }
    // The same in an address of the redis crate.
    refused(None, &format!("{master}/#insecure")).await;
    assert_eq!(sentinel.connections(), 0);
}

#[tokio::test]
async fn one_sentinel_does_not_choose_the_master_against_the_others() {
    let server = Server::start();
    let false_master = HostileServer::start(node).await;
    let liar = HostileServer::sentinel("127.0.0.1", false_master.port(), 99).await;
    let honest = [
        HostileServer::sentinel("127.0.0.1", server.port(), 1).await,
        HostileServer::sentinel("127.0.0.1", server.port(), 1).await,
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

    // Without a majority, no master is chosen.
    let url = format!("redis-sentinel://{},{}/0#orders", liar.address(), honest[0].address());
    let error = builder().connect(url).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { reason, .. } if reason.contains("do not agree")),
        "{error:?}"
    );
    assert_eq!(false_master.connections(), 0);
}

/// Redis repeats the arguments of an unknown command, and the arguments of `AUTH` and `HELLO` include a password.
#[tokio::test]
async fn a_server_that_echoes_unknown_commands_exposes_no_password() {
    let without_auth = HostileServer::start(unknown).await;
    let url = format!("redis://app:{CANARY}@{}", without_auth.address());
    let error = builder().connect(url).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert_no_canary(&error);

    // Sharded messages need RESP3, and so `HELLO`.
    let log = CapturedLog::capture();
    let without_hello = HostileServer::cluster(|port| array(&[range(0, 16383, "127.0.0.1", port)])).await;
    let url = format!("redis-cluster://app:{CANARY}@{}", without_hello.address());
    let client = builder().connect(url).await.unwrap();
    eventually(|| log.text().contains("could not connect for subscriptions")).await;
    client.close().await;
    let text = log.text();
    assert!(text.contains("unknown command"), "{text}");
    assert!(!text.contains(CANARY), "{text}");
}

#[tokio::test]
async fn a_server_that_echoes_every_request_is_refused_at_connect() {
    let echo = HostileServer::start(|words| {
        let words: Vec<_> = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        array(&words)
    })
    .await;
    let error = builder().connect(format!("redis://{}", echo.address())).await.unwrap_err();
    assert!(matches!(error, Error::Refused { phase: Phase::Connect, .. }), "{error:?}");
    assert_eq!(error.code(), Some("PROTOCOL"));
    assert!(error.to_string().contains("check that the address is that of a Redis server"), "{error}");
    assert!(!echo.heard().iter().any(|heard| heard.contains("EVAL")), "{:?}", echo.heard());
}

#[tokio::test]
async fn a_closed_port_refuses_the_connection() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = builder().connect(format!("redis://{address}")).await.unwrap_err();
    let Error::Unavailable { source: Some(source), .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn server_text_is_escaped_in_errors_and_logs() {
    let log = CapturedLog::capture();
    let forging = |words: &[String]| match words[0].as_str() {
        "EVALSHA" => format!("-ERR {FORGED}\r\n"),
        _ => node(words),
    };
    let server = HostileServer::start(forging).await;
    let error = builder().connect(format!("redis://{}", server.address())).await.unwrap_err();
    assert!(error.to_string().contains("red"), "{error}");
    assert_plain(&error.to_string());

    // The version that the server reports is escaped, too.
    let old = HostileServer::start(|_| "$26\r\nredis_version:4.0.\u{1b}[31mred\r\n".into()).await;
    let error = builder().connect(format!("redis://{}", old.address())).await.unwrap_err();
    assert!(error.to_string().contains("too old"), "{error}");
    assert_plain(&error.to_string());
    log.text().lines().for_each(assert_plain);
}

#[tokio::test]
async fn an_invalid_host_is_never_connected_to() {
    let log = CapturedLog::capture();
    let refused = |outcome: Result<Client, Error>| {
        let error = outcome.unwrap_err();
        assert!(error.to_string().contains("not understood"), "{error}");
        assert_plain(&error.to_string());
    };
    let cluster = HostileServer::cluster(|port| array(&[range(0, 16383, FORGED, port)])).await;
    refused(builder().connect(format!("redis-cluster://{}", cluster.address())).await);

    let sentinel = HostileServer::sentinel(FORGED, 6379, 1).await;
    refused(builder().connect(format!("redis-sentinel://{}/0#orders", sentinel.address())).await);

    // Only a space ends the address of a redirect.
    for code in ["MOVED", "ASK"] {
        let moving = HostileServer::start(move |words| match words[0].as_str() {
            "EVALSHA" => format!("-{code} 1 10.0.0.1\u{1b}[31mred:6379\r\n"),
            _ => node(words),
        })
        .await;
        let error = builder().connect(format!("redis://{}", moving.address())).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{error:?}");
        assert_plain(&error.to_string());
    }
    log.text().lines().for_each(assert_plain);
    assert!(!log.text().contains("\n WARN forged"), "{}", log.text());
}

#[tokio::test]
async fn an_oversized_cluster_layout_is_refused_without_connecting() {
    let announced = HostileServer::start(node).await;
    let port = announced.port();
    // Each slot has a separate master.
    let masters = move |_| {
        let range = |slot: u16| range(slot, slot, &format!("127.1.{}.{}", slot / 250, slot % 250), port);
        array(&(0..5_000).map(range).collect::<Vec<_>>())
    };
    // Each slot occurs thousands of times.
    let ranges = move |_| array(&vec![range(0, 16383, "127.0.0.1", port); 5_000]);
    let backwards = move |_| array(&[range(5, 4, "127.0.0.1", port)]);
    for (cluster, what) in [
        (HostileServer::cluster(masters).await, "more than the 1000"),
        (HostileServer::cluster(ranges).await, "more than the 16384"),
        (HostileServer::cluster(backwards).await, "not understood"),
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

/// A client of a cluster whose only node, which is `hostile`, has every slot.
async fn client_of(hostile: &HostileServer, response_timeout: Duration) -> Client {
    let url = format!("redis-cluster://:{CANARY}@{}", hostile.address());
    // One attempt to connect to each node is enough: nothing listens at most of the nodes that a test names.
    let builder = builder().reconnect_backoff(Duration::from_secs(60), Duration::from_secs(60));
    builder.response_timeout(response_timeout).connect(url).await.unwrap()
}

/// How long a request may follow redirects.
const REDIRECTED: Duration = Duration::from_millis(500);
/// The slot of the key `n`.
const SLOT: u16 = 3432;

/// The masters of a cluster, each of which redirects every request for a key `n..` to the address that `redirect` makes of the
/// master's own port and the ports of all.
async fn redirecting(
    masters: u16,
    redirect: impl Fn(u16, &[u16]) -> String + Clone + Send + Sync + 'static,
) -> Vec<HostileServer> {
    let ports = Arc::<Mutex<Vec<u16>>>::default();
    let mut started = Vec::new();
    for _ in 0..masters {
        let (redirect, all) = (redirect.clone(), ports.clone());
        let answer = move |port: u16, words: &[String]| match words[0].as_str() {
            "CLUSTER" => {
                let slots = 16384 / masters;
                let first = (0..masters).map(|n| n * slots);
                let ports = all.lock().unwrap();
                let ranges = first.zip(&*ports).map(|(n, port)| range(n, n + slots - 1, "127.0.0.1", *port));
                array(&ranges.collect::<Vec<_>>())
            }
            "ASKING" => "+OK\r\n".into(),
            _ if words.iter().any(|word| word.starts_with('n')) => {
                format!("-{}\r\n", redirect(port, &all.lock().unwrap()))
            }
            _ => node(words),
        };
        let server = HostileServer::start_knowing_its_port(answer).await;
        ports.lock().unwrap().push(server.port());
        started.push(server);
    }
    started
}

#[tokio::test]
async fn redirects_in_a_circle_end_in_an_error_after_a_few_requests() {
    for code in ["MOVED", "ASK"] {
        // A node that redirects to itself, and two that redirect to each other.
        for masters in [1, 2] {
            let to_next = move |own: u16, all: &[u16]| {
                let next = all.iter().cycle().skip_while(|port| **port != own).nth(1).unwrap();
                format!("{code} {SLOT} 127.0.0.1:{next}")
            };
            let circle = redirecting(masters, to_next).await;
            let client = client_of(&circle[0], REDIRECTED).await;
            let error = client.lock("n").try_lock().await.unwrap_err();
            // The last redirect, or the end of the time for the whole call, whichever the client sees first.
            let is_typed = matches!(&error, Error::TimedOut { .. }) || error.code() == Some("MOVED");
            assert!(is_typed, "{error:?}");
            assert_no_canary(&error);
            client.close().await;
            for node in circle {
                let heard = node.heard();
                let requests = heard.iter().filter(|request| request.split(' ').any(|word| word == "n"));
                let requests = requests.count();
                // The waits between them grow up to 100 ms.
                assert!((1..=60).contains(&requests), "{code}: {requests} requests within {REDIRECTED:?}");
            }
        }
    }
}

/// A call that follows a second redirect may have too little time left for the reply. Then the redirect is the reason.
#[tokio::test]
async fn a_redirect_outlasts_an_unanswered_last_send() {
    // A node that redirects two requests to itself, and is silent from the third one on.
    let requests = Arc::new(AtomicU16::new(0));
    let heard = requests.clone();
    let server = HostileServer::start_knowing_its_port(move |port, words| {
        let names_lock = words.iter().any(|word| word == "n");
        if names_lock {
            heard.fetch_add(1, Ordering::SeqCst);
        }
        match (heard.load(Ordering::SeqCst), words[0].as_str()) {
            (3.., _) => String::new(),
            (_, "CLUSTER") => array(&[range(0, 16383, "127.0.0.1", port)]),
            _ if names_lock => format!("-MOVED {SLOT} 127.0.0.1:{port}\r\n"),
            _ => node(words),
        }
    })
    .await;
    // Both redirects arrive in time, even if this machine stalls for a moment.
    let client = client_of(&server, REDIRECTED * 3).await;
    let error = client.lock("n").is_locked().await.unwrap_err();
    assert_eq!(error.code(), Some("MOVED"), "{error:?}");
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn nodes_that_import_slots_by_redirects_are_bounded() {
    // Each node that is found wakes all waiting calls, so few wait at a time.
    const WAVE: usize = 25;
    let log = CapturedLog::capture();
    let announced = HostileServer::start(node).await;
    let port = announced.port();
    let (named, is_full) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, full) = (named.clone(), is_full.clone());
    // Nothing listens at the first addresses.
    let hostile = redirecting(1, move |_, _| match full.load(Ordering::SeqCst) {
        true => format!("ASK {SLOT} 127.0.0.1:{port}"),
        false => {
            let n = count.fetch_add(1, Ordering::SeqCst);
            format!("ASK {SLOT} 127.2.{}.{}:1", n / 250, n % 250)
        }
    })
    .await;
    let client = client_of(&hostile[0], Duration::from_secs(30)).await;
    let (mut names, mut known, mut is_bounded) = (0.., 0, false);
    let (mut tried, mut read) = (HashSet::new(), 0);
    while !is_bounded {
        assert!(known < 1100, "the nodes are not bounded");
        // Each call follows one redirect, and then waits for the node.
        let mut calls = JoinSet::new();
        for n in names.by_ref().take(WAVE) {
            let lock = client.lock(format!("n{n}"));
            calls.spawn(async move { lock.try_lock().await.map(drop) });
        }
        known += WAVE;
        while tried.len() < known && !is_bounded {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let text = log.text();
            let nodes = text[read..].split("could not connect node=\"127.2.").skip(1);
            tried.extend(nodes.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
            is_bounded = text[read..].contains("more than 1000 masters");
            read = text.len();
        }
        calls.shutdown().await;
    }
    is_full.store(true, Ordering::SeqCst);
    let error = client.lock("n").try_lock_for(REDIRECTED).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error:?}");
    assert_no_canary(&error);
    assert_eq!(announced.connections(), 0);
    client.close().await;
    assert!(!log.text().contains(CANARY));
}
