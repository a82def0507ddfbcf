//! Requests for the keys by which clients register themselves.

use super::{Arg, Repeat, Reply, Request, Undecodable, Verb};
use crate::holder::{ClientInfo, LONGEST_VALUE};
use std::sync::Arc;

/// Writes the key of a client.
pub(crate) fn register(key: &Arc<str>, value: &Arc<str>, expiry_ms: u64) -> Request {
    let args = vec![Arg::Text(value.clone()), Arg::Literal("PX"), Arg::Number(expiry_ms)];
    Request::new(Verb::Command("SET"), vec![key.clone()], args, Repeat::Free, None)
}

/// Deletes the key of a client.
pub(crate) fn unregister(key: &Arc<str>) -> Request {
    Request::new(Verb::Command("DEL"), vec![key.clone()], Vec::new(), Repeat::Free, None)
}

/// Reads the key of a client. A value that is too long is cut.
pub(crate) fn client(key: &Arc<str>) -> Request {
    Request::read("GETRANGE", key, vec![Arg::Number(0), Arg::Number(LONGEST_VALUE as u64)])
}

/// Reply of [`client`]: `None` if the key does not describe a client.
pub(crate) fn described_client(reply: &Reply) -> Result<Option<ClientInfo>, Undecodable> {
    match reply {
        Reply::Text(value) => Ok(ClientInfo::parse(value)),
        _ => Err(Undecodable),
    }
}
