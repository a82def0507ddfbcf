//! Requests of semaphores and latches. Their records name no holders, so the requests of a client that may be repeated are numbered: no
//! request takes effect twice, or after a later one. Exception: permits with ids are returned by their ids, without a number.

use super::{
    Arg, LATCH_COUNT_DOWN, LATCH_DELETE, LATCH_LOOK, LATCH_SET, PERMIT_ACQUIRE, PERMIT_HAND_OFF, PERMIT_LOOK,
    PERMIT_RELEASE, PERMIT_SET, Repeat, Reply, Request, SEMAPHORE_ACQUIRE, SEMAPHORE_ADD, SEMAPHORE_DRAIN,
    SEMAPHORE_RELEASE, SEMAPHORE_RELEASE_EXISTING, SEMAPHORE_SET, Script, TimeToLive, Undecodable, lives,
};
use crate::protocol::keys::CounterKeys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the mark of a client is kept after its last request, in ms. No dead connection delivers a request later than that.
const MARK_KEPT: Arg = Arg::Literal("3600000");
/// How requests are repeated that would take effect a second time without the mark of their first send. The last send may also be late.
const WHILE_MARKED: Repeat = Repeat::For(Duration::from_secs(30 * 60));

/// The number of the next request that changes a record. Once that request has taken effect, requests with smaller numbers have none.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Takes permits, by the request `number`.
pub(crate) fn take_permits(keys: &CounterKeys, number: &Arc<str>, permits: u32) -> Request {
    let args = vec![Arg::Text(number.clone()), Arg::Number(permits.into()), MARK_KEPT];
    marked(keys, &SEMAPHORE_ACQUIRE, args, WHILE_MARKED)
}

/// Returns permits. `taken_by` is the number of the request that took them, if that request may have failed.
pub(crate) fn give_permits(
    keys: &CounterKeys,
    permits: u32,
    number: &Arc<str>,
    taken_by: Option<&Arc<str>>,
) -> Request {
    let number = Arg::Text(number.clone());
    // Without a mark, the return of permits that one request took has no effect.
    let repeat = taken_by.map_or(WHILE_MARKED, |_| Repeat::Free);
    let taken_by = taken_by.map_or(Arg::Literal("0"), |number| Arg::Text(number.clone()));
    let channel = Arg::Text(keys.channel.clone());
    let args = vec![number, Arg::Number(permits.into()), MARK_KEPT, channel, taken_by];
    marked(keys, &SEMAPHORE_RELEASE, args, repeat).outlasting_disk_errors()
}

/// Returns permits, if the semaphore exists.
pub(crate) fn give_permits_if_exists(keys: &CounterKeys, permits: u32) -> Request {
    let args = vec![Arg::Number(permits.into()), Arg::Text(keys.channel.clone())];
    unrepeatable(keys, &SEMAPHORE_RELEASE_EXISTING, args)
}

/// Creates a semaphore that expires after `lives_ms`, or never if that is 0.
pub(crate) fn set_permits(keys: &CounterKeys, permits: u32, lives_ms: u64) -> Request {
    let channel = Arg::Text(keys.channel.clone());
    unrepeatable(keys, &SEMAPHORE_SET, vec![Arg::Number(permits.into()), Arg::Number(lives_ms), channel])
}

/// Adds permits, or removes them. For permits with ids, Redisson publishes the number added, otherwise the number free.
pub(crate) fn add_permits(keys: &CounterKeys, permits: i32, with_ids: bool) -> Request {
    let (permits, channel) = (Arg::Text(permits.to_string().into()), Arg::Text(keys.channel.clone()));
    unrepeatable(keys, &SEMAPHORE_ADD, vec![permits, channel, Arg::Literal(if with_ids { "1" } else { "0" })])
}

pub(crate) fn drain_permits(keys: &CounterKeys) -> Request {
    unrepeatable(keys, &SEMAPHORE_DRAIN, Vec::new())
}

/// Reads the number in a semaphore or a latch.
pub(crate) fn value(keys: &CounterKeys) -> Request {
    Request::read("GET", &keys.record, Vec::new())
}

/// Reply of [`value`], and of requests that return the number of free permits. 0 if no record exists.
pub(crate) fn number(reply: &Reply) -> Result<i64, Undecodable> {
    match reply {
        Reply::Nil => Ok(0),
        reply => reply.int(),
    }
}

/// Takes a permit for each of the concatenated `ids`. `u64::MAX` is a lease that never ends.
pub(crate) fn take_ids(keys: &CounterKeys, ids: &Arc<str>, lease_ms: u64) -> Request {
    let (channel, ids) = (Arg::Text(keys.channel.clone()), Arg::Text(ids.clone()));
    let args = vec![Arg::Number(next_number()), MARK_KEPT, lease_or_forever(lease_ms), channel, ids];
    Request::with_keys(&PERMIT_ACQUIRE, with_timeouts(keys, true), args, WHILE_MARKED)
}

/// `u64::MAX` is a lease that never ends.
fn lease_or_forever(lease_ms: u64) -> Arg {
    if lease_ms == u64::MAX { Arg::Literal("0") } else { Arg::Number(lease_ms) }
}

/// Permits that pass from a hold to a waiter of the same client, which gets new ids.
#[derive(Clone, Copy)]
pub(crate) struct PassedIds<'a> {
    pub from: &'a Arc<str>,
    pub to: &'a Arc<str>,
    /// As in [`take_ids`].
    pub lease_ms: u64,
}

