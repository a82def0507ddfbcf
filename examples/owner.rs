//! An explicit owner: the lock is acquired in one task, re-entered in another, and released in a third.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example owner`

use redisson_lock::{Client, Owner, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let job = Owner::new("job-4711")?;
    let lock = client.lock("catalogue").with_owner(&job);

    let guard = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    })
    .await
    .expect("the task does not panic")?;

    // Two branches of one task normally share an owner. With different owners they exclude each other.
    let other = client.lock("catalogue").with_owner(&Owner::unique());
    let (same, different) = tokio::join!(lock.try_lock(), other.try_lock());
    println!("the same owner re-enters: {}, another acquires: {}", same?.is_some(), different?.is_some());

    tokio::spawn(guard.unlock()).await.expect("the task does not panic")?;
    println!("released");
    Ok(())
}
