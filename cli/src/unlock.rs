//! `force-unlock`: a release of a lock, whoever holds it.

use crate::args::{Connection, ForceUnlock};
use crate::connect::connect;
use crate::failure::Failure;
use crate::hold::line;
use crate::inspect::holder_as_json;
use crate::locks::{self, held_by};
use redisson_lock::Owner;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};

/// Releases the lock.
pub async fn force_unlock(unlock: &ForceUnlock, connection: &Connection) -> Result<u8, Failure> {
    let client = connect(connection).await?;
    let lock = locks::lock(&client, unlock.kind.kind(), &unlock.name, &Owner::unique());
    let seen = lock.inspect().await?;
    let (name, holders) = (lock.name().escape_debug().to_string(), held_by(&seen));
    if !unlock.yes && !seen.holders.is_empty() && !confirmed(&name, &holders)? {
        return Err(Failure::Usage(format!("`{name}` is unchanged: the answer was not `yes`")));
    }
    let released = lock.force_unlock().await?;
    if unlock.json {
        let holders: Vec<Value> = seen.holders.iter().map(holder_as_json).collect();
        line(&json!({"name": lock.name(), "released": released, "holders": holders}))?;
    } else if released {
        println!("released `{name}`{holders}");
    } else {
        println!("`{name}` was free");
    }
    Ok(0)
}

fn confirmed(name: &str, holders: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "`{name}` is unchanged, because nobody can confirm on a terminal{holders}: pass --yes"
        )));
    }
    eprint!("Release `{name}`{holders}? The holder may still be at work. Type yes: ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
