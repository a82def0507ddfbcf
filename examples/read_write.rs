//! Many readers at a time, or one writer, which then continues as a reader.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example read_write`

use redisson_lock::{Client, Owner, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let prices = client.read_write_lock("prices");
    let other = Owner::unique();

    let reading = prices.read().lock().await?;
    let other_reader = prices.read().with_owner(&other).lock().await?;
    println!("two read");
    // No owner can write while others read. A reader that requests the write lock would wait for itself.
    println!("upgrade: {}", prices.write().lock().await.unwrap_err());
    reading.unlock().await?;
    other_reader.unlock().await?;

    let writing = prices.write().lock().await?;
    println!("another reads: {}", prices.read().with_owner(&other).try_lock().await?.is_some());
    // The writer continues as a reader, so no other owner writes in between.
    let reading = prices.read().lock().await?;
    writing.unlock().await?;
    let other_reader = prices.read().with_owner(&other).lock().await?;
    println!("after the downgrade another reads");
    other_reader.unlock().await?;
    reading.unlock().await
}
