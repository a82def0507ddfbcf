//! Requests that find records of any kind, and read them.

use super::{
    Arg, RECORD_DESCRIBE, Repeat, Reply, Request, TimeToLive, Undecodable, Verb, counted, fields, lives,
};
use crate::protocol::keys::AnyKeys;
use std::sync::Arc;

/// How many fields to read of a record.
const MANY: &str = "1000";
/// How many keys a scan visits in one step.
const STEP: &str = "200";

/// Reads a record of any kind.
pub(crate) fn describe(keys: &AnyKeys) -> Request {
    let named = [&keys.record, &keys.queue, &keys.token, &keys.timeouts].map(Arc::clone);
    let channels = keys.channels.iter().cloned().map(Arg::Text);
    let args = channels.chain([Arg::Literal(MANY)]).collect();
    Request::with_keys(&RECORD_DESCRIBE, named.into(), args, Repeat::Free)
}

/// Reply of [`describe`].
#[derive(Debug)]
pub(crate) struct Record {
    pub content: Content,
    pub left: TimeToLive,
    /// The last token of a fenced lock.
    pub token: Option<u64>,
    /// The first waiters of a fair lock.
    pub queue: Vec<String>,
    /// The number of its waiters.
    pub queued: u64,
    /// The number of permits in the sorted set of an expirable semaphore.
    pub taken: u64,
    /// The subscriptions of the channels of a lock, a read/write lock, a semaphore and a latch.
    pub listeners: Option<[u64; 4]>,
    /// The server's time in ms.
    pub now: Option<u64>,
}

/// The value of a record's key.
#[derive(Debug)]
pub(crate) enum Content {
    Absent,
    Hash {
        /// Some of them may be missing, if there are more than a thousand. A field that is not UTF-8 is missing.
        fields: Vec<(String, String)>,
        /// The field `mode`.
        mode: Option<String>,
    },
    /// The first 256 bytes of a string.
    Text(Vec<u8>),
}

/// Reply of [`describe`]. `None` if no kind has a record of the key's type.
pub(crate) fn described(reply: &Reply) -> Result<Option<Record>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [Reply::Text(of), left, content, mode, token, queue, queued, taken, numbers, now] = items.as_slice()
    else {
        return if matches!(items.as_slice(), [Reply::Text(_)]) { Ok(None) } else { Err(Undecodable) };
    };
    let content = match (&of[..], content) {
        (b"none", _) => Content::Absent,
        (b"hash", content) => {
            let pairs = fields(content)?.0.chunks_exact(2);
            let fields = pairs.filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect();
            Content::Hash { fields, mode: text(mode) }
        }
        (b"string", Reply::Text(text)) => Content::Text(text.clone()),
        _ => return Err(Undecodable),
    };
    let Reply::List(numbers) = numbers else { return Err(Undecodable) };
    let numbers = numbers.iter().map(counted).collect::<Result<Vec<_>, _>>()?;
    let queue =
        if let Reply::List(owners) = queue { owners.iter().filter_map(text).collect() } else { Vec::new() };
    Ok(Some(Record {
        content,
        left: lives(left)?,
        // The key may have a value of any kind.
        token: text(token).and_then(|token| token.parse().ok()),
        queue,
        queued: counted(queued)?,
        taken: counted(taken)?,
        listeners: numbers.try_into().ok(),
        now: if *now == Reply::Nil { None } else { Some(counted(now)?) },
    }))
}

fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Text(text) => String::from_utf8(text.clone()).ok(),
        Reply::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Visits some keys of a server, and returns those that match the glob `pattern`. The first cursor is `0`.
pub(crate) fn scan(cursor: &Arc<str>, pattern: &Arc<str>) -> Request {
    let [cursor, pattern] = [cursor, pattern].map(|text| Arg::Text(text.clone()));
    let args = vec![cursor, Arg::Literal("MATCH"), pattern, Arg::Literal("COUNT"), Arg::Literal(STEP)];
    Request::new(Verb::Command("SCAN"), Vec::new(), args, Repeat::Free, None)
}

/// Reply of [`scan`]: the next cursor, if the scan is not over, and the keys that are UTF-8.
pub(crate) fn scanned(reply: &Reply) -> Result<(Option<Arc<str>>, Vec<String>), Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [cursor, Reply::List(keys)] = items.as_slice() else { return Err(Undecodable) };
    let cursor = text(cursor).ok_or(Undecodable)?;
    let next = (cursor != "0").then(|| cursor.into());
    Ok((next, keys.iter().filter_map(text).collect()))
}
