//! `list`: the locks, semaphores and latches that there are now.

use crate::args::{Connection, List};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::inspect::as_json;
use crate::output::{line, say, write_out};
use crate::permissions::{Wanted, explained};
use crate::table::{aligned, lease, number, shown};
use redisson_lock::{Description, Holder};
use tokio_stream::StreamExt;

/// Lists the locks, in the order of their names.
pub async fn list(list: &List, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| {
        let (mut found, mut unclear) = (Vec::new(), 0);
        let mut locks = client.locks(&list.pattern);
        while let Some(seen) = locks.next().await {
            let seen = match seen {
                Ok(seen) => seen,
                Err(error) => {
                    return Err(explained(client, Wanted::Pattern(&list.pattern), error.into()).await);
                }
            };
            if list.all || seen.kind.is_certain() {
                found.push(seen);
            } else {
                unclear += 1;
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        if list.json {
            for seen in &found {
                line(&as_json(seen))?;
            }
        } else if !found.is_empty() {
            let titles = ["NAME", "KIND", "HOLDER", "COUNT", "LEASE", "WAITERS"].map(str::to_owned);
            let rows: Vec<_> = std::iter::once(titles).chain(found.iter().map(row)).collect();
            write_out(aligned(&rows))?;
        }
        if unclear > 0 {
            say(format_args!(
                "{unclear} strings may be semaphores, latches or value locks: show them with --all"
            ));
        }
        Ok(0)
    })
    .await
}

/// Returns the name of the holder's client, or the owner id.
pub fn holder_name(holder: &Holder) -> String {
    holder.client().map_or_else(|| shown(holder.owner()), ToString::to_string)
}

fn row(seen: &Description) -> [String; 6] {
    let (holder, count) = match (seen.holders.as_slice(), seen.count, seen.taken) {
        ([], Some(free), Some(taken)) => (format!("{taken} taken"), free.to_string()),
        ([], Some(count), None) => ("-".to_owned(), count.to_string()),
        ([], None, _) => ("-".to_owned(), "0".to_owned()),
        ([only], ..) => (holder_name(only), only.count().to_string()),
        ([first, others @ ..], ..) => {
            (format!("{} and {} more", holder_name(first), others.len()), first.count().to_string())
        }
    };
    let left = lease(seen.remaining_lease);
    [shown(&seen.name), seen.kind.to_string(), holder, count, left, number(seen.waiters)]
}
