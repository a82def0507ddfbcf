//! The API for plain threads: the owner is the thread, and no async runtime is needed.
//!
//! `REDIS_URL=redis://127.0.0.1/ cargo run --example threads`

use redisson_lock::Result;
use redisson_lock::blocking::Client;

fn main() -> Result<()> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into());
    let client = Client::connect(url)?;
    let work = |n: u32| -> Result<()> {
        let lock = client.lock("report");
        let guard = lock.lock()?;
        // The thread re-enters its own hold.
        let again = lock.lock()?;
        println!("thread {n} holds the lock {} times", lock.hold_count()?);
        again.unlock()?;
        guard.unlock()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    println!("all served");
    Ok(())
}
