//! The requests about a read/write lock. Their answers are the reentrant lock's.

use super::inspect::{fields, some_fields};
use super::{
    Arg, FIRST, READ_ACQUIRE, READ_EXTEND, READ_RELEASE, RW_FORCE_UNLOCK, Repeat, Reply, Request,
    Undecodable, WRITE_ACQUIRE, WRITE_RELEASE,
};
use crate::error::Holder;
use crate::protocol::keys::ReadWriteKeys;
use std::sync::Arc;

/// The first write hold of `writer`, who is `reader` where it reads.
pub(crate) fn acquire_write(
    keys: &ReadWriteKeys,
    writer: &Arc<str>,
    lease_ms: u64,
    reader: &Arc<str>,
) -> Request {
    let args = vec![Arg::Text(writer.clone()), Arg::Number(lease_ms), Arg::Text(reader.clone()), FIRST];
    Request::script(&WRITE_ACQUIRE, &keys.record, args, Repeat::Flagged)
}

/// The last write release of `writer`.
pub(crate) fn release_write(keys: &ReadWriteKeys, writer: &Arc<str>) -> Request {
    let args = vec![Arg::Text(writer.clone()), Arg::Text(keys.channel.clone())];
    Request::script(&WRITE_RELEASE, &keys.record, args, Repeat::Free)
}

/// The first read hold of `reader`, who is `writer` where it writes.
pub(crate) fn acquire_read(
    keys: &ReadWriteKeys,
    reader: &Arc<str>,
    lease_ms: u64,
    writer: &Arc<str>,
) -> Request {
    let args = vec![Arg::Text(reader.clone()), Arg::Number(lease_ms), Arg::Text(writer.clone()), FIRST];
    Request::with_keys(&READ_ACQUIRE, of_reader(keys, reader), args, Repeat::Flagged)
}

/// Makes the read hold of `reader` last at least `lease_ms` longer. Answered as a change of the count.
pub(crate) fn extend_read(keys: &ReadWriteKeys, reader: &Arc<str>, lease_ms: u64) -> Request {
    let args = vec![Arg::Text(reader.clone()), Arg::Number(lease_ms)];
    Request::with_keys(&READ_EXTEND, of_reader(keys, reader), args, Repeat::Free)
}

/// The last read release of `reader`.
pub(crate) fn release_read(keys: &ReadWriteKeys, reader: &Arc<str>) -> Request {
    let [before, behind] = keys.around_reader();
    let args = [reader, &keys.channel, &before, &behind].map(|text| Arg::Text(text.clone())).to_vec();
    Request::with_keys(&READ_RELEASE, of_reader(keys, reader), args, Repeat::Free)
}

/// Frees the record from whoever reads or writes. Must not be sent twice.
pub(crate) fn force_unlock_read_write(keys: &ReadWriteKeys, side: Side) -> Request {
    let (mode, message) = match side {
        Side::Read => ("read", "0"),
        Side::Write => ("write", "1"),
    };
    let args = vec![Arg::Literal(mode), Arg::Text(keys.channel.clone()), Arg::Literal(message)];
    Request::script(&RW_FORCE_UNLOCK, &keys.record, args, Repeat::Never)
}

fn of_reader(keys: &ReadWriteKeys, reader: &str) -> Vec<Arc<str>> {
    vec![keys.record.clone(), keys.timeout(reader)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// What a record of a read/write lock says.
pub(crate) struct Shares {
    pub mode: Side,
    /// Writers first.
    pub holders: Vec<Holder>,
}

/// Asks for the record, of which a thousand readers are enough.
pub(crate) fn shares(keys: &ReadWriteKeys) -> Request {
    some_fields(&keys.record, "1000")
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
        // A writer is alone, or beside its own reads.
        None => Ok(Some(Shares { mode: Side::Read, holders })),
        Some(mode) => Ok(Some(Shares { mode, holders })),
    }
}