/// Passes permits of this client.
pub(crate) fn pass_ids<'a>(keys: &CounterKeys, passed: impl IntoIterator<Item = PassedIds<'a>>) -> Request {
    let args = passed.into_iter().flat_map(|PassedIds { from, to, lease_ms }| {
        [Arg::Text(from.clone()), Arg::Text(to.clone()), lease_or_forever(lease_ms)]
    });
    Request::script(&PERMIT_HAND_OFF, &keys.timeouts, args.collect(), Repeat::Free)
}

/// Reply of [`pass_ids`]: whether the permits of each of the `count` holds have passed.
pub(crate) fn ids_passed(reply: &Reply, count: usize) -> Result<Vec<bool>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    if items.len() != count {
        return Err(Undecodable);
    }
    let passed = |item: &Reply| match item {
        Reply::Int(0) => Ok(false),
        Reply::Int(1) => Ok(true),
        _ => Err(Undecodable),
    };
    items.iter().map(passed).collect()
}

/// The id of a permit in Redis.
pub(crate) type PermitId = [u8; 16];

/// Returns the permits `ids`, which this client took.
pub(crate) fn give_ids(keys: &CounterKeys, ids: &Arc<str>) -> Request {
    give(keys, Arg::Literal("0"), Arg::Text(ids.clone()), Repeat::Free).outlasting_disk_errors()
}

/// Returns the permits `ids`, if this client took them. If their acquire arrives later, it has no effect.
pub(crate) fn undo_ids(keys: &CounterKeys, ids: &Arc<str>) -> Request {
    let number = Arg::Number(next_number());
    give(keys, number, Arg::Text(ids.clone()), Repeat::Free).outlasting_disk_errors()
}

/// Returns a permit that any client took.
pub(crate) fn give_id(keys: &CounterKeys, id: PermitId) -> Request {
    give(keys, Arg::Literal("0"), Arg::Bytes(id), Repeat::Never)
}

fn give(keys: &CounterKeys, number: Arg, ids: Arg, repeat: Repeat) -> Request {
    let args = vec![number, MARK_KEPT, Arg::Text(keys.channel.clone()), ids];
    Request::with_keys(&PERMIT_RELEASE, with_timeouts(keys, true), args, repeat)
}

/// Reads the numbers of permits. Permits whose lease has ended become free first.
pub(crate) fn permit_counts(keys: &CounterKeys) -> Request {
    look_at_permits(keys, Arg::Literal(""), 0, Repeat::Free)
}

/// Reads the lease of a permit, and the numbers of permits.
pub(crate) fn permit_lease(keys: &CounterKeys, id: PermitId) -> Request {
    look_at_permits(keys, Arg::Bytes(id), 0, Repeat::Free)
}

/// Replaces the lease of a permit, if it is taken.
pub(crate) fn set_permit_lease(keys: &CounterKeys, id: PermitId, lease_ms: u64) -> Request {
    look_at_permits(keys, Arg::Bytes(id), lease_ms, Repeat::Never)
}

fn look_at_permits(keys: &CounterKeys, id: Arg, lease_ms: u64, repeat: Repeat) -> Request {
    let args = vec![Arg::Text(keys.channel.clone()), id, Arg::Number(lease_ms)];
    Request::with_keys(&PERMIT_LOOK, with_timeouts(keys, false), args, repeat)
}

/// The state of a semaphore whose permits have ids.
pub(crate) struct PermitsSeen {
    pub free: i64,
    pub taken: u64,
    /// The lease of the permit that the request names.
    pub left: TimeToLive,
}

/// Reply of [`permit_counts`], [`permit_lease`] and [`set_permit_lease`].
pub(crate) fn permits_seen(reply: &Reply) -> Result<PermitsSeen, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [free, taken, left] = items.as_slice() else { return Err(Undecodable) };
    let taken = u64::try_from(taken.int()?).map_err(|_| Undecodable)?;
    Ok(PermitsSeen { free: free.int()?, taken, left: lives(left)? })
}

/// Changes the number of all permits, including the taken ones.
pub(crate) fn set_all_permits(keys: &CounterKeys, permits: u32) -> Request {
    let args = vec![Arg::Number(permits.into()), Arg::Text(keys.channel.clone())];
    Request::with_keys(&PERMIT_SET, with_timeouts(keys, false), args, Repeat::Never)
}

/// Checks whether a latch is open.
pub(crate) fn look(keys: &CounterKeys) -> Request {
    Request::script(&LATCH_LOOK, &keys.record, Vec::new(), Repeat::Free)
}

pub(crate) fn count_down(keys: &CounterKeys) -> Request {
    let args = vec![Arg::Number(next_number()), MARK_KEPT, Arg::Text(keys.channel.clone())];
    marked(keys, &LATCH_COUNT_DOWN, args, WHILE_MARKED).outlasting_disk_errors()
}

pub(crate) fn set_count(keys: &CounterKeys, count: u32) -> Request {
    unrepeatable(keys, &LATCH_SET, vec![Arg::Number(count.into()), Arg::Text(keys.channel.clone())])
}

pub(crate) fn delete_latch(keys: &CounterKeys) -> Request {
    unrepeatable(keys, &LATCH_DELETE, vec![Arg::Text(keys.channel.clone())])
}

fn marked(keys: &CounterKeys, script: &'static Script, args: Vec<Arg>, repeat: Repeat) -> Request {
    Request::with_keys(script, vec![keys.record.clone(), keys.last_request.clone()], args, repeat)
}

fn unrepeatable(keys: &CounterKeys, script: &'static Script, args: Vec<Arg>) -> Request {
    Request::script(script, &keys.record, args, Repeat::Never)
}

fn with_timeouts(keys: &CounterKeys, marked: bool) -> Vec<Arc<str>> {
    let mut all = vec![keys.record.clone(), keys.timeouts.clone()];
    all.extend(marked.then(|| keys.last_request.clone()));
    all
}
