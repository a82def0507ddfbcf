//! Waiting for a lock: no task polls, and the waiters of one process are served in order of arrival.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example wait`

use redisson_lock::{Client, Result};
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let start = Instant::now();
    let mut tasks = Vec::new();
    for n in 1..=3 {
        let lock = client.lock("report");
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await?;
            println!("{:>4} ms  task {n} holds the lock", start.elapsed().as_millis());
            tokio::time::sleep(Duration::from_millis(50)).await;
            guard.unlock().await
        }));
    }
    for task in tasks {
        task.await.expect("the task does not panic")?;
    }
    println!("all served");
    Ok(())
}
