//! Reads `INFO` on a new connection: the server's version, its run id, its role, and settings that endanger locks. A server that
//! is too old is an error. A setting that may be intended is a warning.

use super::{ErrorClass, classify, connect_error, into_server_error, sanitized};
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::time::Duration;
use tracing::{debug, warn};

/// The facts about the server behind a connection. A user without `INFO` knows none of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// A random id of this run of the server.
    pub run_id: Option<String>,
    /// The master's address, if the server is a replica.
    pub master: Option<String>,
    /// A lower bound of the server's uptime, by its own clock. Zero if unknown.
    pub uptime: Duration,
    /// The server writes the expiry of a `RESTORE` to its append-only file as an absolute time: Redis 7.0 and later, and Kvrocks. An
    /// earlier Redis writes the relative expiry, and so revives locks that expired while it was down. False if the version is unknown.
    pub logs_absolute_expiry: bool,
}

/// Runs `INFO`, before `until`. `limit` is the whole time of the connect, for the error.
pub(super) async fn handshake(
    mut connection: MultiplexedConnection,
    node: &str,
    until: Moment,
    limit: Duration,
) -> Result<Server> {
    let info = redis::cmd("INFO");
    let answer = time::timeout(until.remaining(), connection.send_packed_command(&info)).await;
    let (phase, name) = (Phase::Connect, node.to_owned());
    let text = match answer.map(into_server_error) {
        Err(_) => return Err(Error::TimedOut { phase, node: name, waited: limit }),
        Ok(Ok(Value::BulkString(text))) => String::from_utf8_lossy(&text).into_owned(),
        Ok(Ok(Value::VerbatimString { text, .. })) => text,
        // For example an echo of the command.
        Ok(Ok(_)) => {
            let message =
                "the reply to INFO is not text: check that the address is that of a Redis server".into();
            return Err(Error::Refused { phase, node: name, code: "PROTOCOL".into(), message });
        }
        Ok(Err(error)) => {
            return match classify(&error) {
                // A user without the permission for INFO can still lock.
                ErrorClass::Refused { code, message } if code == "NOPERM" => {
                    debug!(node, message, "the user may not run INFO: the server's version is unknown");
                    Ok(Server::default())
                }
                _ => Err(connect_error(&error, node)),
            };
        }
    };
    parse_server(&text, node)
}

/// Parses the reply to `INFO`, and warns of settings that endanger locks.
pub(super) fn parse_server(text: &str, node: &str) -> Result<Server> {
    let found =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let field = |name: &str| found(name).map(sanitized);
    let version = &*field("redis_version").unwrap_or_default();
    // Kvrocks reports an old version of Redis, and has none of its limits.
    let is_kvrocks = found("kvrocks_version").is_some();
    // Before Redis 5, a script that has called TIME cannot write.
    if !is_kvrocks && number(version).is_some_and(|number| number < (5, 0)) {
        let message = format!("Redis {version} is too old: upgrade to 5.0 or later");
        return Err(Error::Refused {
            phase: Phase::Connect,
            node: node.to_owned(),
            code: "VERSION".into(),
            message,
        });
    }
    // Records have an expiry, so the `volatile-` policies, which spare keys without one, evict locks even sooner.
    if let Some(policy) = field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        warn!(
            node,
            policy, "the server may evict the records of held locks: set maxmemory-policy noeviction"
        );
    }
    let master = (found("role") == Some("slave")).then(|| {
        format!("{}:{}", field("master_host").unwrap_or_default(), field("master_port").unwrap_or_default())
    });
    // The server subtracts whole seconds, so the result may exceed the real uptime by up to a second.
    let uptime = field("uptime_in_seconds").and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    Ok(Server {
        run_id: field("run_id"),
        master,
        uptime: Duration::from_secs(uptime.saturating_sub(1)),
        logs_absolute_expiry: is_kvrocks || number(version).is_some_and(|number| number >= (7, 0)),
    })
}

fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}
