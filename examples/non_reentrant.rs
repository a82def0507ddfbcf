//! A lock that its owner cannot acquire twice: the second acquire fails at once and does not wait for itself.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example non_reentrant`

use redisson_lock::{Client, Error, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.non_reentrant_lock("boiler");
    let guard = lock.lock().await?;
    match lock.lock().await {
        Err(error @ Error::WouldDeadlock { .. }) => println!("refused: {error}"),
        other => println!("not expected: {other:?}"),
    }
    guard.unlock().await
}
