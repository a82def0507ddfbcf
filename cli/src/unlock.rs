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
    let (mut lock, holders) = look(&client, unlock).await?;
    let (name, held) = (shown(lock.name()), held_by(&holders));
    let mut is_held = !holders.is_empty();
    if !unlock.yes && is_held {
        if !confirmed(&name, &held)? {
            return Err(Failure::Usage(format!("`{name}` is unchanged: the answer was not `yes`")));
        }
        // The answer may come long after the question. The kind is read again, too: a fair lock shows its kind only while a client waits.
        let now;
        (lock, now) = look(&client, unlock).await?;
        is_held = is_still_held(&name, &now, &holders)?;
    }
    // A free lock may have been acquired since, by a holder whom nobody has confirmed.
    let is_asked = unlock.yes || is_held;
    let released = is_asked && lock.force_unlock().await?;
    if is_asked && !released {
        // Each side of a read/write lock is released by itself.
        let (_, left) = look(&client, unlock).await?;
        if !left.is_empty() {
            let held = held_by(&left);
            return Err(Failure::Busy(format!(
                "`{name}` is unchanged, because its hold is of another kind or side{held}"
            )));
        }
    }
    if unlock.json {
        let holders = holders_as_json(&holders);
        line(&json!({"name": lock.name(), "released": released, "holders": holders}))?;
    } else if released {
        write_out(format!("released `{name}`{held}\n"))?;
    } else {
        write_out(format!("`{name}` was free\n"))?;
    }
    Ok(0)
}

/// The lock as a handle of its kind, and its holders.
async fn look(client: &Client, unlock: &ForceUnlock) -> Result<(Lock, Vec<Holder>), Failure> {
    let kind = match unlock.kind.kind() {
        Some(kind) => kind,
        None => kind_of(client, &unlock.name).await?,
    };
    let lock = locks::lock(client, kind, &unlock.name, &Owner::unique());
    let holders = lock.inspect().await?.holders;
    Ok((lock, holders))
}

/// Whether the lock still has these holders. Other holders are a failure, because nobody has confirmed the end of their holds.
fn is_still_held(name: &str, now: &[Holder], before: &[Holder]) -> Result<bool, Failure> {
    if let Some(new) = now.iter().find(|now| !before.iter().any(|before| before.owner() == now.owner())) {
        return Err(Failure::Busy(format!(
            "`{name}` is unchanged, because it has another holder now{}: repeat the command to release it",
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
    Err(Failure::Usage(format!("`{name}` is unchanged, because it is {remedy}")))
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
