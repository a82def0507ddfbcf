//! A critical section that spans functions: each function acquires the lock, and the task holds it throughout.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example reentrant`

use redisson_lock::{Client, Lock, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url).await?;
    transfer(&client.lock("accounts")).await
}

async fn transfer(accounts: &Lock) -> Result<()> {
    let guard = accounts.lock().await?;
    withdraw(accounts).await?;
    deposit(accounts).await?;
    println!("transferred, still held {} time(s)", accounts.hold_count().await?);
    guard.unlock().await
}

async fn withdraw(accounts: &Lock) -> Result<()> {
    // Called on its own, this would wait for the lock. Here the task already holds it.
    let guard = accounts.lock().await?;
    println!("withdrawing, held {} times", accounts.hold_count().await?);
    guard.unlock().await
}

async fn deposit(accounts: &Lock) -> Result<()> {
    let guard = accounts.lock().await?;
    println!("depositing, held {} times", accounts.hold_count().await?);
    guard.unlock().await
}
