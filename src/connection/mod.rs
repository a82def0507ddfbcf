//! The connection layer: addresses, supervised command connections, and the subscriber. No file outside this folder may name
//! the redis crate, except `lib.rs`, which re-exports it.
//!
//! [`Connection`] sends requests and decides when to send them again. A `Node` keeps one server connected, a `Discovery` finds
//! that server, and a `Link` is one socket.

mod address;
mod cluster;
mod coalesced;
mod commands;
mod discovery;
mod endpoints;
mod exchange;
mod fast_path;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod layout;
mod link;
mod masters;
mod node;
mod nodes;
pub(crate) mod permissions;
pub(crate) mod pubsub;
mod pulse;
mod redirects;
mod replicas;
mod server;
mod server_text;
mod servers;
#[cfg_attr(all(test, shuttle), allow(dead_code))]
mod sharded;
#[cfg_attr(all(test, shuttle), path = "../../tests/shuttle/socket.rs")]
mod socket;
#[cfg_attr(all(test, shuttle), path = "../../tests/shuttle/subscriber.rs")]
mod subscriber;
#[cfg_attr(any(not(feature = "tls"), all(test, shuttle)), path = "no_tls.rs")]
mod tls;

use address::{Access, Address};
pub(crate) use commands::{Absence, Answer, Connection, Failure, Limit, Route, SendError, Sent};
pub(crate) use endpoints::{SubscriptionEndpoint, SubscriptionEndpoints};
#[cfg(measuring)]
pub(crate) use link::packed;
pub(crate) use masters::Master;
pub(crate) use server_text::sanitized;
pub use servers::Servers;
pub(crate) use servers::Topology;
pub(crate) use subscriber::{Messages, SubscribeError, Subscriber};

use crate::error::{Error, NOT_NOW, Phase};
use crate::protocol::keys;
use crate::runtime::sync::{random, time};
use redirects::Redirect;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How an error of the redis crate affects the request that failed.
enum ErrorClass {
    /// The server does not know the digest: send the source.
    NoScript,
    /// The request did not run. Another node may run it.
    Elsewhere(Redirect),
    /// The request did not run. The same node may run it later.
    NotNow { code: String, message: String },
    /// The server refused the request for good, and wrote nothing.
    Refused { code: String, message: String },
    /// The request may or may not have run.
    Unknown { reason: String },
}

fn classify(error: &RedisError) -> ErrorClass {
    // Before Redis 7, an error inside a script has the code ERR, and the real code comes later in the message.
    const IN_SCRIPT: [&str; 6] = ["WRONGTYPE ", "OOM ", "NOPERM ", "READONLY ", "MISCONF ", "NOREPLICAS "];
    // A permission that is missing inside a script: the wording up to Redis 7.0, and from 7.2 on.
    const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];
    // Before Redis 7, the position in the script replaces the code.
    const POSITION: &str = "@user_script:";
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
        return ErrorClass::NoScript;
    }
    if let Some((address, slot)) = error.redirect_node()
        && let Some((host, port)) = address.rsplit_once(':')
        && let Ok(port) = port.parse()
        && slot < keys::SLOTS
        && let Some(host) = server_text::host(host)
    {
        let ask = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        return ErrorClass::Elsewhere(Redirect { slot, host, port, ask });
    }
    let Some(code) = server_text::code(error) else {
        return ErrorClass::Unknown { reason: server_text::of_error(error) };
    };
    let (code, detail) = (code.as_str(), server_text::detail(error).unwrap_or_default());
    let detail = detail.as_str();
    // Only the first code counts. It precedes the script's message, which may contain any word.
    let inner = IN_SCRIPT.iter().filter_map(|c| Some((c.trim(), detail.find(c)?))).min_by_key(|(_, at)| *at);
    let (code, message) = match inner {
        Some((inner, at)) if code == "ERR" => (inner, &detail[at + inner.len() + 1..]),
        None if ["ERR", POSITION].contains(&code)
            && NOT_PERMITTED.iter().any(|said| detail.contains(said)) =>
        {
            ("NOPERM", detail)
        }
        _ => (code, detail),
    };
    let (code, message) = (code.to_owned(), message.trim().to_owned());
    if NOT_NOW.contains(&code.as_str()) {
        ErrorClass::NotNow { code, message }
    } else {
        ErrorClass::Refused { code, message }
    }
}

/// Turns a server error that the redis crate returned as a value into an `Err`.
fn into_server_error(answer: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match answer {
        Ok(Value::ServerError(error)) => Err(error.into()),
        answer => answer,
    }
}

/// The public error for a failed connect to `node`.
fn connect_error(error: &RedisError, node: &str) -> Error {
    let (phase, node) = (Phase::Connect, node.to_owned());
    match classify(error) {
        // The redis crate replaces the server's code if SELECT failed.
        ErrorClass::Refused { message, .. } if message.starts_with("Authentication required") => {
            Error::Refused { phase, node, code: "NOAUTH".into(), message }
        }
        ErrorClass::Refused { message, .. } if message.contains("no permissions to run") => {
            Error::Refused { phase, node, code: "NOPERM".into(), message }
        }
        ErrorClass::Refused { code, message } | ErrorClass::NotNow { code, message } => {
            Error::Refused { phase, node, code, message }
        }
        // The redis crate has an error of its own for a refused password. It may lack the server's message, and then stands for any refusal
        // before the first command.
        _ if error.kind() == ErrorKind::AuthenticationFailed => Error::Refused {
            phase,
            node,
            code: "WRONGPASS".into(),
            message: server_text::detail(error)
                .unwrap_or("the user name or password is refused, or the server has too many clients".into()),
        },
        _ => match io_error(error).and_then(tls::distrust) {
            // The reason may contain names from the certificate, which the server chose.
            Some(reason) => Error::Untrusted { node, reason: sanitized(&reason) },
            None => {
                let source = io_error(error).map(|error| Arc::new(without_text(error)));
                Error::Unavailable { phase, node, reason: server_text::of_error(error), source }
            }
        },
    }
}

/// The I/O error that caused `error`, if one did.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    let shared = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
    shared.map_or(source.downcast_ref(), |shared| shared.downcast_ref())
}

/// The same error without its text, which may come from a server.
fn without_text(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// A delay that doubles with each attempt. Half of it is random, so that clients do not retry in step.
#[derive(Debug)]
pub(crate) struct RetryDelay {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl RetryDelay {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, min, max }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }

    pub(crate) async fn wait(&mut self) {
        let half = self.next / 2;
        let random = random() % 1024;
        time::sleep(half + half.mul_f64(random as f64 / 1024.0)).await;
        self.next = (self.next * 2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_code_in_the_text_of_a_script_counts() {
        for (said, expected) in [
            ("-ERR Error running script: @user_script:4: OOM command not allowed\r\n", "OOM"),
            ("-ERR Error running script: @user_script:4: NOPERM no right to WRONGTYPE keys\r\n", "NOPERM"),
            ("-ERR unknown command\r\n", "ERR"),
        ] {
            let error = into_server_error(redis::parse_redis_value(said.as_bytes())).unwrap_err();
            let ErrorClass::Refused { code, .. } = classify(&error) else { panic!("{said} is a refusal") };
            assert_eq!(code, expected);
        }
    }
}
