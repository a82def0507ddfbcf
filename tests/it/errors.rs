//! The errors: their causes, their remedies, and how a service reacts to them.

use crate::support::cluster::Cluster;
use crate::support::proxy::{Direction, Proxy};
use crate::support::{Server, Stopwatch, eventually};
use redisson_lock::{Client, Error, HoldState, Lock, LossReason, MultiLock, Phase, Replication, blocking};
use std::error::Error as _;
use std::io;
use std::time::Duration;

/// Far longer than any call of these tests takes, unless it waits for a server that is down.
const LONG: Duration = Duration::from_secs(20);

/// Waits until the client has failed to connect again, and returns the error of a query.
async fn refused(lock: &Lock) -> Error {
    loop {
        match lock.is_locked().await {
            Err(error) if error.source().is_some() => return error,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_unavailable_and_the_cause_is_kept() {
    let mut server = Server::start();
    let builder = Client::builder().response_timeout(Duration::from_millis(100));
    let client = builder.clone().connect(server.url()).await.unwrap();
    server.kill();
    let connecting = builder.connect(server.url()).await.unwrap_err();
    for error in [refused(&client.lock("n")).await, connecting] {
        assert!(error.is_unavailable() && error.is_retryable() && !error.is_lost() && !error.is_misuse());
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused), "{error:?}");
        let text = error.to_string();
        assert_eq!(
            (text.matches("unavailable").count(), text.matches("connect:").count() > 1),
            (1, false),
            "{text}"
        );
        assert!(text.contains("Connection refused"), "{text}");
    }
}

#[tokio::test]
async fn a_release_that_was_not_sent_is_unavailable_and_not_ambiguous() {
    let mut server = Server::start();
    // Long enough for the server to answer, even if this machine stalls for a moment.
    let builder = Client::builder().response_timeout(Duration::from_secs(1));
    let client = builder.connect(server.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let permit = client.expirable_semaphore("s");
    assert!(permit.try_set_permits(1).await.unwrap());
    let permit = permit.acquire().await.unwrap();
    server.kill();
    refused(&client.lock("n")).await;
    let (unlocked, released) = tokio::join!(guard.unlock(), permit.release());
    for outcome in [unlocked, released] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Unavailable { phase: Phase::Release, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_loss_is_reported_at_once_while_the_server_is_down() {
    let mut server = Server::start();
    let builder = Client::builder().response_timeout(LONG).watchdog_timeout(Duration::from_millis(500));
    let client = builder.connect(server.url()).await.unwrap();
    let guard = client.mutex("unlocked").lock().await.unwrap();
    let lock = client.mutex("run");
    let (started, run) = tokio::sync::oneshot::channel();
    let running = tokio::spawn(async move {
        let body = |_| async {
            started.send(()).unwrap();
            std::future::pending::<()>().await
        };
        lock.run(body).await
    });
    run.await.unwrap();
    server.kill();
    let reason = LossReason::Unreachable;
    assert_eq!(guard.lost().await, HoldState::Lost(reason));
    let since = Stopwatch::start();
    let unlocked = guard.unlock().await.unwrap_err();
    let ran = running.await.unwrap().unwrap_err();
    assert!(since.elapsed() < LONG / 4, "{:?}", since.elapsed());
    assert!(
        matches!(&unlocked, Error::NotHeld { reason: Some(given), holder: None, .. } if *given == reason),
        "{unlocked:?}"
    );
    assert!(unlocked.to_string().contains(&reason.to_string()), "{unlocked}");
    assert!(matches!(&ran, Error::Lost { reason: given, holder: None, .. } if *given == reason), "{ran:?}");
    assert!(unlocked.is_lost() && ran.is_lost() && !ran.is_retryable());
}

#[tokio::test]
async fn a_single_attempt_without_a_connection_fails_at_once() {
    let mut server = Server::start();
    let client = Client::builder().response_timeout(LONG).connect(server.url()).await.unwrap();
    assert!(client.is_connected());
    client.ping().await.unwrap();
    server.kill();
    eventually(|| !client.is_connected()).await;
    let since = Stopwatch::start();
    let lock = client.lock("n");
    let first = lock.try_lock().await.unwrap_err();
    assert!(since.elapsed() < LONG / 4, "{:?}", since.elapsed());
    for error in [
        first,
        lock.try_lock_for(Duration::ZERO).await.unwrap_err(),
        client.semaphore("s").try_acquire().await.unwrap_err(),
        MultiLock::new([client.lock("a"), client.lock("b")]).unwrap().try_lock().await.unwrap_err(),
        client.ping().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    assert!(since.elapsed() < LONG / 4, "{:?}", since.elapsed());
    // With a time limit, the call waits for the connection.
    let waiting = tokio::spawn(async move { lock.try_lock_for(LONG).await });
    server.restart();
    waiting.await.unwrap().unwrap().unwrap().unlock().await.unwrap();
    client.ping().await.unwrap();
    client.close().await;
    assert!(!client.is_connected());
    assert!(matches!(client.ping().await, Err(Error::Closed { .. })));
}

#[tokio::test]
async fn a_silent_server_fails_a_ping_in_time() {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let builder = Client::builder().response_timeout(Duration::from_millis(200));
    let client = builder.connect(proxy.url()).await.unwrap();
    proxy.open_links().iter().for_each(|link| link.hold(Direction::ToClient));
    let error = client.ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
}

#[tokio::test]
async fn a_lazy_client_starts_without_its_server() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let client = Client::builder().response_timeout(LONG).connect_lazy(url).unwrap();
    assert!(!client.is_connected());
    let lock = client.lock("n");
    let error = lock.try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { phase: Phase::Acquire, .. }), "{error:?}");
    let waiting = tokio::spawn(async move { lock.lock().await });
    server.restart();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
    client.ping().await.unwrap();
    assert!(client.is_connected());
    for bad in ["redis://h:x", "redis-cluster://127.0.0.1:1"] {
        let misuse = Client::builder().connect_lazy(bad).unwrap_err();
        assert!(misuse.is_misuse() && !misuse.is_retryable(), "{misuse:?}");
    }
}

#[tokio::test]
async fn a_lazy_client_finds_its_cluster() {
    let cluster = Cluster::start(3, 0);
    let builder = Client::builder().sharded_messages(false).replication(Replication::at_least(0));
    let client = builder.connect_lazy(cluster.url()).unwrap();
    for name in ["a", "b", "c", "d"] {
        client.lock(name).lock().await.unwrap().unlock().await.unwrap();
    }
    eventually(|| client.is_connected()).await;
    client.ping().await.unwrap();
}

#[test]
fn a_lazy_client_for_threads_connects_in_the_background() {
    let server = Server::start();
    let client = blocking::Client::connect_lazy(Client::builder(), server.url()).unwrap();
    client.lock("n").lock().unwrap().unlock().unwrap();
    client.ping().unwrap();
    assert!(client.is_connected());
    client.close();
}

#[tokio::test]
async fn a_closed_client_is_not_worth_a_retry() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    client.close().await;
    let error = client.lock("n").lock().await.unwrap_err();
    assert!(matches!(error, Error::Closed { phase: Phase::Acquire, .. }), "{error:?}");
    assert!(error.is_unavailable() && !error.is_retryable());
}

#[tokio::test]
async fn a_server_that_is_no_cluster_node_names_the_right_url() {
    let server = Server::start();
    let url = server.url().replace("redis://", "redis-cluster://");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.code(), Some("ERR"));
    assert!(error.to_string().contains("use redis://"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_server_out_of_memory_is_worth_a_retry() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    server.configure("maxmemory", "1");
    let error = client.lock("n").try_lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    assert!(
        error.is_unavailable() && error.is_retryable() && error.to_string().contains("maxmemory"),
        "{error}"
    );
}

#[test]
fn a_client_and_its_locks_may_cross_a_caught_panic() {
    fn is_unwind_safe<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    is_unwind_safe::<Client>();
    is_unwind_safe::<Lock>();
}

/// The client's runtime does not run, so it neither sends a request nor ends a wait. The caller's own runtime does.
#[test]
fn calls_end_in_time_although_the_runtime_of_the_client_does_not_run() {
    let server = Server::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (clients, callers) = (runtime(), runtime());
    let (client, guard) = clients.block_on(async {
        let timeout = Duration::from_millis(300);
        let client = Client::builder().response_timeout(timeout).connect(server.url()).await.unwrap();
        let guard = client.mutex("n").lock().await.unwrap();
        (client, guard)
    });
    callers.block_on(async {
        let unlocking = tokio::time::timeout(LONG, guard.unlock()).await;
        assert!(matches!(unlocking, Ok(Err(Error::Ambiguous { .. }))), "{unlocking:?}");
        let trying = tokio::time::timeout(LONG, client.mutex("m").try_lock()).await;
        assert!(matches!(trying, Ok(Err(Error::TimedOut { .. }))), "{trying:?}");
    });
}
