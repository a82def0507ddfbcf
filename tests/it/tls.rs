//! Connections by TLS: that locks work over them, and that whatever keeps the two sides from trusting each other is told
//! with what to do about it.

use crate::support::cluster::add_slots;
use crate::support::server::Secrets;
use crate::support::{Hostile, Java, Server, Stopwatch, eventually, subscribers, versions};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use redisson_lock::redis::ConnectionAddr;
use redisson_lock::{Client, Error, HoldState, Owner, Tls};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1500);
const CHANNEL: &str = "redisson_lock__channel:{n}";
const WAIT: Duration = Duration::from_secs(10);

/// Who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key.
struct Identity {
    chain: String,
    key: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { chain, key: key.serialize_pem() }
    }

    fn serve(&self, server: &Identity, asks: bool) -> (Server, String) {
        let asks = if asks { ["--tls-auth-clients", "yes"].as_slice() } else { &[] };
        let (server, port) = Server::with_tls(&self.secrets(server), asks);
        (server, format!("rediss://127.0.0.1:{port}"))
    }

    fn secrets(&self, Identity { chain, key }: &Identity) -> Secrets {
        Secrets { authority: self.pem.clone(), chain: chain.clone(), key: key.clone() }
    }

    fn trusted(&self) -> Tls {
        Tls::new().certificate_authorities(self.pem.clone())
    }
}

async fn connect(url: &str, tls: Tls) -> Result<Client, Error> {
    Client::builder().tls(tls).connect_timeout(TIMEOUT).connect(url).await
}

