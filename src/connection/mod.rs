//! Everything that touches the redis crate: addresses, the command connection under its supervisor, and the
//! subscriber. Nothing outside this folder may name that crate, except for its re-export.
//!
//! [`Connection`] has the rules by which a request is sent; a `node` keeps one server connected, which a `finder` looks for;
//! a `link` is one socket.

mod address;
mod cluster;
mod commands;
mod discovery;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod link;
mod node;
mod nodes;
pub mod permissions;
mod places;
pub mod pubsub;
mod redirects;
mod replicas;
#[cfg_attr(any(not(feature = "tls"), all(test, shuttle)), path = "not_secure.rs")]
mod secure;
mod server;
mod server_text;
mod servers;
#[cfg_attr(all(test, shuttle), allow(dead_code))]
mod sharded;
mod shortcuts;
#[cfg_attr(all(test, shuttle), path = "../../tests/shuttle/socket.rs")]
mod socket;
#[cfg_attr(all(test, shuttle), path = "../../tests/shuttle/subscriber.rs")]
mod subscriber;

use address::{Access, Address};
pub(crate) use commands::{Answer, Connection, Failure, Limit};
#[cfg(measuring)]
pub(crate) use link::packed;
pub(crate) use places::{SubscriptionEndpoint, SubscriptionEndpoints};
pub(crate) use redis::IntoConnectionInfo;
pub(crate) use server_text::plain;
pub(crate) use servers::Servers;
pub(crate) use subscriber::{Messages, Subscriber, Unsubscribed};

use crate::error::{Error, Phase};
use crate::protocol::keys;
use crate::runtime::sync::{random, time};
use redirects::Redirect;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What an error of the redis crate means for the request that got it.
enum Meaning {
    /// The server does not know the digest: send the source.
    NoScript,
    /// The request did not run, and may at another node.
    Elsewhere(Redirect),
    /// The request did not run, and may do so a little later.
    NotNow { code: String, message: String },
    /// The server refused for good; nothing was written.
    Refused { code: String, message: String },
    /// It may or may not have run.
    Unknown { reason: String },
}

fn meaning(error: &RedisError) -> Meaning {
    const NOT_NOW: [&str; 7] =
        ["LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "NOREPLICAS"];
    // Before Redis 7 an error inside a script came back as ERR with the real code further on in the text.
    const IN_SCRIPT: [&str; 6] = ["WRONGTYPE ", "OOM ", "NOPERM ", "READONLY ", "MISCONF ", "NOREPLICAS "];
    // Where a permission is missing inside a script: up to Redis 7.0, and from 7.2 on.
    const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];
    // Before Redis 7 the place in the script stands there in the place of a code.
    const PLACE: &str = "@user_script:";
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
        return Meaning::NoScript;
    }
    if let Some((address, slot)) = error.redirect_node()
        && let Some((host, port)) = address.rsplit_once(':')
        && let Ok(port) = port.parse()
        && slot < keys::SLOTS
        && let Some(host) = server_text::host(host)
    {
        let ask = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        return Meaning::Elsewhere(Redirect { slot, host, port, ask });
    }
    let Some(code) = server_text::code(error) else {
        return Meaning::Unknown { reason: server_text::of_error(error) };
    };
    let (code, detail) = (code.as_str(), server_text::detail(error).unwrap_or_default());
    let detail = detail.as_str();
    // The first of them: what follows is its text, which may have any word.
    let inner = IN_SCRIPT.iter().filter_map(|c| Some((c.trim(), detail.find(c)?))).min_by_key(|(_, at)| *at);
    let (code, message) = match inner {
        Some((inner, at)) if code == "ERR" => (inner, &detail[at + inner.len() + 1..]),
        None if ["ERR", PLACE].contains(&code) && NOT_PERMITTED.iter().any(|said| detail.contains(said)) => {
            ("NOPERM", detail)
        }
        _ => (code, detail),
    };
    let (code, message) = (code.to_owned(), message.trim().to_owned());
    if NOT_NOW.contains(&code.as_str()) {
        Meaning::NotNow { code, message }
    } else {
        Meaning::Refused { code, message }
    }
}

/// With an error that the server sent in the place of a value as an error.
fn told(answer: Result<Value, RedisError>) -> Result<Value, RedisError> {
    match answer {
        Ok(Value::ServerError(error)) => Err(error.into()),
        answer => answer,
    }
}

/// Why no connection could be made, as the caller sees it.
fn connect_error(error: &RedisError, node: &str) -> Error {
    let (phase, node) = (Phase::Connect, node.to_owned());
    match meaning(error) {
        // The crate replaces the server's code where it could not choose a database.
        Meaning::Refused { message, .. } if message.starts_with("Authentication required") => {
            Error::Refused { phase, node, code: "NOAUTH".into(), message }
        }
        Meaning::Refused { message, .. } if message.contains("no permissions to run") => {
            Error::Refused { phase, node, code: "NOPERM".into(), message }
        }
        Meaning::Refused { code, message } | Meaning::NotNow { code, message } => {
            Error::Refused { phase, node, code, message }
        }
        // A refused password is an error of the crate itself; its text holds what the server said.
        _ if error.kind() == ErrorKind::AuthenticationFailed => Error::Refused {
            phase,
            node,
            code: "WRONGPASS".into(),
            message: server_text::detail(error).unwrap_or("user name or password refused".into()),
        },
        _ => match io_error(error).and_then(secure::distrust) {
            // The names in the server's certificate are its own words, too.
            Some(reason) => Error::Untrusted { node, reason: plain(&reason) },
            None => Error::Unavailable { phase, node, reason: server_text::of_error(error) },
        },
    }
}

/// That of the socket, if it is one.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let source = std::error::Error::source(error)?;
    let shared = source.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>();
    shared.map_or(source.downcast_ref(), |shared| shared.downcast_ref())
}

/// A delay that doubles from try to try, with a random half so that clients do not come back in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    min: Duration,
    max: Duration,
}

impl Backoff {
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
            let error = told(redis::parse_redis_value(said.as_bytes())).unwrap_err();
            let Meaning::Refused { code, .. } = meaning(&error) else { panic!("{said} is a refusal") };
            assert_eq!(code, expected);
        }
    }
}
