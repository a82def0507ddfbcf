//! A fair lock serves the waiters of all clients in order of arrival. Redis keeps the queue.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --features redis-interop --example fair`

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
        // Start the next task only when this one is in the queue.
        while queue_length(&url).await? < number {
            tokio::task::yield_now().await;
        }
    }
    println!("four tasks wait in the queue");
    first.unlock().await?;
    for task in waiting {
        task.await.expect("the task does not panic")?;
    }
    Ok(())
}

/// Returns the number of waiters in Redis's queue.
async fn queue_length(url: &str) -> Result<usize> {
    let query = async {
        let mut redis = redisson_lock::redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        redisson_lock::redis::cmd("LLEN").arg("redisson_lock_queue:{printer}").query_async(&mut redis).await
    };
    Ok(query.await.unwrap_or(0))
}
