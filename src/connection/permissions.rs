//! Checks the permissions of a new client's user before a lock needs them. A missing permission is a warning, because it may be
//! granted for other keys than the one that is tried. A user that may not run scripts at all is an error.

use crate::connection::{Connection, Limit, sanitized};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys::LockKeys;
use crate::protocol::script;
use std::time::Duration;
use tracing::{debug, warn};

/// Tries the commands of a reentrant lock on a key that does not exist.
///
/// # Errors
/// [`Error::Refused`] if the server refuses to run scripts.
pub(crate) async fn check(connection: &Connection, keys: &LockKeys, limit: Duration) -> Result<()> {
    let mut request = script::permission_probe(keys.record(), keys.channel());
    let answer = match connection.call_within(&mut request, Limit::For(limit)).await {
        Ok(answer) => answer,
        Err(failure) if failure.is_refusal() => return Err(connection.error(failure, Phase::Connect)),
        Err(failure) => {
            let error = connection.error(failure, Phase::Connect);
            debug!(%error, "could not check the user's permissions");
            return Ok(());
        }
    };
    let refused = script::refused(&answer.reply).map_err(|_| connection.protocol_error(Phase::Connect))?;
    let node = connection.node();
    let (mut commands, mut channel) = (Vec::new(), false);
    for (name, error) in &refused {
        match error.as_str() {
            // The wording of Redis 6 and 7.0, and of 7.2 and later.
            e if e.contains("run this command") || e.contains("permissions to run") => commands.push(&**name),
            e if e.contains("channel") => channel = true,
            // A user without INFO learns only here that the server is a replica.
            e if e.starts_with("READONLY") => {
                let (phase, node, code) = (Phase::Connect, node.to_owned(), "READONLY".to_owned());
                let message = "it is a replica: name its master".to_owned();
                return Err(Error::Refused { phase, node, code, message });
            }
            e => {
                debug!(node, command = name, error = sanitized(e), "a command failed in the permission check")
            }
        }
    }
    if !commands.is_empty() {
        warn!(
            node,
            commands = commands.join(" "),
            "locks need commands that the user may not run: grant them"
        );
    }
    if channel {
        warn!(node, channel = ?keys.channel(), "locks need to publish, but the user may not on this channel: grant it");
    }
    Ok(())
}
