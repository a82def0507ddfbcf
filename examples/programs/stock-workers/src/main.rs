//! Workers that sell from a stock in PostgreSQL, beside a Java service that does the same. See README.md.

use redisson_lock::Client;
use std::env;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WORKERS: usize = 4;

/// Writers of the price list exclude all readers. Java: `getReadWriteLock("prices")`.
const PRICES: &str = "prices";

/// A stale token changes no row, even if it comes from a holder that has not noticed its loss.
const SELL: &str = "UPDATE stock SET amount = amount - $1, revenue = revenue + $1 * $2, token = $3 \
                    WHERE item = $4 AND amount >= $1 AND token <= $3";

#[derive(Clone)]
struct Shop {
    locks: Client,
    /// Several workers may use it at once: the statements share one connection, and no transaction spans two of them.
    database: Arc<tokio_postgres::Client>,
}

enum Job {
    Sell { item: String, amount: i64 },
    Raise { percent: i64 },
}

#[tokio::main]
async fn main() -> Result<()> {
    let locks =
        Client::connect(env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".into())).await?;
    let (database, connection) = tokio_postgres::connect(&env::var("DATABASE_URL")?, NoTls).await?;
    tokio::spawn(connection);
    let shop = Shop { locks: locks.clone(), database: Arc::new(database) };

    let (jobs, queue) = mpsc::channel(WORKERS);
    let queue = Arc::new(Mutex::new(queue));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (shop, queue) = (shop.clone(), Arc::clone(&queue));
        workers.spawn(async move {
            loop {
                let next = queue.lock().await.recv().await;
                let Some(job) = next else { break };
                match shop.run(&job).await {
                    Ok(outcome) => println!("{outcome}"),
                    Err(error) => println!("failed: {error}"),
                }
            }
        });
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        match parse(&line) {
            Some(job) => jobs.send(job).await?,
            None => println!("unknown job: {line:?}"),
        }
    }
    drop(jobs);
    while let Some(ended) = workers.join_next().await {
        ended?;
    }
    locks.close().await;
    Ok(())
}

/// `sell <item> <amount>` or `raise <percent>`
fn parse(line: &str) -> Option<Job> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["sell", item, amount] => {
            let amount = amount.parse().ok().filter(|amount| *amount > 0)?;
            Some(Job::Sell { item: (*item).to_owned(), amount })
        }
        ["raise", percent] => Some(Job::Raise { percent: percent.parse().ok()? }),
        _ => None,
    }
}

impl Shop {
    async fn run(&self, job: &Job) -> Result<String> {
        match job {
            Job::Sell { item, amount } => self.sell(item, *amount).await,
            Job::Raise { percent } => self.raise(*percent).await,
        }
    }

    async fn sell(&self, item: &str, amount: i64) -> Result<String> {
        // No price changes until the sale is written. Each worker is a task, and so an owner of its own.
        let prices = self.locks.read_write_lock(PRICES).read().lock().await?;
        let row = self.database.query_opt("SELECT price FROM prices WHERE item = $1", &[&item]).await?;
        let Some(price) = row.map(|row| row.get::<_, i64>(0)) else {
            return Ok(format!("no price for {item}"));
        };
        // Java: `getFencedLock("stock:..")` and `lockAndGetToken()`.
        let stock = self.locks.fenced_lock(format!("stock:{item}")).lock().await?;
        let token = stock.token().ok_or("the hold is a re-entry of a lock without a token")?;
        // PostgreSQL has no unsigned integers.
        let signed = i64::try_from(token)?;
        let changed = self.database.execute(SELL, &[&amount, &price, &signed, &item]).await?;
        let outcome = if changed == 1 {
            format!("sold {amount} {item} at {price} with token {token}")
        } else {
            format!("refused {amount} {item}: the stock is too small, or token {token} is stale")
        };
        // The database checked the token of the write, so a loss needs no undo.
        if let Err(error) = stock.unlock().await {
            println!("the lock of {item}: {error}");
        }
        prices.unlock().await?;
        Ok(outcome)
    }

    async fn raise(&self, percent: i64) -> Result<String> {
        let prices = self.locks.read_write_lock(PRICES);
        let statement = "UPDATE prices SET price = price * (100 + $1::bigint) / 100";
        // Waits until no worker and no Java thread reads. A lost hold cancels the wait for the reply.
        let update = async { self.database.execute(statement, &[&percent]).await };
        let changed = prices.write().run(|_| update).await??;
        Ok(format!("raised {changed} prices by {percent} %"))
    }
}
