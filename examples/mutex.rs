//! The lock for services: its owner is the guard. It excludes other requests of the same task, and the guard may move to
//! another task.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example mutex`

use redisson_lock::{Client, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let mutex = client.mutex("orders:42");

    // A handler acquires the lock, responds, and leaves the work to a task.
    let guard = mutex.lock().await?;
    println!("accepted");
    let work = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!("shipped");
        guard.unlock().await
    });

    // An HTTP server handles the next request of a connection in the same task, which would re-enter a `lock`.
    println!("busy for the next request: {}", mutex.try_lock().await?.is_none());
    mutex.lock().await?.unlock().await?;
    work.await.expect("the task does not panic")?;

    // The branches of one task acquire the lock one after the other.
    let branch = async |n: u32| {
        let guard = mutex.lock().await?;
        println!("branch {n} as {}", guard.owner());
        guard.unlock().await
    };
    tokio::try_join!(branch(1), branch(2), branch(3))?;
    Ok(())
}
