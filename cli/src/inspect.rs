//! `inspect`: the kind, the holders and the waiters of a lock.

use crate::args::{Connection, Inspect, Kind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::locks;
use crate::output::{line, write_out};
use crate::permissions::{Wanted, explained};
use crate::table::{lease, number, shown};
use clap::ValueEnum;
use redisson_lock::{Client, Description, Error, Holder, Owner};
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

/// Shows the lock.
pub async fn inspect(inspect: &Inspect, connection: &Connection) -> Result<u8, Failure> {
    let client = connect(connection).await?;
    let (json, text) = if let Some(kind) = inspect.kind.kind() {
        of_kind(&client, &inspect.name, kind).await?
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

/// Returns a lock of this kind, as JSON and as text. The kind decides who holds it; the record has the token and the queue.
async fn of_kind(client: &Client, name: &str, kind: Kind) -> Result<(Value, String), Failure> {
    let lock = locks::lock(client, kind, name, &Owner::unique());
    let seen = match lock.inspect().await {
        Ok(seen) => seen,
        Err(error) => {
            return Err(explained(client, Wanted::Kind(name, &kind_name(kind)), error.into()).await);
        }
    };
    let record = match client.describe(name).await {
        // The smallest permissions of a kind are enough for the rest.
        Err(Error::Refused { code, .. }) if code == "NOPERM" => None,
        Ok(None) if seen.holders.is_empty() => return Ok((free_as_json(name), free_as_text(name))),
        record => record?,
    };
    let mut json = free_as_json(lock.name());
    json["kind"] = json!(kind_name(kind));
    json["certain"] = json!(true);
    json["held"] = json!(!seen.holders.is_empty());
    json["holders"] = json!(holders_as_json(&seen.holders));
    json["lease_ms"] = json!(milliseconds(seen.remaining_lease));
    json["waiters"] = json!(seen.waiters);
    let mut text = format!("name     {}\nkind     {}\n", shown(lock.name()), kind_name(kind));
    text.push_str(&holders_as_text(&seen.holders));
    text.push_str(&lease_and_waiters_as_text(seen.remaining_lease, seen.waiters));
    if let Some(record) = record {
        json["token"] = json!(record.token);
        json["queue"] = json!(record.queue);
        text.push_str(&token_and_queue_as_text(&record));
    }
    Ok((json, text))
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
    text.push_str(&lease_and_waiters_as_text(seen.remaining_lease, seen.waiters));
    text.push_str(&token_and_queue_as_text(seen));
    text
}

fn lease_and_waiters_as_text(left: Option<Duration>, waiters: Option<u64>) -> String {
    let left = if left.is_some() { format!("lease    {}\n", lease(left)) } else { String::new() };
    format!("{left}waiters  {}\n", number(waiters))
}

fn token_and_queue_as_text(seen: &Description) -> String {
    let mut text = seen.token.map_or_else(String::new, |token| format!("token    {token}\n"));
    for (at, owner) in (1..).zip(&seen.queue) {
        text.push_str(&format!("queue    {at}. {}\n", shown(owner)));
    }
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
