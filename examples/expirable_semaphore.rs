//! Permits that are free again when their holder dies.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example expirable_semaphore`

use redisson_lock::{Client, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let seats = client.expirable_semaphore("seats");
    seats.try_set_permits(1).await?;

    // Simulates a dead process: the permit is neither renewed nor released.
    seats.with_lease(Duration::from_secs(1)).acquire().await?.forget();
    println!("free seats: {}", seats.available_permits().await?);
    let seat = seats.acquire().await?;
    println!("acquired the seat again: {:?}, an id of {} digits", seat.state(), seat.ids().concat().len());
    seat.release().await?;
    println!("free seats: {}", seats.available_permits().await?);
    Ok(())
}
