//! Many read at once, one writes alone, and goes on as a reader.
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
    let beside = prices.read().with_owner(&other).lock().await?;
    println!("two read");
    // Nobody can write while others read; and a reader that asks to write would wait for itself.
    println!("upgrade: {}", prices.write().lock().await.unwrap_err());
    reading.unlock().await?;
    beside.unlock().await?;

    let writing = prices.write().lock().await?;
    println!("another reads: {}", prices.read().with_owner(&other).try_lock().await?.is_some());
    // The writer reads on, so that nobody writes in between.
    let reading = prices.read().lock().await?;
    writing.unlock().await?;
    let beside = prices.read().with_owner(&other).lock().await?;
    println!("after the downgrade another reads");
    beside.unlock().await?;
    reading.unlock().await
}
