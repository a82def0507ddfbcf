//! A majority of independent servers: one of them may be down, or another's.
//!
//! `REDIS_URLS=redis://10.0.0.1/,redis://10.0.0.2/,redis://10.0.0.3/ cargo run --example red_lock`

use redisson_lock::{Client, RedLock, Result};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<()> {
    let urls = std::env::var("REDIS_URLS").expect("the URLs of three servers, with commas between");
    let mut clients = Vec::new();
    for url in urls.split(',') {
        // So short for the sake of the example: servers that were started just now count only after so long.
        let client = Client::builder().watchdog_timeout(Duration::from_millis(600)).connect(url).await?;
        clients.push(client);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // By default a server that does not answer within 50 ms is done without; here all three are wanted.
    let lock = RedLock::new(clients.iter().map(|client| client.lock("report")))?
        .with_node_timeout(Duration::from_secs(2));

    let guard = lock.lock().await?;
    println!("{:?} at {} servers", guard.state(), guard.members().len());
    // An operator frees it at one of them. The others keep it, and renew its validity.
    clients[0].lock("report").force_unlock().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{:?}, valid for at least 100 ms: {}", guard.state(), guard.validity().as_millis() > 100);
    guard.unlock().await?;
    println!("given back");

    // At two of them: the majority is lost, for good.
    let guard = lock.lock().await?;
    clients[0].lock("report").force_unlock().await?;
    clients[1].lock("report").force_unlock().await?;
    println!("then: {:?}", guard.lost().await);
    if let Err(error) = guard.unlock().await {
        println!("{error}");
    }
    Ok(())
}
