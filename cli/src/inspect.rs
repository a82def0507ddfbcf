//! `inspect`: the kind, the holders and the waiters of a lock.

use crate::args::{Connection, Inspect, Kind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::locks;
use crate::output::{line, write_out};
use crate::permissions::{Wanted, explained};
use crate::table::{lease, number, shown};
use clap::ValueEnum;
use redisson_lock::{Description, Holder, Inspection, Owner};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// Shows the lock.
pub async fn inspect(inspect: &Inspect, connection: &Connection) -> Result<u8, Failure> {
    let client = connect(connection).await?;
    let (json, text) = if let Some(kind) = inspect.kind.kind() {
        let lock = locks::lock(&client, kind, &inspect.name, &Owner::unique());
        let seen = match lock.inspect().await {
            Ok(seen) => seen,
            Err(error) => {
                let wanted = Wanted::Kind(&inspect.name, &kind_name(kind));
                return Err(explained(&client, wanted, error.into()).await);
            }
        };
        (of_kind_as_json(lock.name(), kind, &seen), of_kind_as_text(lock.name(), kind, &seen))
    } else {
        match client.describe(&inspect.name).await {
            Ok(Some(seen)) => (as_json(&seen), as_text(&seen)),
            Ok(None) => (free_as_json(&inspect.name), free_as_text(&inspect.name)),
            Err(error) => {
                return Err(explained(&client, Wanted::Lock(&inspect.name), error.into()).await);
            }
        }
    };
    if inspect.json {
        line(&json)?;
    } else {
        write_out(text)?;
    }
    Ok(0)
}

/// Returns the name of the kind on the command line.
pub fn kind_name(kind: Kind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Returns a lock as JSON.
pub fn as_json(seen: &Description) -> Value {
    json!({
        "name": seen.name,
        "kind": seen.kind.to_string(),
        "certain": seen.kind.is_certain(),
        "held": !seen.holders.is_empty(),
        "holders": holders_as_json(&seen.holders),
        "lease_ms": milliseconds(seen.remaining_lease),
        "waiters": seen.waiters,
        "token": seen.token,
        "queue": seen.queue,
        "count": seen.count,
        "taken": seen.taken,
    })
}

/// The same with the kind that the command line names.
fn of_kind_as_json(name: &str, kind: Kind, seen: &Inspection) -> Value {
    json!({
        "name": name,
        "kind": kind_name(kind),
        "certain": true,
        "held": !seen.holders.is_empty(),
        "holders": holders_as_json(&seen.holders),
        "lease_ms": milliseconds(seen.remaining_lease),
        "waiters": seen.waiters,
        "token": null,
        "queue": [],
        "count": null,
        "taken": null,
    })
}

fn free_as_json(name: &str) -> Value {
    json!({
        "name": name,
        "kind": null,
        "certain": false,
        "held": false,
        "holders": [],
        "lease_ms": null,
        "waiters": null,
        "token": null,
        "queue": [],
        "count": null,
        "taken": null,
    })
}

/// Returns holders as JSON.
pub fn holders_as_json(holders: &[Holder]) -> Vec<Value> {
    let holder = |holder: &Holder| {
        let mut shown =
            json!({"owner": holder.owner(), "client": holder.client_id(), "count": holder.count()});
        if let Some(client) = holder.client() {
            let since = client.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            shown["application"] = json!(client.application);
            shown["host"] = json!(client.host);
            shown["pid"] = json!(client.pid);
            shown["since_ms"] = json!(u64::try_from(since).ok());
        }
        shown
    };
    holders.iter().map(holder).collect()
}

/// A lease that does not end is null.
fn milliseconds(left: Option<Duration>) -> Option<u64> {
    left.filter(|left| *left != Duration::MAX).and_then(|left| u64::try_from(left.as_millis()).ok())
}

fn as_text(seen: &Description) -> String {
    let unclear = if seen.kind.is_certain() { "" } else { ", which may be no lock at all" };
    let mut text = format!("name     {}\nkind     {}{unclear}\n", shown(&seen.name), seen.kind);
    match (seen.count, seen.taken) {
        (Some(free), Some(taken)) => text.push_str(&format!("permits  {free} free, {taken} taken\n")),
        (Some(count), None) => text.push_str(&format!("count    {count}\n")),
        (None, _) => text.push_str(&holders_as_text(&seen.holders)),
    }
    if seen.remaining_lease.is_some() {
        text.push_str(&format!("lease    {}\n", lease(seen.remaining_lease)));
    }
    text.push_str(&format!("waiters  {}\n", number(seen.waiters)));
    if let Some(token) = seen.token {
        text.push_str(&format!("token    {token}\n"));
    }
    for (at, owner) in (1..).zip(&seen.queue) {
        text.push_str(&format!("queue    {at}. {}\n", shown(owner)));
    }
    text
}

fn of_kind_as_text(name: &str, kind: Kind, seen: &Inspection) -> String {
    let mut text = format!("name     {}\nkind     {}\n", shown(name), kind_name(kind));
    text.push_str(&holders_as_text(&seen.holders));
    if seen.remaining_lease.is_some() {
        text.push_str(&format!("lease    {}\n", lease(seen.remaining_lease)));
    }
    text.push_str(&format!("waiters  {}\n", number(seen.waiters)));
    text
}

fn free_as_text(name: &str) -> String {
    format!("name     {}\nholder   none: no lock, semaphore or latch has this name now\n", shown(name))
}

fn holders_as_text(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "holder   none: the lock is free\n".to_owned();
    }
    let times = |count| if count == 1 { "once".to_owned() } else { format!("{count} times") };
    let line = |holder: &Holder| {
        let client = holder.client().map_or_else(String::new, |client| format!("client   {client}\n"));
        format!("holder   {}, {}\n{client}", shown(holder.owner()), times(holder.count()))
    };
    holders.iter().map(line).collect()
}
