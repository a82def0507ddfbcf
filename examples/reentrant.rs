//! A critical section that spans functions: each takes the lock for itself, and the task holds it throughout.
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
    // Called on its own it would wait for the lock; here the task has it already.
    let guard = accounts.lock().await?;
    println!("withdrawing, held {} times", accounts.hold_count().await?);
    guard.unlock().await
}

async fn deposit(accounts: &Lock) -> Result<()> {
    let guard = accounts.lock().await?;
    println!("depositing, held {} times", accounts.hold_count().await?);
    guard.unlock().await
}
