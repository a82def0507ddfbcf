//! All of several locks, or none: a transfer holds both accounts, whatever order other transfers use.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example multi_lock`

use redisson_lock::{Client, MultiLock, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let both = |one: &str, other: &str| {
        MultiLock::new([one, other].map(|account| client.lock(format!("account:{account}"))))
    };

    // Neither of these transfers can block the other forever.
    let (there, back) = (both("anna", "bert")?, both("bert", "anna")?);
    let transfers = [there.clone(), back].map(|accounts| {
        tokio::spawn(async move { accounts.run(|status| async move { status.members().len() }).await })
    });
    for transfer in transfers {
        println!("transferred with {} locks held", transfer.await.expect("the task does not panic")?);
    }

    // If one of the locks is busy, none is held.
    let rival = client.lock("account:anna");
    let audit = tokio::spawn(async move { rival.lock().await });
    let audit = audit.await.expect("the task does not panic")?;
    println!("both while anna is audited: {}", there.try_lock().await?.is_some());
    println!("bert is held: {}", client.lock("account:bert").is_locked().await?);
    audit.unlock().await
}