/// Why there is no trust.
#[track_caller]
fn untrusted(outcome: Result<Client, Error>) -> String {
    match outcome {
        Err(error @ Error::Untrusted { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn locks_work_over_tls_beside_java_without() {
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
    // A connection that was cut is made anew, and a secure one.
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut server.cli()).unwrap();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn sentinels_and_clusters_are_reached_by_tls() {
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

    // Also by what a client of the redis crate takes.
    let by = || Client::builder().tls(authority.trusted()).connect_timeout(TIMEOUT);
    by().connect_by_sentinels([sentinel], "orders", "rediss://master").await.unwrap();
    by().connect_to_cluster([node.as_str()]).await.unwrap();
    untrusted(Client::builder().connect_timeout(TIMEOUT).connect_to_cluster([node]).await);

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
        let told = untrusted(connect(&url, Tls::new()).await);
        assert!(told.contains("Tls::certificate_authorities"), "{told}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_to_be_trusted_is_told_with_the_remedy() {
    let (authority, other, same) = (Authority::new("one"), Authority::new("two"), Authority::new("one"));
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    for tls in [other.trusted(), same.trusted(), Tls::new()] {
        let told = untrusted(connect(&url, tls).await);
        assert!(told.contains("Tls::certificate_authorities"), "{told}");
    }

    let expired = authority.sign(&["127.0.0.1"], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let (_server, url) = authority.serve(&expired, false);
    let told = untrusted(connect(&url, authority.trusted()).await);
    assert!(told.contains("renew"), "{told}");

    let (_server, url) = authority.serve(&authority.sign(&["redis.example.org"], |_| {}), false);
    let told = untrusted(connect(&url, authority.trusted()).await);
    assert!(told.contains("Tls::server_name") && told.contains("redis.example.org"), "{told}");
    connect(&url, authority.trusted().server_name("redis.example.org")).await.unwrap();
    connect(&url, Tls::new().danger_accept_any_certificate()).await.unwrap();
}

#[tokio::test]
async fn any_server_name_is_taken_but_not_any_authority_or_time() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let (_server, url) = authority.serve(&authority.sign(&["redis.example.org"], |_| {}), false);
    untrusted(connect(&url, authority.trusted()).await);
    let any = authority.trusted().danger_accept_any_server_name();
    connect(&url, any.clone()).await.unwrap().lock("n").lock().await.unwrap().unlock().await.unwrap();
    for tls in [other.trusted(), Tls::new()] {
        let told = untrusted(connect(&url, tls.danger_accept_any_server_name()).await);
        assert!(told.contains("Tls::certificate_authorities"), "{told}");
    }
    let expired =
        authority.sign(&["redis.example.org"], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let (_server, url) = authority.serve(&expired, false);
    let told = untrusted(connect(&url, any).await);
    assert!(told.contains("renew"), "{told}");
}

/// As the redis crate has it: what it says of trust counts where the settings say nothing.
#[tokio::test]
async fn an_address_of_the_redis_crate_keeps_its_tls() {
    let authority = Authority::new("one");
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let address =
        |insecure| ConnectionAddr::TcpTls { host: "127.0.0.1".into(), port, insecure, tls_params: None };
    let builder = || Client::builder().connect_timeout(TIMEOUT);
    builder().tls(authority.trusted()).connect_to(address(false)).await.unwrap();
    untrusted(builder().connect_to(address(false)).await);
    builder().connect_to(address(true)).await.unwrap();
    builder().tls(authority.trusted()).connect_to(url.as_str()).await.unwrap();
    untrusted(builder().connect_to(url).await);
    untrusted(builder().tls(Tls::new()).connect_to(address(true)).await);
    let identity = authority.sign(&["127.0.0.1"], |_| {});
    let (_sentinel, port) = Server::sentinel_with_tls(&authority.secrets(&identity), port);
    let sentinel =
        ConnectionAddr::TcpTls { host: "127.0.0.1".into(), port, insecure: false, tls_params: None };
    let by = builder().tls(authority.trusted());
    by.connect_by_sentinels([sentinel], "orders", address(false)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_wants_to_know_its_client_is_told_who_it_is() {
    let (authority, other) = (Authority::new("one"), Authority::new("two"));
    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), true);
    let known = authority.sign(&["client"], |_| {});
    let tls = authority.trusted().identity(known.chain, known.key);
    connect(&url, tls).await.unwrap().lock("n").lock().await.unwrap().unlock().await.unwrap();

    let stranger = other.sign(&["client"], |_| {});
    for tls in [authority.trusted(), authority.trusted().identity(stranger.chain, stranger.key)] {
        let told = untrusted(connect(&url, tls).await);
        assert!(told.contains("Tls::identity"), "{told}");
    }
}

#[tokio::test]
async fn one_side_with_tls_and_one_without_is_told_in_time() {
    let authority = Authority::new("one");
    let (server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), false);
    let plain = server.url().replace("redis://", "rediss://");
    let began = Stopwatch::start();
    // The server waits for a line of its own protocol to end.
    let error = connect(&plain, authority.trusted()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let told = error.to_string();
    assert!(told.contains("TLS at this port") && told.contains("redis://"), "{told}");
    let error = Client::builder().connect_timeout(TIMEOUT).connect(url.replace("rediss", "redis")).await;
    assert!(matches!(error, Err(Error::Unavailable { .. } | Error::TimedOut { .. })), "{error:?}");
    assert!(began.elapsed() < 3 * TIMEOUT);
}

/// What finds the server takes a part of the time, and the hint is given nevertheless.
#[tokio::test]
async fn a_master_without_tls_that_a_slow_sentinel_names_is_told_in_time() {
    let server = Server::start();
    let sentinel = Hostile::slow_sentinel(TIMEOUT / 10, "127.0.0.1", server.port()).await;
    let sentinel = format!("redis://{}", sentinel.address());
    let tls = Authority::new("one").trusted().server_name("redis.example.org");
    let began = Stopwatch::start();
    let by = Client::builder().tls(tls).connect_timeout(TIMEOUT);
    let error = by.connect_by_sentinels([sentinel], "orders", "rediss://master").await.unwrap_err();
    assert!(error.to_string().contains("TLS at this port"), "{error:?}");
    assert!(began.elapsed() < TIMEOUT * 2, "{:?}", began.elapsed());

    // So it is with the nodes of a cluster.
    let cluster = server.url().replace("redis://", "rediss-cluster://");
    let error = connect(&cluster, Authority::new("one").trusted()).await.unwrap_err();
    assert!(error.to_string().contains("TLS at this port"), "{error:?}");
}

#[tokio::test]
async fn only_the_protocols_and_cipher_suites_that_are_named_are_offered() {
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
        (tls().protocols(["TLSv1.3"]).cipher_suites(of_tls12), "do not fit together"),
    ] {
        match connect(&url, bad).await {
            Err(Error::Misuse { message, .. }) => assert!(message.contains(what), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn bad_settings_are_told_before_anything_is_sent() {
    // Nobody is there.
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
        assert!(matches!(&error, Error::Misuse { message } if message.contains(what)), "{error}");
    }
    let error = connect("redis://127.0.0.1:1", Tls::new()).await.unwrap_err();
    assert!(matches!(&error, Error::Misuse { message } if message.contains("rediss://")), "{error}");
}
