//! What an error tells its caller: the cause, the remedy, and what a service does about it.

use crate::support::{Server, Stopwatch};
use redisson_lock::{Client, Error, HoldState, Lock, LossReason, Phase};
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
    let builder = Client::builder().response_timeout(Duration::from_millis(100));
    let client = builder.connect(server.url()).await.unwrap();
    let guard = client.lock("n").lock().await.unwrap();
    let permit = client.expirable_semaphore("s");
    assert!(permit.try_set_permits(1).await.unwrap());
    let permit = permit.acquire().await.unwrap();
    server.kill();
    refused(&client.lock("n")).await;
    for outcome in [guard.unlock().await, permit.release().await] {
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
