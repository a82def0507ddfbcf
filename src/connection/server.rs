//! What a new connection learns of its server before it is used: whether it is new enough, which life of it this is,
//! and what about it would break locks. What may be meant is a warning and not an error.

use super::{Meaning, connect_error, meaning, plain, told};
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::time::Duration;
use tracing::{debug, warn};

/// The server at the other end.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// Drawn anew at each start of a server. Not known to a user without INFO.
    pub run_id: Option<String>,
    /// It says that it is a replica, and of whom.
    pub master: Option<String>,
    /// It has been running for at least so long, by its own clock. Zero where that is not known.
    pub uptime: Duration,
    /// It writes down when a record that `RESTORE` made ends, and not for how long it lives: Redis from 7.0 on. An earlier
    /// one with an append-only file revives locks that ended while it was down. Not so where the version is not known.
    pub logs_ends: bool,
}

/// Asks the server about itself. `limit` is the time that `until` is the end of.
pub(super) async fn meet(
    mut connection: MultiplexedConnection,
    node: &str,
    until: Moment,
    limit: Duration,
) -> Result<Server> {
    let info = redis::cmd("INFO");
    let answer = time::timeout(until.remaining(), connection.send_packed_command(&info)).await;
    let (phase, name) = (Phase::Connect, node.to_owned());
    let text = match answer.map(told) {
        Err(_) => return Err(Error::TimedOut { phase, node: name, waited: limit }),
        Ok(Ok(Value::BulkString(text))) => String::from_utf8_lossy(&text).into_owned(),
        Ok(Ok(_)) => return Ok(Server::default()),
        Ok(Err(error)) => {
            return match meaning(&error) {
                // A user without INFO may still lock.
                Meaning::Refused { code, message } if code == "NOPERM" => {
                    debug!(node, message, "the server's version is not known");
                    Ok(Server::default())
                }
                _ => Err(connect_error(&error, node)),
            };
        }
    };
    read(&text, node)
}

/// What the server's own account of itself means.
pub(super) fn read(text: &str, node: &str) -> Result<Server> {
    let found =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let field = |name: &str| found(name).map(plain);
    let version = &*field("redis_version").unwrap_or_default();
    // A server older than 5 lets no script write that has asked for the time.
    if number(version).is_some_and(|number| number < (5, 0)) {
        let message = format!("Redis {version} is too old: 5.0 or later is needed");
        return Err(Error::Refused {
            phase: Phase::Connect,
            node: node.to_owned(),
            code: "VERSION".into(),
            message,
        });
    }
    // A record has an expiry, so a policy that spares keys without one evicts locks all the sooner.
    if let Some(policy) = field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        warn!(
            node,
            policy,
            "the server may evict the records of locks that are held: set maxmemory-policy noeviction"
        );
    }
    let master = (found("role") == Some("slave")).then(|| {
        format!("{}:{}", field("master_host").unwrap_or_default(), field("master_port").unwrap_or_default())
    });
    // The difference of two whole seconds, so it may be ahead of the time that has passed.
    let uptime = field("uptime_in_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    Ok(Server {
        run_id: field("run_id"),
        master,
        uptime: Duration::from_secs(uptime.saturating_sub(1)),
        logs_ends: number(version).is_some_and(|number| number >= (7, 0)),
    })
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}
