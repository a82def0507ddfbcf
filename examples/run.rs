//! `run` holds the lock around a piece of work, and cancels the work if the hold is lost.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example run`

use redisson_lock::{Client, Error, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::builder().watchdog_timeout(Duration::from_millis(900)).connect(url).await?;
    let lock = client.lock("import");

    let rows = lock.run(|_| async { 42 }).await?;
    println!("imported {rows} rows");

    // Somebody releases the lock while it is held.
    let operator = lock.clone();
    let outcome = lock
        .run(|status| async move {
            operator.force_unlock().await.expect("the server answers");
            println!("still working, {:?}", status.state());
            std::future::pending::<()>().await
        })
        .await;
    match outcome {
        Err(error @ Error::Lost { .. }) => println!("stopped: {error}"),
        other => other?,
    }
    Ok(())
}
