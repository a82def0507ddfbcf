//! Requests for the record of the reentrant lock, a hash of owner ids and hold counts. Other kinds share some of them.

use super::{
    Arg, Delete, FIRST, FastCommand, FastPath, GROUP_RENEW, PERMIT_RENEW, READ_RENEW, Repeat, Reply, Request,
    Script, Status, Undecodable, VALUE_RENEW, Verb, ttl,
};
use super::{
    FENCED_ACQUIRE, FENCED_HAND_OFF, LOCK_ACQUIRE, LOCK_FORCE_UNLOCK, LOCK_HAND_OFF, LOCK_RECOUNT,
    LOCK_RELEASE, LOCK_RENEW,
};
use std::sync::Arc;
use std::time::Duration;

/// Outcome of [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The number is the token of a fenced hold, or the ms that the record of a read hold had left. Otherwise it is 1.
    Taken(u64),
    /// Another owner holds the lock, for at most this time. `None` if the record never expires.
    Busy(Option<Duration>),
    /// The record names this owner id, but this client has no such hold. For requests with numbers: a later request has taken effect, or
    /// the hold of this one has ended.
    Stale(Option<Duration>),
    /// The owner holds the lock as a reader and requests it as a writer.
    Own(Option<Duration>),
}

/// Acquires the first hold of `owner`.
pub(crate) fn acquire(record: &Arc<str>, owner: &Arc<str>, lease_ms: u64) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Number(lease_ms), FIRST];
    let fast_path = FastPath::new(FastCommand::Restore { mode: None, owner: owner.clone(), lease_ms });
    Request::new(Verb::Script(&LOCK_ACQUIRE), vec![record.clone()], args, Repeat::Flagged, fast_path)
}

pub(crate) fn acquired(reply: &Reply) -> Result<Acquired, Undecodable> {
    match reply.status()? {
        Status::Done(n @ 1..) => Ok(Acquired::Taken(n.unsigned_abs())),
        Status::Not(b"BUSY", Some(ms)) => Ok(Acquired::Busy(ttl(ms))),
        Status::Not(b"STALE", Some(ms)) => Ok(Acquired::Stale(ttl(ms))),
        Status::Not(b"OWN", Some(ms)) => Ok(Acquired::Own(ttl(ms))),
        _ => Err(Undecodable),
    }
}

/// The owner id that an acquire found in its way, if the reply contains it.
pub(crate) fn blocking_owner_id(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::List(items) => match items.as_slice() {
            [_, _, Reply::Text(owner)] => std::str::from_utf8(owner).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Acquires the first hold of `owner` of a fenced lock.
pub(crate) fn acquire_fenced(
    record: &Arc<str>,
    token: &Arc<str>,
    owner: &Arc<str>,
    lease_ms: u64,
    retention_ms: u64,
) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Number(lease_ms), Arg::Number(retention_ms), FIRST];
    Request::with_keys(&FENCED_ACQUIRE, vec![record.clone(), token.clone()], args, Repeat::Flagged)
}

/// Outcome of [`recount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recounted {
    Done,
    /// No record exists.
    Gone,
    /// Other owners hold the lock.
    Other,
    /// The record has another count. `None` if the value is not a count.
    Mismatch(Option<u64>),
}

