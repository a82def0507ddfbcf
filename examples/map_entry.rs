//! The lock of one key of a map: the same lock as Redisson's `RMap.getLock(key)`.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example map_entry`

use redisson_lock::{Client, Codec, Kryo5, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let entry = client.map_entry("orders", Kryo5.encode("x"));
    let guard = entry.lock().lock().await?;
    println!("holds {}", guard.name());
    guard.unlock().await
}
