//! A Rust task and a Java thread share a lock. The Java side is plain Redisson:
//!
//! ```java
//! Config config = new Config();
//! config.useSingleServer().setAddress("redis://127.0.0.1:6379");
//! RLock lock = Redisson.create(config).getLock("orders:42");
//! lock.lock();
//! try { /* the Rust task waits */ } finally { lock.unlock(); }
//! ```
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example java_interop`

use redisson_lock::{Client, Result};
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.lock("orders:42");
    match lock.holder().await? {
        Some(holder) => println!("held by client {}, {} time(s)", holder.client_id(), holder.count()),
        None => println!("free"),
    }
    let started = Instant::now();
    let Some(guard) = lock.try_lock_for(Duration::from_secs(60)).await? else {
        println!("still held after a minute");
        return Ok(());
    };
    println!("acquired after {} ms, as {}", started.elapsed().as_millis(), guard.owner());
    guard.unlock().await
}
