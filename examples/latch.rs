//! A task waits until three workers are ready.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example latch`

use redisson_lock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let ready = client.count_down_latch("ready");
    ready.try_set_count(3).await?;
    let waiting = tokio::spawn({
        let ready = ready.clone();
        async move { ready.wait().await }
    });
    for worker in 1..=3 {
        println!("worker {worker} is ready");
        ready.count_down().await?;
    }
    waiting.await.expect("the task does not panic")?;
    println!("all are ready");
    Ok(())
}
