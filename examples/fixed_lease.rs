//! A fixed lease: the watchdog does not renew it, and the lock is free at its end, whatever happens to the holder.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example fixed_lease`

use redisson_lock::{Client, Error, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.lock("nightly").with_lease(Duration::from_millis(300));

    let guard = lock.lock().await?;
    println!("held for {:?} at most", lock.remaining_lease().await?.unwrap_or_default());
    guard.unlock().await?;

    // A holder that keeps the lock for too long learns of the loss.
    let guard = lock.lock().await?;
    println!("then: {:?}", guard.lost().await);
    match guard.unlock().await {
        Err(error @ Error::NotHeld { .. }) => println!("{error}"),
        other => other?,
    }
    Ok(())
}
