//! Acquire without a wait, or with a limited wait. A busy lock is `None`, and an error is an error.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example try_for`

use redisson_lock::{Client, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.lock("invoice:7");
    let guard = lock.lock().await?;

    let rival = lock.clone();
    tokio::spawn(async move {
        if rival.try_lock().await?.is_none() {
            println!("busy, held by {}", rival.holder().await?.expect("an owner holds the lock"));
        }
        match rival.try_lock_for(Duration::from_millis(100)).await? {
            Some(_) => println!("held after a wait"),
            None => println!("still busy after 100 ms"),
        }
        Result::Ok(())
    })
    .await
    .expect("the task does not panic")?;
    guard.unlock().await
}
