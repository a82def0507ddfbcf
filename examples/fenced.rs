//! A resource that refuses late writers: it remembers the greatest fencing token that it has seen.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example fenced`

use redisson_lock::{Client, Owner, Result};
use std::time::Duration;

/// The resource that the lock guards. It knows nothing of locks.
#[derive(Default)]
struct Ledger {
    newest: u64,
    entries: Vec<&'static str>,
}

impl Ledger {
    fn append(&mut self, token: u64, entry: &'static str) -> bool {
        let accepted = token >= self.newest;
        if accepted {
            self.newest = token;
            self.entries.push(entry);
        }
        accepted
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    let lock = client.fenced_lock("ledger");
    let mut ledger = Ledger::default();

    // This holder takes longer than its lease.
    let slow = lock.with_lease(Duration::from_millis(50)).lock().await?;
    let late = slow.token().expect("the guard of a fenced lock has a token");
    let quick = lock.with_owner(&Owner::unique()).lock().await?;
    let token = quick.token().expect("the guard of a fenced lock has a token");
    println!("the second token is greater: {}", token > late);
    println!("the second writes: {}", ledger.append(token, "second"));
    println!("the first, which is {:?}, writes: {}", slow.state(), ledger.append(late, "first"));
    println!("in the ledger: {:?}", ledger.entries);
    quick.unlock().await
}
