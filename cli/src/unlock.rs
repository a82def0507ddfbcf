//! `force-unlock`: a release of a lock, whoever holds it.

use crate::args::{Connection, ForceUnlock, Kind};
use crate::connect::connect;
use crate::failure::Failure;
use crate::inspect::holders_as_json;
use crate::locks::{self, held_by};
use crate::output::{line, write_out};
use crate::permissions::{Wanted, explained};
use crate::table::shown;
use redisson_lock::{Client, Holder, Lock, Owner, RecordKind};
use serde_json::json;
use std::io::{self, IsTerminal, Write};

/// Releases the lock.
pub async fn force_unlock(unlock: &ForceUnlock, connection: &Connection) -> Result<u8, Failure> {
    let client = connect(connection).await?;
    let kind = match unlock.kind.kind() {
        Some(kind) => kind,
        None => kind_of(&client, &unlock.name).await?,
    };
    let lock = locks::lock(&client, kind, &unlock.name, &Owner::unique());
    let seen = lock.inspect().await?;
    let (name, holders) = (shown(lock.name()), held_by(&seen.holders));
    let mut is_held = !seen.holders.is_empty();
    if !unlock.yes && is_held {
        if !confirmed(&name, &holders)? {
            return Err(Failure::Usage(format!("`{name}` is unchanged: the answer was not `yes`")));
        }
        // The answer may come long after the question.
        is_held = is_still_held(&lock, &seen.holders).await?;
    }
    // A free lock may have been acquired since, by a holder whom nobody has confirmed.
    let released = (unlock.yes || is_held) && lock.force_unlock().await?;
    if unlock.json {
        let holders = holders_as_json(&seen.holders);
        line(&json!({"name": lock.name(), "released": released, "holders": holders}))?;
    } else if released {
        write_out(format!("released `{name}`{holders}\n"))?;
    } else {
        write_out(format!("`{name}` was free\n"))?;
    }
    Ok(0)
}

/// Whether the lock still has these holders. Other holders are a failure, because nobody has confirmed the end of their holds.
async fn is_still_held(lock: &Lock, before: &[Holder]) -> Result<bool, Failure> {
    let now = lock.inspect().await?.holders;
    if let Some(new) = now.iter().find(|now| !before.iter().any(|before| before.owner() == now.owner())) {
        return Err(Failure::Busy(format!(
            "`{}` is unchanged, because it has another holder now{}: repeat the command to release it",
            shown(lock.name()),
            held_by(std::slice::from_ref(new))
        )));
    }
    Ok(!now.is_empty())
}

/// The kind that the record shows. A free lock may be of any kind.
async fn kind_of(client: &Client, name: &str) -> Result<Kind, Failure> {
    let seen = match client.describe(name).await {
        Ok(seen) => seen,
        Err(error) => return Err(explained(client, Wanted::Lock(name), error.into()).await),
    };
    let remedy = match seen.map(|seen| seen.kind) {
        None | Some(RecordKind::Lock) => return Ok(Kind::Lock),
        Some(RecordKind::Fair) => return Ok(Kind::Fair),
        Some(RecordKind::Fenced) => return Ok(Kind::Fenced),
        Some(RecordKind::Read) => return Ok(Kind::Read),
        Some(RecordKind::Write) => return Ok(Kind::Write),
        Some(RecordKind::Value) => return Ok(Kind::Value),
        Some(RecordKind::Text) => "a string that may be no lock: use --kind value if it is one",
        Some(RecordKind::Group) => "a group lock, whose holders this command cannot end",
        Some(RecordKind::Latch) => "a latch: use `latch count-down`",
        Some(_) => "a semaphore or a latch: use `semaphore release` or `latch count-down`",
    };
    Err(Failure::Usage(format!("`{}` is unchanged, because it is {remedy}", shown(name))))
}

fn confirmed(name: &str, holders: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "`{name}` is unchanged, because nobody can confirm on a terminal{holders}: pass --yes"
        )));
    }
    write!(io::stderr(), "Release `{name}`{holders}? The holder may still be at work. Type yes: ")
        .map_err(|error| Failure::system("cannot ask on standard error", &error))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
