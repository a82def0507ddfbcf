//! The classic Redis lock, shared with programs in any language that use `SET key token NX PX lease`.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --features redis-interop --example value`

use redisson_lock::{Client, Result, redis};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(&url).await?;
    let other = redis::Client::open(url)
        .expect("the client accepted the same URL")
        .get_multiplexed_async_connection()
        .await
        .expect("the server answers");
    let set = |token: &str| {
        let mut set = redis::cmd("SET");
        set.arg("report").arg(token).arg("NX").arg("PX").arg(200);
        let mut other = other.clone();
        async move { set.query_async::<Option<String>>(&mut other).await.expect("the server answers").is_some() }
    };

    println!("another program holds it: {}", set("its-token").await);
    let guard = client.value_lock("report").lock().await?;
    println!("acquired after its lease expired");
    println!("another program acquires it: {}", set("its-token").await);
    guard.unlock().await
}
