//! `inspect`: the holders of a lock.

use crate::args::{Connection, Inspect, Kind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::hold::line;
use crate::locks;
use clap::ValueEnum;
use redisson_lock::{Inspection, Owner};
use serde_json::{Value, json};
use std::time::Duration;

/// Shows the lock.
pub async fn inspect(inspect: &Inspect, connection: &Connection) -> Result<u8, Failure> {
    let client = connect(connection).await?;
    let kind = inspect.kind.kind();
    let lock = locks::lock(&client, kind, &inspect.name, &Owner::unique());
    let seen = lock.inspect().await?;
    if inspect.json {
        line(&as_json(lock.name(), kind, &seen))?;
    } else {
        print!("{}", as_text(lock.name(), kind, &seen));
    }
    Ok(0)
}

/// Returns the name of the kind on the command line.
pub fn kind_name(kind: Kind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn as_json(name: &str, kind: Kind, seen: &Inspection) -> Value {
    let holders: Vec<Value> = seen.holders.iter().map(holder_as_json).collect();
    json!({
        "name": name,
        "kind": kind_name(kind),
        "held": !seen.holders.is_empty(),
        "holders": holders,
        "lease_ms": seen.remaining_lease.filter(|left| *left != Duration::MAX).map(|left| left.as_millis() as u64),
        "waiters": seen.waiters,
    })
}

/// Returns a holder as JSON.
pub fn holder_as_json(holder: &redisson_lock::Holder) -> Value {
    json!({"owner": holder.owner(), "client": holder.client_id(), "count": holder.count()})
}

fn as_text(name: &str, kind: Kind, seen: &Inspection) -> String {
    let mut text = format!("name     {}\nkind     {}\n", name.escape_debug(), kind_name(kind));
    match seen.holders.as_slice() {
        [] => text.push_str("holder   none: the lock is free\n"),
        holders => {
            for holder in holders {
                let owner = holder.owner().escape_debug();
                text.push_str(&format!("holder   {owner}, {} times\n", holder.count()));
            }
        }
    }
    match seen.remaining_lease {
        None => {}
        Some(Duration::MAX) => text.push_str("lease    does not end\n"),
        Some(left) => text.push_str(&format!("lease    {:.1} s left\n", left.as_secs_f64())),
    }
    match seen.waiters {
        None => text.push_str("waiters  unknown\n"),
        Some(waiters) => text.push_str(&format!("waiters  {waiters}\n")),
    }
    text
}
