//! Requests of the read/write lock. Their replies are decoded as those of the reentrant lock.

use super::inspect::{fields, inspect, some_fields};
use super::{
    Arg, FIRST, FastCommand, FastPath, READ_ACQUIRE, READ_EXTEND, READ_RELEASE, READ_WRITE_FORCE_UNLOCK,
    Repeat, Reply, Request, Undecodable, Verb, WRITE_ACQUIRE, WRITE_RELEASE,
};
use crate::holder::Holder;
use crate::protocol::keys::ReadWriteKeys;
use std::sync::Arc;

/// Acquires the first write hold of `writer`. `reader` is the same owner's id as a reader. With `upgrade`, the owner may be the only
/// reader.
pub(crate) fn acquire_write(
    keys: &ReadWriteKeys,
    writer: &Arc<str>,
    lease_ms: u64,
    reader: &Arc<str>,
    upgrade: bool,
) -> Request {
    let args = vec![
        Arg::Text(writer.clone()),
        Arg::Number(lease_ms),
        Arg::Text(reader.clone()),
        Arg::Number(upgrade.into()),
        FIRST,
    ];
    // An upgrade finds a record, so `RESTORE` would fail.
    let fast_path = (!upgrade)
        .then(|| FastCommand::Restore { mode: Some("write"), owner: writer.clone(), lease_ms })
        .and_then(FastPath::new);
    let record = vec![keys.record.clone()];
    Request::new(Verb::Script(&WRITE_ACQUIRE), record, args, Repeat::Flagged, fast_path)
}

/// Releases the last write level of `writer`.
pub(crate) fn release_write(keys: &ReadWriteKeys, writer: &Arc<str>) -> Request {
    let args = vec![Arg::Text(writer.clone()), Arg::Text(keys.channel.clone())];
    Request::script(&WRITE_RELEASE, &keys.record, args, Repeat::Free)
}

/// Acquires the first read hold of `reader`. `writer` is the same owner's id as a writer.
pub(crate) fn acquire_read(
    keys: &ReadWriteKeys,
    reader: &Arc<str>,
    lease_ms: u64,
    writer: &Arc<str>,
) -> Request {
    let args = vec![Arg::Text(reader.clone()), Arg::Number(lease_ms), Arg::Text(writer.clone()), FIRST];
    Request::with_keys(&READ_ACQUIRE, reader_keys(keys, reader), args, Repeat::Flagged)
}

/// Makes the read hold of `reader` last at least `lease_ms` longer. The reply is that of [`recount`](super::recount).
pub(crate) fn extend_read(keys: &ReadWriteKeys, reader: &Arc<str>, lease_ms: u64) -> Request {
    let args = vec![Arg::Text(reader.clone()), Arg::Number(lease_ms)];
    Request::with_keys(&READ_EXTEND, reader_keys(keys, reader), args, Repeat::Free)
}

/// Releases the read hold of `reader`. `others` are known owner ids of other readers: the script may have to read when their holds end.
/// Some servers refuse access to undeclared keys. With `None`, the script answers such a refusal with
/// [`Released::Unnamed`](super::Released).
pub(crate) fn release_read(keys: &ReadWriteKeys, reader: &Arc<str>, others: Option<&[Arc<str>]>) -> Request {
    let [before, behind] = keys.around_reader();
    let unnamed = Arg::Number(others.is_none().into());
    let args = [reader, &keys.channel, &before, &behind].map(|text| Arg::Text(text.clone()));
    let args = args.into_iter().chain([unnamed]).collect();
    let mut declared = reader_keys(keys, reader);
    declared.extend(others.unwrap_or_default().iter().map(|other| keys.timeout(other)));
    Request::with_keys(&READ_RELEASE, declared, args, Repeat::Free)
}

/// Deletes the record if the lock is held on this side, whoever holds it. Must not be sent twice.
pub(crate) fn force_unlock_read_write(keys: &ReadWriteKeys, side: Side) -> Request {
    let (mode, message) = match side {
        Side::Read => ("read", "0"),
        Side::Write => ("write", "1"),
    };
    let args = vec![Arg::Literal(mode), Arg::Text(keys.channel.clone()), Arg::Literal(message)];
    Request::script(&READ_WRITE_FORCE_UNLOCK, &keys.record, args, Repeat::Never)
}

fn reader_keys(keys: &ReadWriteKeys, reader: &str) -> Vec<Arc<str>> {
    vec![keys.record.clone(), keys.timeout(reader)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// The contents of a read/write lock's record.
pub(crate) struct Shares {
    pub mode: Side,
    /// Writers first.
    pub holders: Vec<Holder>,
}

/// How many holders to read.
const MANY: &str = "1000";

/// Reads the record. A bounded part of it is enough, if there are more than a thousand readers.
pub(crate) fn shares(keys: &ReadWriteKeys) -> Request {
    some_fields(&keys.record, MANY)
}

/// The same with [`inspect`].
pub(crate) fn inspect_shares(keys: &ReadWriteKeys) -> Request {
    inspect(&keys.record, &keys.channel, MANY)
}

/// Reply of [`shares`].
pub(crate) fn shared_by(reply: &Reply) -> Result<Option<Shares>, Undecodable> {
    let (fields, complete) = fields(reply)?;
    let (mut mode, mut holders) = (None, Vec::new());
    for pair in fields.chunks(2) {
        match pair {
            [Reply::Text(field), Reply::Text(value)] if field == b"mode" => {
                mode = Some(if value == b"read" { Side::Read } else { Side::Write });
            }
            [Reply::Text(owner), count] => {
                let count = u64::try_from(count.int()?).map_err(|_| Undecodable)?;
                holders.push(Holder::new(String::from_utf8_lossy(owner).into_owned(), count));
            }
            _ => return Err(Undecodable),
        }
    }
    holders.sort_by_key(|holder: &Holder| !holder.owner().ends_with(":write"));
    match mode {
        None if holders.is_empty() && complete => Ok(None),
        None if complete => Err(Undecodable),
        // The part without `mode` has many owners, so they are readers: a writer shares the record only with its own reads.
        None => Ok(Some(Shares { mode: Side::Read, holders })),
        Some(mode) => Ok(Some(Shares { mode, holders })),
    }
}
