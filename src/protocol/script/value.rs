//! Requests of the value lock, a string with the holder's token. Their replies are decoded as those of the reentrant lock.

use super::lock::hand_off_by;
use super::{
    Arg, Delete, FIRST, FastCommand, FastPath, Repeat, Reply, Request, Undecodable, VALUE_ACQUIRE,
    VALUE_FORCE_UNLOCK, VALUE_HAND_OFF, VALUE_INSPECT, VALUE_RELEASE, Verb,
};
use crate::holder::Holder;
use std::sync::Arc;

/// Sets the token.
pub(crate) fn acquire_value(record: &Arc<str>, token: &Arc<str>, lease_ms: u64) -> Request {
    let args = vec![Arg::Text(token.clone()), Arg::Number(lease_ms), FIRST];
    let fast_path = FastPath::new(FastCommand::Set { value: token.clone(), lease_ms });
    Request::new(Verb::Script(&VALUE_ACQUIRE), vec![record.clone()], args, Repeat::Flagged, fast_path)
}

/// Deletes the token.
pub(crate) fn release_value(record: &Arc<str>, token: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(token.clone()), Arg::Text(channel.clone())];
    let delete = Delete::IfEqual(token.clone());
    let fast_path = FastPath::new(FastCommand::Transaction { delete, channel: channel.clone() });
    Request::new(Verb::Script(&VALUE_RELEASE), vec![record.clone()], args, Repeat::Free, fast_path)
}

/// Replaces the token `from` by `to`.
pub(crate) fn hand_off_value(
    record: &Arc<str>,
    from: &Arc<str>,
    to: &Arc<str>,
    lease: Arg,
    channel: &Arc<str>,
) -> Request {
    hand_off_by(&VALUE_HAND_OFF, record, [from, to], lease, channel)
}

/// Deletes the token, whoever holds the lock. Must not be sent twice.
pub(crate) fn force_unlock_value(record: &Arc<str>, channel: &Arc<str>) -> Request {
    Request::script(&VALUE_FORCE_UNLOCK, record, vec![Arg::Text(channel.clone())], Repeat::Never)
}

/// Reads the token, its TTL, and the number of subscriptions. The reply is that of [`inspect`](super::inspect()).
pub(crate) fn inspect_value(record: &Arc<str>, channel: &Arc<str>) -> Request {
    Request::script(&VALUE_INSPECT, record, vec![Arg::Text(channel.clone())], Repeat::Free)
}

/// Reads the token.
pub(crate) fn token(record: &Arc<str>) -> Request {
    Request::read("GET", record, Vec::new())
}

pub(crate) fn held_by_token(reply: &Reply) -> Result<Option<Holder>, Undecodable> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Text(token) => Ok(Some(Holder::new(String::from_utf8_lossy(token).into_owned(), 1))),
        _ => Err(Undecodable),
    }
}