/// Changes the hold count of `owner` from `from` to `to`, and makes the record last at least `lease_ms` longer.
pub(crate) fn recount(record: &Arc<str>, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Request {
    let args =
        vec![Arg::Text(owner.clone()), Arg::Number(from), Arg::Number(to), Arg::Number(lease_ms), FIRST];
    Request::script(&LOCK_RECOUNT, record, args, Repeat::Flagged)
}

pub(crate) fn recounted(reply: &Reply) -> Result<Recounted, Undecodable> {
    match reply.status()? {
        Status::Done(1) => Ok(Recounted::Done),
        Status::Not(b"GONE", None) => Ok(Recounted::Gone),
        Status::Not(b"OTHER", None) => Ok(Recounted::Other),
        Status::Not(b"MISMATCH", n) => Ok(Recounted::Mismatch(n.and_then(|n| u64::try_from(n).ok()))),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The message reached this number of subscribers.
    Freed(u64),
    /// No record exists.
    Gone,
    /// Other owners hold the lock.
    Other,
    /// Nothing was done. The request must name this client's other holds on the record.
    Unnamed,
}

/// Releases the last level of `owner`.
pub(crate) fn release(record: &Arc<str>, owner: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Text(channel.clone())];
    let fast_path = FastPath::new(FastCommand::Transaction {
        delete: Delete::Field(owner.clone()),
        channel: channel.clone(),
    });
    Request::new(Verb::Script(&LOCK_RELEASE), vec![record.clone()], args, Repeat::Free, fast_path)
}

/// Releases the last level of `owner` without a message: the channel `nowhere` is empty.
pub(crate) fn release_silently(record: &Arc<str>, owner: &Arc<str>, nowhere: &Arc<str>) -> Request {
    Request::script(
        &LOCK_RELEASE,
        record,
        vec![Arg::Text(owner.clone()), Arg::Text(nowhere.clone())],
        Repeat::Free,
    )
}

pub(crate) fn released(reply: &Reply) -> Result<Released, Undecodable> {
    match reply.status()? {
        Status::Done(n) => Ok(Released::Freed(u64::try_from(n).map_err(|_| Undecodable)?)),
        Status::Not(b"GONE", None) => Ok(Released::Gone),
        Status::Not(b"OTHER", None) => Ok(Released::Other),
        Status::Not(b"KEYS", None) => Ok(Released::Unnamed),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`hand_off`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOff {
    Moved {
        /// The number of subscriptions of the channel. `None` if it is unknown.
        subscriptions: Option<u64>,
        /// The token of the new hold of a fenced lock.
        token: Option<u64>,
    },
    /// The lock was released, because the waiter is not the first one in Redis's queue.
    Freed,
    /// No record exists.
    Gone,
    /// Other owners hold the lock.
    Other,
    /// The hold count is not 1.
    Mismatch,
}

/// Moves the single hold of `from` to `to`.
pub(crate) fn hand_off(
    record: &Arc<str>,
    from: &Arc<str>,
    to: &Arc<str>,
    lease: Arg,
    channel: &Arc<str>,
) -> Request {
    hand_off_by(&LOCK_HAND_OFF, record, [from, to], lease, channel)
}

/// A hand-off by `script`. `owners` are the texts that the record has before and after it.
pub(super) fn hand_off_by(
    script: &'static Script,
    record: &Arc<str>,
    owners: [&Arc<str>; 2],
    lease: Arg,
    channel: &Arc<str>,
) -> Request {
    let [from, to] = owners.map(|owner| Arg::Text(owner.clone()));
    Request::script(script, record, vec![from, to, lease, Arg::Text(channel.clone()), FIRST], Repeat::Flagged)
}

/// Moves the single hold of `from` on a fenced lock to `to`. `keys` are the record and the token, `terms` the lease in ms and
/// the token's retention.
pub(crate) fn hand_off_fenced(
    keys: [&Arc<str>; 2],
    from: &Arc<str>,
    to: &Arc<str>,
    terms: [Arg; 2],
    channel: &Arc<str>,
) -> Request {
    let owners = [from, to].into_iter().cloned().map(Arg::Text);
    let channel = Arg::Text(channel.clone());
    let args = owners.chain(terms).chain([channel, FIRST]).collect();
    Request::with_keys(&FENCED_HAND_OFF, keys.map(Arc::clone).to_vec(), args, Repeat::Flagged)
}

pub(crate) fn handed_off(reply: &Reply) -> Result<HandedOff, Undecodable> {
    let moved = |n: i64, token| Ok(HandedOff::Moved { subscriptions: u64::try_from(n).ok(), token });
    if let Reply::List(numbers) = reply
        && let [Reply::Int(n @ -1..), Reply::Int(token @ 1..)] = numbers.as_slice()
    {
        return moved(*n, Some(token.unsigned_abs()));
    }
    match reply.status()? {
        Status::Done(n @ -1..) => moved(n, None),
        Status::Not(b"GONE", None) => Ok(HandedOff::Gone),
        Status::Not(b"OTHER", None) => Ok(HandedOff::Other),
        Status::Not(b"MISMATCH", None) => Ok(HandedOff::Mismatch),
        Status::Not(b"FREED", None) => Ok(HandedOff::Freed),
        _ => Err(Undecodable),
    }
}

/// How holds are renewed. All holds of a batch are renewed in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Renewal {
    /// By the expiry of a hash with the owner's field.
    Lock,
    /// By the expiry of that hash, and of a string for the hold.
    Read,
    /// By the expiry of a string with the owner's token.
    Value,
    /// By the scores of permits in a sorted set.
    Permit,
    /// By the expiry times in a group's hash, and the expiry of the hash.
    Group,
}

impl Renewal {
    #[cfg(fuzzing)]
    pub(crate) const ALL: [Self; 5] = [Self::Lock, Self::Read, Self::Value, Self::Permit, Self::Group];

    fn script(self) -> &'static Script {
        match self {
            Self::Lock => &LOCK_RENEW,
            Self::Read => &READ_RENEW,
            Self::Value => &VALUE_RENEW,
            Self::Permit => &PERMIT_RENEW,
            Self::Group => &GROUP_RENEW,
        }
    }
}

/// Outcome of [`renew`] for one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// Held. For a read hold, the time that it had left before.
    Held(Option<Duration>),
    /// No record exists.
    Gone,
    /// Other owners hold the lock.
    Other,
    /// The key has another type.
    WrongType,
    /// The server refuses for now: it is a replica, has too few replicas, or its disk is full.
    Refused,
}

/// Renews a batch of holds with these keys. The batch has the owner of each hold and its lease in ms, 0 to check the hold only.
pub(crate) fn renew(
    renewal: Renewal,
    keys: Vec<Arc<str>>,
    batch: impl IntoIterator<Item = (Arc<str>, u64)>,
) -> Request {
    let holds = batch.into_iter();
    let args = holds.flat_map(|(owner, lease_ms)| [Arg::Text(owner), Arg::Number(lease_ms)]).collect();
    Request::with_keys(renewal.script(), keys, args, Repeat::Afresh)
}

pub(crate) fn renewed(renewal: Renewal, reply: &Reply, batch: usize) -> Result<Vec<Renewed>, Undecodable> {
    match reply {
        Reply::Int(all) if usize::try_from(*all) == Ok(batch) => Ok(vec![Renewed::Held(None); batch]),
        Reply::List(items) if items.len() == batch => items
            .iter()
            .map(|item| match item.int()? {
                ms @ 1.. if renewal == Renewal::Read => Ok(Renewed::Held(ttl(ms))),
                1 => Ok(Renewed::Held(None)),
                0 => Ok(Renewed::Gone),
                -1 => Ok(Renewed::WrongType),
                -2 => Ok(Renewed::Refused),
                -3 => Ok(Renewed::Other),
                _ => Err(Undecodable),
            })
            .collect(),
        _ => Err(Undecodable),
    }
}

/// Deletes the record, whoever holds the lock. Must not be sent twice.
pub(crate) fn force_unlock(record: &Arc<str>, channel: &Arc<str>) -> Request {
    Request::script(&LOCK_FORCE_UNLOCK, record, vec![Arg::Text(channel.clone())], Repeat::Never)
}
