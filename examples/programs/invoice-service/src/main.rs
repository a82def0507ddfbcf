//! A web service that numbers invoices without gaps, although several processes run it. See README.md.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use redisson_lock::Client;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// How long a request waits for the lock. The client of the service waits for longer than that.
const WAIT: Duration = Duration::from_secs(1);

type Reply = (StatusCode, String);

#[derive(Clone)]
struct Service {
    locks: Client,
    /// Contains a file for each customer: the number of its last invoice.
    folder: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let var = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    // The service starts although Redis is away, and answers 503 until it is back.
    let locks = Client::builder().connect_lazy(var("REDIS_URL", "redis://127.0.0.1/"))?;
    let service = Service { locks: locks.clone(), folder: var("INVOICES", ".").into() };
    let router = Router::new()
        .route("/invoices/{customer}", post(next_invoice))
        .route("/health", get(health))
        .with_state(service);
    let listener = TcpListener::bind(var("LISTEN", "127.0.0.1:8080")).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        terminate.recv().await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stop).await?;
    // No request runs any more. This waits for the releases that are under way.
    locks.close().await;
    println!("stopped");
    Ok(())
}

/// `POST /invoices/{customer}`: the number of the customer's next invoice.
async fn next_invoice(State(service): State<Service>, Path(customer): Path<u64>) -> Reply {
    // The owner of a mutex is its guard. With `lock` it would be the task, and all requests on one HTTP connection share one.
    let lock = service.locks.mutex(format!("invoices:{customer}"));
    let file = service.folder.join(customer.to_string());
    match lock.try_run_for(WAIT, |_| number(file)).await {
        Ok(Some(Ok(number))) => (StatusCode::OK, format!("{number}\n")),
        Ok(Some(Err(error))) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("the file of the customer: {error}\n"))
        }
        Ok(None) => (StatusCode::CONFLICT, "another request holds the lock of this customer\n".to_owned()),
        Err(error) => failed(&error),
    }
}

/// Reads the last number and writes the next one. Without the lock, two processes could both write the same one.
async fn number(file: PathBuf) -> io::Result<u64> {
    let last = match tokio::fs::read_to_string(&file).await {
        Ok(text) => text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    tokio::fs::write(&file, format!("{}\n", last + 1)).await?;
    Ok(last + 1)
}

/// `GET /health`: whether Redis answers.
async fn health(State(service): State<Service>) -> Reply {
    match service.locks.ping().await {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(error) => failed(&error),
    }
}

fn failed(error: &redisson_lock::Error) -> Reply {
    // A lost hold is no fault of the caller either: the number may have been given twice, so the caller must ask again.
    let status = match error.is_unavailable() || error.is_lost() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n"))
}
