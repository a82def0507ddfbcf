//! Several values of a group are locked together, all or none. Owners of other values do not wait.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example group`

use redisson_lock::{Client, Codec, Kryo5, Owner, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    // The values are encoded as the codec of the Java side does.
    let accounts =
        |names: &[&str]| client.group_lock("accounts", names.iter().map(|name| Kryo5.encode(name)));
    let other = Owner::unique();

    let transfer = accounts(&["alice", "bob"]).lock().await?;
    let overlapping = accounts(&["bob", "carol"]).with_owner(&other);
    println!("bob and carol: {}", overlapping.try_lock().await?.is_some());
    let disjoint = accounts(&["carol", "dave"]).with_owner(&other).try_lock().await?;
    println!("carol and dave: {}", disjoint.is_some());
    for guard in disjoint.into_iter().chain([transfer]) {
        guard.unlock().await?;
    }
    let guard = overlapping.lock().await?;
    println!("bob and carol, after the release");
    guard.unlock().await
}
