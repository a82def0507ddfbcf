//! At most two downloads at a time, among all processes.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example semaphore`

use redisson_lock::{Client, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let downloads = client.semaphore("downloads");
    // The first process creates the semaphore.
    downloads.try_set_permits(2).await?;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let two = Arc::new(tokio::sync::Barrier::new(2));
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let (downloads, two) = (downloads.clone(), two.clone());
        let (running, most) = (running.clone(), most.clone());
        tasks.push(tokio::spawn(async move {
            let permit = downloads.acquire().await?;
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Proceed when two downloads run at the same time.
            two.wait().await;
            running.fetch_sub(1, Ordering::SeqCst);
            permit.release().await
        }));
    }
    for task in tasks {
        task.await.expect("the task does not panic")?;
    }
    println!("six downloads, at most {} at a time", most.load(Ordering::SeqCst));
    println!("{} permits are free", downloads.available_permits().await?);
    Ok(())
}
