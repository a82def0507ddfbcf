//! What the user of a new client may not do, found out before a lock needs it. Told as warnings, because a user may be
//! granted commands for some keys only and not for the one that is tried; scripts at all are an error.

use crate::connection::{Connection, Limit, plain};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys::LockKeys;
use crate::protocol::script;
use std::time::Duration;
use tracing::{debug, warn};

/// Runs each command that the scripts use, on the key of a lock that there is not.
///
/// # Errors
/// [`Error::Refused`](crate::Error::Refused) if the server refuses to run scripts.
pub(crate) async fn check(connection: &Connection, keys: &LockKeys, limit: Duration) -> Result<()> {
    let mut request = script::probe(keys.record(), keys.channel());
    let answer = match connection.call_within(&mut request, Limit::For(limit)).await {
        Ok(answer) => answer,
        Err(failure) if failure.code().is_some() => return Err(connection.error(failure, Phase::Connect)),
        Err(failure) => {
            let error = connection.error(failure, Phase::Connect);
            debug!(%error, "the user's permissions are not known");
            return Ok(());
        }
    };
    let refused = script::refused(&answer.reply).map_err(|_| connection.strange(Phase::Connect))?;
    let node = connection.node();
    let (mut commands, mut channel) = (Vec::new(), false);
    for (name, error) in &refused {
        match error.as_str() {
            // The words of Redis 6 and 7.0, and those from 7.2 on.
            e if e.contains("run this command") || e.contains("permissions to run") => commands.push(&**name),
            e if e.contains("channel") => channel = true,
            // Not known from INFO, where that is not permitted.
            e if e.starts_with("READONLY") => {
                let (phase, node, code) = (Phase::Connect, node.to_owned(), "READONLY".to_owned());
                let message = "it is a replica".to_owned();
                return Err(Error::Refused { phase, node, code, message });
            }
            e => debug!(node, command = name, error = plain(e), "refused"),
        }
    }
    if !commands.is_empty() {
        warn!(node, commands = commands.join(" "), "locks need commands that the user may not run");
    }
    if channel {
        warn!(node, channel = ?keys.channel(), "locks need to publish, and the user may not on this channel");
    }
    Ok(())
}
