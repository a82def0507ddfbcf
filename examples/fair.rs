//! First come, first served, among all clients: the order is in Redis.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example fair`

use redisson_lock::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let (here, there) = (Client::connect(&url).await?, Client::connect(&url).await?);
    let first = here.fair_lock("printer").lock().await?;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let lock = if number % 2 == 0 { &here } else { &there }.fair_lock("printer");
        waiting.push(tokio::spawn(async move {
            let guard = lock.lock().await?;
            println!("number {number} prints");
            guard.unlock().await
        }));
        // The next one comes when this one stands in line.
        while standing(&url).await? < number {
            tokio::task::yield_now().await;
        }
    }
    println!("four stand in line");
    first.unlock().await?;
    for task in waiting {
        task.await.expect("no panic")?;
    }
    Ok(())
}

/// How many stand in line, as Redis has it.
async fn standing(url: &str) -> Result<usize> {
    let ask = async {
        let mut redis = redisson_lock::redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        redisson_lock::redis::cmd("LLEN").arg("redisson_lock_queue:{printer}").query_async(&mut redis).await
    };
    Ok(ask.await.unwrap_or(0))
}
