//! Requests that only read or probe, and their replies.

use super::{
    Arg, COUNT_SUBSCRIPTIONS, LOCK_INSPECT, PERMISSION_PROBE, Repeat, Reply, Request, Undecodable, Verb, ttl,
};
use crate::holder::Holder;
use std::sync::Arc;
use std::time::Duration;

/// Finds the commands that the user may not run. No lock may have the name `record`.
pub(crate) fn permission_probe(record: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(record.clone()), Arg::Text(channel.clone())];
    Request::new(Verb::Script(&PERMISSION_PROBE), Vec::new(), args, Repeat::Free, None)
}

/// Reply of [`permission_probe`]: the refused commands, each with the server's error.
pub(crate) fn refused(reply: &Reply) -> Result<Vec<(String, String)>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let mut texts = Vec::new();
    for item in items {
        let Reply::Text(text) = item else { return Err(Undecodable) };
        texts.push(String::from_utf8_lossy(text).into_owned());
    }
    Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

/// Counts the subscriptions of a channel, at the node of its slot.
pub(crate) fn count_subscriptions(channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(channel.clone())];
    Request::new(Verb::Script(&COUNT_SUBSCRIPTIONS), Vec::new(), args, Repeat::Free, None)
}

/// Reply of [`count_subscriptions`]: `None` if the number is unknown.
pub(crate) fn subscriptions(reply: &Reply) -> Result<Option<u64>, Undecodable> {
    reply.int().map(|n| u64::try_from(n).ok())
}

/// Reads about `count` fields of a lock's record, its TTL, and the number of subscriptions, all at once.
pub(crate) fn inspect(record: &Arc<str>, channel: &Arc<str>, count: &'static str) -> Request {
    let args = vec![Arg::Text(channel.clone()), Arg::Literal(count)];
    Request::script(&LOCK_INSPECT, record, args, Repeat::Free)
}

/// Reply of [`inspect`] and the same requests of other kinds: what the holder probe of the kind would reply, the TTL, and the number of
/// waiters, if it is known.
pub(crate) fn inspected(reply: &Reply) -> Result<(&Reply, TimeToLive, Option<u64>), Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [probe, left, waiters] = items.as_slice() else { return Err(Undecodable) };
    Ok((probe, lives(left)?, subscriptions(waiters)?))
}

pub(crate) fn exists(record: &Arc<str>) -> Request {
    Request::read("EXISTS", record, Vec::new())
}

/// Reply of [`exists`] and the scripts that free a record.
pub(crate) fn yes(reply: &Reply) -> Result<bool, Undecodable> {
    reply.int().map(|n| n == 1)
}

pub(crate) fn time_to_live(record: &Arc<str>) -> Request {
    Request::read("PTTL", record, Vec::new())
}

/// The remaining lifetime of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeToLive {
    Absent,
    Never,
    Left(Duration),
}

impl TimeToLive {
    /// `None` if there is no record, [`Duration::MAX`] if it never expires.
    pub(crate) fn duration(self) -> Option<Duration> {
        match self {
            Self::Absent => None,
            Self::Never => Some(Duration::MAX),
            Self::Left(left) => Some(left),
        }
    }
}

pub(crate) fn lives(reply: &Reply) -> Result<TimeToLive, Undecodable> {
    Ok(match reply.int()? {
        -2 => TimeToLive::Absent,
        ms => ttl(ms).map_or(TimeToLive::Never, TimeToLive::Left),
    })
}

pub(crate) fn hold_count(record: &Arc<str>, owner: &Arc<str>) -> Request {
    Request::read("HGET", record, vec![Arg::Text(owner.clone())])
}

pub(crate) fn counted(reply: &Reply) -> Result<u64, Undecodable> {
    match reply {
        Reply::Nil => Ok(0),
        reply => u64::try_from(reply.int()?).map_err(|_| Undecodable),
    }
}

/// How many fields to read of a record with one holder. It may have more, if another program wrote it.
pub(crate) const FEW: &str = "10";

/// Reads the fields of a lock's record. Of a large hash it reads only a bounded number of fields.
pub(crate) fn holder(record: &Arc<str>) -> Request {
    some_fields(record, FEW)
}

/// `HSCAN` returns all fields of a small hash. Of a large hash it visits at most ten times `count` buckets.
pub(super) fn some_fields(record: &Arc<str>, count: &'static str) -> Request {
    let args = ["0", "COUNT", count].map(Arg::Literal).to_vec();
    Request::read("HSCAN", record, args)
}

/// The fields and values of a record, and whether these are all of them.
pub(super) fn fields(reply: &Reply) -> Result<(&[Reply], bool), Undecodable> {
    match reply {
        Reply::List(items) => match items.as_slice() {
            [cursor, Reply::List(fields)] => Ok((fields, matches!(cursor.int(), Ok(0)))),
            _ => Err(Undecodable),
        },
        _ => Err(Undecodable),
    }
}

pub(crate) fn held_by(reply: &Reply) -> Result<Option<Holder>, Undecodable> {
    match fields(reply)? {
        ([], true) => Ok(None),
        ([Reply::Text(owner), count, ..], _) => Ok(Some(Holder::new(
            String::from_utf8_lossy(owner).into_owned(),
            u64::try_from(count.int()?).map_err(|_| Undecodable)?,
        ))),
        _ => Err(Undecodable),
    }
}
