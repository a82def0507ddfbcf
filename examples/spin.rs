//! Short critical sections without messages: a waiter polls with growing pauses.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example spin`

use redisson_lock::{BackOff, Client, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let back_off = BackOff::new().longest(Duration::from_millis(20));
    let counter = client.spin_lock("counter", back_off);
    let mut tasks = Vec::new();
    for number in 1..=3 {
        let counter = counter.clone();
        tasks.push(tokio::spawn(async move {
            let guard = counter.lock().await?;
            println!("task {number} holds the lock");
            guard.unlock().await
        }));
    }
    for task in tasks {
        task.await.expect("the task does not panic")?;
    }
    println!("all served");
    Ok(())
}
