//! A majority of independent servers: one of them may be down, or be held by another owner.
//!
//! `REDIS_URLS=redis://10.0.0.1/,redis://10.0.0.2/,redis://10.0.0.3/ cargo run --example red_lock`

use redisson_lock::{Client, RedLock, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let urls = std::env::var("REDIS_URLS").expect("the URLs of three servers, separated by commas");
    let mut clients = Vec::new();
    for url in urls.split(',') {
        // A short lease keeps the example short: the grants of a new server count only after one lease.
        let client = Client::builder().watchdog_timeout(Duration::from_millis(1200)).connect(url).await?;
        clients.push(client);
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // By default the lock does not wait longer than 50 ms for a server. This example needs all three.
    let lock = RedLock::new(clients.iter().map(|client| client.lock("report")))?
        .with_node_timeout(Duration::from_secs(2));

    let guard = lock.lock().await?;
    println!("{:?} at {} servers", guard.state(), guard.members().len());
    // An operator releases the lock at one server. The others keep it and renew its validity.
    clients[0].lock("report").force_unlock().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{:?}, valid for at least 100 ms: {}", guard.state(), guard.validity().as_millis() > 100);
    guard.unlock().await?;
    println!("released");

    // Now at two servers: the majority is lost for good.
    let guard = lock.lock().await?;
    clients[0].lock("report").force_unlock().await?;
    clients[1].lock("report").force_unlock().await?;
    println!("then: {:?}", guard.lost().await);
    if let Err(error) = guard.unlock().await {
        println!("{error}");
    }
    Ok(())
}
