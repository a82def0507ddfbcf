//! Connections over TLS. Locks work over them, and an error about missing trust between the two sides names the remedy.

use crate::support::authority::Authority;
use crate::support::cluster::add_slots;
use crate::support::{HostileServer, Java, Server, Stopwatch, eventually, subscribers, versions};
use rcgen::date_time_ymd;
use redisson_lock::redis::ConnectionAddr;
use redisson_lock::{Client, Error, HoldState, Owner, Servers, Tls};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1500);
const CHANNEL: &str = "redisson_lock__channel:{n}";
const WAIT: Duration = Duration::from_secs(10);

async fn connect(url: &str, tls: Tls) -> Result<Client, Error> {
    Client::builder().tls(tls).connect_timeout(TIMEOUT).connect(url).await
}

/// Asserts that the two sides do not trust each other, and returns the text of the error.
#[track_caller]
fn untrusted(outcome: Result<Client, Error>) -> String {
    match outcome {
        Err(error @ Error::Untrusted { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn locks_work_over_tls_with_java_without_tls() {
    let authority = Authority::new("one");
    let (server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    let client = connect(&url, authority.trusted()).await.unwrap();
    for version in versions() {
        let thread = Java::get(&version).client(&server, 0).await.thread("1");
        let lock = client.lock("n");
        let held = lock.lock().await.unwrap();
        let theirs = thread.lock("plain", "n");
        eventually(|| subscribers(&server, CHANNEL) > 0).await;
        held.unlock().await.unwrap();
        theirs.await.unwrap();
        let ours = tokio::spawn(async move { lock.try_lock_for(WAIT).await });
        eventually(|| subscribers(&server, CHANNEL) > 0).await;
        let freed = Stopwatch::start();
        thread.unlock("plain", "n").await.unwrap();
        let guard = ours.await.unwrap().unwrap().expect("it is free");
        assert!(freed.elapsed() < WAIT / 10, "{version}: {:?}", freed.elapsed());
        assert_eq!(guard.state(), HoldState::Held);
        guard.unlock().await.unwrap();
    }
    // A connection that was cut is made anew, again with TLS.
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut server.cli()).unwrap();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn sentinels_and_clusters_are_reached_over_tls() {
    let authority = Authority::new("one");
    let secrets = authority.secrets(&authority.sign(&["127.0.0.1"], |_| {}));
    let (_master, port) = Server::with_tls(&secrets, &[]);
    let (_sentinel, port) = Server::sentinel_with_tls(&secrets, port);
    let (sentinel, sentinels) =
        (format!("rediss://127.0.0.1:{port}"), format!("rediss-sentinel://127.0.0.1:{port}#orders"));

    let (server, port) = Server::with_tls(&secrets, &["--cluster-enabled", "yes", "--tls-cluster", "yes"]);
    add_slots(&server, 0..=16383);
    let ready = || {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut server.cli()).unwrap();
        info.contains("cluster_state:ok")
    };
    eventually(ready).await;
    let (node, cluster) =
        (format!("rediss://127.0.0.1:{port}"), format!("rediss-cluster://127.0.0.1:{port}"));

    // Also with connection settings of the redis crate.
    let by = || Client::builder().tls(authority.trusted()).connect_timeout(TIMEOUT);
    by().connect_with(Servers::sentinels([sentinel], "orders", "rediss://master")).await.unwrap();
    by().connect_with(Servers::cluster([node.as_str()])).await.unwrap();
    untrusted(Client::builder().connect_timeout(TIMEOUT).connect_with(Servers::cluster([node])).await);

    for url in [sentinels, cluster] {
        let (one, other) = (
            connect(&url, authority.trusted()).await.unwrap(),
            connect(&url, authority.trusted()).await.unwrap(),
        );
        let held = one.lock("n").lock().await.unwrap();
        let waiting = tokio::spawn(async move { other.lock("n").lock().await });
        assert!(one.lock("n").with_owner(&Owner::unique()).try_lock().await.unwrap().is_none(), "{url}");
        held.unlock().await.unwrap();
        waiting.await.unwrap().unwrap().unlock().await.unwrap();
        let message = untrusted(connect(&url, Tls::new()).await);
        assert!(message.contains("Tls::certificate_authorities"), "{message}");
    }
}

#[tokio::test]
async fn an_untrusted_server_is_reported_with_the_remedy() {
    let (authority, other, same) = (Authority::new("one"), Authority::new("two"), Authority::new("one"));
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    for tls in [other.trusted(), same.trusted(), Tls::new()] {
        let message = untrusted(connect(&url, tls).await);
        assert!(message.contains("Tls::certificate_authorities"), "{message}");
    }

    let expired = authority.sign(&["127.0.0.1"], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let (_server, url) = authority.serve(&expired, false);
    let message = untrusted(connect(&url, authority.trusted()).await);
    assert!(message.contains("renew"), "{message}");

    let (_server, url) = authority.serve(&authority.sign(&["redis.example.org"], |_| {}), false);
    let message = untrusted(connect(&url, authority.trusted()).await);
    assert!(message.contains("Tls::server_name") && message.contains("redis.example.org"), "{message}");
    connect(&url, authority.trusted().server_name("redis.example.org")).await.unwrap();
    connect(&url, Tls::new().danger_accept_any_certificate()).await.unwrap();
}

#[tokio::test]
async fn accepting_any_server_name_still_checks_authority_and_expiry() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let (_server, url) = authority.serve(&authority.sign(&["redis.example.org"], |_| {}), false);
    untrusted(connect(&url, authority.trusted()).await);
    let any = authority.trusted().danger_accept_any_server_name();
    connect(&url, any.clone()).await.unwrap().lock("n").lock().await.unwrap().unlock().await.unwrap();
    for tls in [other.trusted(), Tls::new()] {
        let message = untrusted(connect(&url, tls.danger_accept_any_server_name()).await);
        assert!(message.contains("Tls::certificate_authorities"), "{message}");
    }
    let expired =
        authority.sign(&["redis.example.org"], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let (_server, url) = authority.serve(&expired, false);
    let message = untrusted(connect(&url, any).await);
    assert!(message.contains("renew"), "{message}");
}

/// The trust settings of an address of the redis crate apply where ours say nothing.
#[tokio::test]
async fn an_address_of_the_redis_crate_keeps_its_tls_settings() {
    let authority = Authority::new("one");
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let address =
        |insecure| ConnectionAddr::TcpTls { host: "127.0.0.1".into(), port, insecure, tls_params: None };
    let builder = || Client::builder().connect_timeout(TIMEOUT);
    builder().tls(authority.trusted()).connect_with(Servers::one(address(false))).await.unwrap();
    untrusted(builder().connect_with(Servers::one(address(false))).await);
    builder().connect_with(Servers::one(address(true))).await.unwrap();
    builder().tls(authority.trusted()).connect_with(Servers::one(url.as_str())).await.unwrap();
    untrusted(builder().connect_with(Servers::one(url)).await);
    untrusted(builder().tls(Tls::new()).connect_with(Servers::one(address(true))).await);
    let identity = authority.sign(&["127.0.0.1"], |_| {});
    let (_sentinel, port) = Server::sentinel_with_tls(&authority.secrets(&identity), port);
    let sentinel =
        ConnectionAddr::TcpTls { host: "127.0.0.1".into(), port, insecure: false, tls_params: None };
    let by = builder().tls(authority.trusted());
    by.connect_with(Servers::sentinels([sentinel], "orders", address(false))).await.unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_sent_to_a_server_that_requires_it() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), true);
    let known = authority.sign(&["client"], |_| {});
    let tls = authority.trusted().identity(known.chain, known.key);
    connect(&url, tls).await.unwrap().lock("n").lock().await.unwrap().unlock().await.unwrap();

    let stranger = other.sign(&["client"], |_| {});
    for tls in [authority.trusted(), authority.trusted().identity(stranger.chain, stranger.key)] {
        let message = untrusted(connect(&url, tls).await);
        assert!(message.contains("Tls::identity"), "{message}");
    }
}

#[tokio::test]
async fn tls_on_one_side_only_is_reported_in_time() {
    let authority = Authority::new("one");
    let (server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    let plain = server.url().replace("redis://", "rediss://");
    let began = Stopwatch::start();
    // The server waits for the end of a line in its own protocol.
    let error = connect(&plain, authority.trusted()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let message = error.to_string();
    assert!(message.contains("TLS at this port") && message.contains("redis://"), "{message}");
    let error = Client::builder().connect_timeout(TIMEOUT).connect(url.replace("rediss", "redis")).await;
    assert!(matches!(error, Err(Error::Unavailable { .. } | Error::TimedOut { .. })), "{error:?}");
    assert!(began.elapsed() < 3 * TIMEOUT);
}

/// Finding the server takes part of the time, and the hint is given all the same.
#[tokio::test]
async fn a_master_without_tls_behind_a_slow_sentinel_is_reported_in_time() {
    let server = Server::start();
    let sentinel = HostileServer::slow_sentinel(TIMEOUT / 10, "127.0.0.1", server.port()).await;
    let sentinel = format!("redis://{}", sentinel.address());
    let tls = Authority::new("one").trusted().server_name("redis.example.org");
    let began = Stopwatch::start();
    let by = Client::builder().tls(tls).connect_timeout(TIMEOUT);
    let error =
        by.connect_with(Servers::sentinels([sentinel], "orders", "rediss://master")).await.unwrap_err();
    assert!(error.to_string().contains("TLS at this port"), "{error:?}");
    assert!(began.elapsed() < TIMEOUT * 2, "{:?}", began.elapsed());

    // The same for the nodes of a cluster.
    let cluster = server.url().replace("redis://", "rediss-cluster://");
    let error = connect(&cluster, Authority::new("one").trusted()).await.unwrap_err();
    assert!(error.to_string().contains("TLS at this port"), "{error:?}");
}

#[tokio::test]
async fn only_configured_protocols_and_cipher_suites_are_offered() {
    let authority = Authority::new("one");
    let secrets = authority.secrets(&authority.sign(&["127.0.0.1"], |_| {}));
    let (_server, port) = Server::with_tls(&secrets, &["--tls-protocols", "TLSv1.2"]);
    let url = format!("rediss://127.0.0.1:{port}");
    let tls = || authority.trusted();
    let of_tls12 = [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
    ];
    for fine in [tls().protocols(["TLSv1.2", "TLSv1.3"]), tls().cipher_suites(of_tls12)] {
        connect(&url, fine).await.unwrap();
    }
    for other in [tls().protocols(["TLSv1.3"]), tls().cipher_suites(["TLS_AES_128_GCM_SHA256"])] {
        untrusted(connect(&url, other).await);
    }
    for (bad, what) in [
        (tls().protocols(["TLSv1.1"]), "TLSv1.3"),
        (tls().protocols::<String>([]), "TLSv1.3"),
        (tls().cipher_suites(["tls_aes_128_gcm_sha256"]), "TLS_AES_128_GCM_SHA256"),
        (
            tls().protocols(["TLSv1.3"]).cipher_suites(of_tls12),
            "no configured cipher suite fits a configured protocol",
        ),
    ] {
        match connect(&url, bad).await {
            Err(Error::Misuse { message, .. }) => assert!(message.contains(what), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn bad_settings_are_reported_before_anything_is_sent() {
    // Nothing listens at this address.
    let url = "rediss://127.0.0.1:1";
    let identity = Authority::new("one").sign(&["client"], |_| {});
    for (bad, what) in [
        (Tls::new().certificate_authorities("-----"), "authorities"),
        (Tls::new().identity("", identity.key.clone()), "certificate"),
        (Tls::new().identity(identity.chain.clone(), identity.chain.clone()), "key"),
        (Tls::new().server_name("no host"), "server name"),
    ] {
        let shown = format!("{bad:?}");
        assert!(!shown.contains("BEGIN"), "{shown}");
        let error = connect(url, bad).await.unwrap_err();
        assert!(matches!(&error, Error::Misuse { message, .. } if message.contains(what)), "{error}");
    }
    let error = connect("redis://127.0.0.1:1", Tls::new()).await.unwrap_err();
    assert!(matches!(&error, Error::Misuse { message, .. } if message.contains("rediss://")), "{error}");
}
