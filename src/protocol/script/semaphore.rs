//! The requests about semaphores and latches. What changes them has a number, and none takes effect twice, or after a
//! later one: such a record does not say whose the permits are.

use super::{
    Arg, LATCH_COUNT_DOWN, LATCH_DELETE, LATCH_LOOK, LATCH_SET, PERMIT_ACQUIRE, PERMIT_FREE, PERMIT_RELEASE,
    Repeat, Reply, Request, SEMAPHORE_ACQUIRE, SEMAPHORE_ADD, SEMAPHORE_DRAIN, SEMAPHORE_RELEASE,
    SEMAPHORE_SET, Script, Undecodable,
};
use crate::protocol::keys::PermitKeys;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long the mark of a process stays behind its last request, in ms: longer than a dead connection delivers anything.
const MARK_KEPT: Arg = Arg::Literal("3600000");

/// The number of the next request that changes something. To be drawn when it is sent: what has a smaller one comes to
/// nothing from then on.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Takes permits, by a request of that number.
pub(crate) fn take_permits(keys: &PermitKeys, number: &Arc<str>, permits: u32) -> Request {
    let args = vec![Arg::Text(number.clone()), Arg::Number(permits.into()), MARK_KEPT];
    marked(keys, &SEMAPHORE_ACQUIRE, args)
}

/// Gives permits back. If the request that took them may have come to nothing, its number.
pub(crate) fn give_permits(keys: &PermitKeys, permits: u32, taken_by: Option<&Arc<str>>) -> Request {
    let taken_by = taken_by.map_or(Arg::Literal("0"), |number| Arg::Text(number.clone()));
    let channel = Arg::Text(keys.channel.clone());
    let args = vec![Arg::Number(next_number()), Arg::Number(permits.into()), MARK_KEPT, channel, taken_by];
    marked(keys, &SEMAPHORE_RELEASE, args).kept()
}

/// Makes a semaphore, for ever or for so many ms.
pub(crate) fn set_permits(keys: &PermitKeys, permits: u32, lives_ms: u64) -> Request {
    let channel = Arg::Text(keys.channel.clone());
    once(keys, &SEMAPHORE_SET, vec![Arg::Number(permits.into()), Arg::Number(lives_ms), channel])
}

/// Adds permits, or takes them away. Of those with ids other numbers are told.
pub(crate) fn add_permits(keys: &PermitKeys, permits: i32, with_ids: bool) -> Request {
    let (permits, channel) = (Arg::Text(permits.to_string().into()), Arg::Text(keys.channel.clone()));
    once(keys, &SEMAPHORE_ADD, vec![permits, channel, Arg::Literal(if with_ids { "1" } else { "0" })])
}

pub(crate) fn drain_permits(keys: &PermitKeys) -> Request {
    once(keys, &SEMAPHORE_DRAIN, Vec::new())
}

/// The number in a semaphore or a latch.
pub(crate) fn value(keys: &PermitKeys) -> Request {
    Request::read("GET", &keys.record, Vec::new())
}

/// Reply of [`value`] and of what answers the number of free permits; 0 where there is no record.
pub(crate) fn number(reply: &Reply) -> Result<i64, Undecodable> {
    match reply {
        Reply::Nil => Ok(0),
        reply => reply.int(),
    }
}

/// Takes a permit for each of `ids`, which stand one behind the other, for so many ms, or for ever.
pub(crate) fn take_ids(keys: &PermitKeys, ids: &Arc<str>, lease_ms: u64) -> Request {
    let lease = if lease_ms == u64::MAX { Arg::Literal("0") } else { Arg::Number(lease_ms) };
    let (channel, ids) = (Arg::Text(keys.channel.clone()), Arg::Text(ids.clone()));
    let args = vec![Arg::Number(next_number()), MARK_KEPT, lease, channel, ids];
    Request::with_keys(&PERMIT_ACQUIRE, with_timeouts(keys, true), args, Repeat::Free)
}

/// Gives the permits of `ids` back.
pub(crate) fn give_ids(keys: &PermitKeys, ids: &Arc<str>) -> Request {
    let (channel, ids) = (Arg::Text(keys.channel.clone()), Arg::Text(ids.clone()));
    let args = vec![Arg::Number(next_number()), MARK_KEPT, channel, ids];
    Request::with_keys(&PERMIT_RELEASE, with_timeouts(keys, true), args, Repeat::Free).kept()
}

/// How many permits are free, after those whose lease has ended became so.
pub(crate) fn free_permits(keys: &PermitKeys) -> Request {
    let args = vec![Arg::Text(keys.channel.clone())];
    Request::with_keys(&PERMIT_FREE, with_timeouts(keys, false), args, Repeat::Free)
}

/// Whether a latch is open.
pub(crate) fn look(keys: &PermitKeys) -> Request {
    Request::script(&LATCH_LOOK, &keys.record, Vec::new(), Repeat::Free)
}

pub(crate) fn count_down(keys: &PermitKeys) -> Request {
    let args = vec![Arg::Number(next_number()), MARK_KEPT, Arg::Text(keys.channel.clone())];
    marked(keys, &LATCH_COUNT_DOWN, args).kept()
}

pub(crate) fn set_count(keys: &PermitKeys, count: u32) -> Request {
    once(keys, &LATCH_SET, vec![Arg::Number(count.into()), Arg::Text(keys.channel.clone())])
}

pub(crate) fn delete_latch(keys: &PermitKeys) -> Request {
    once(keys, &LATCH_DELETE, vec![Arg::Text(keys.channel.clone())])
}

fn marked(keys: &PermitKeys, script: &'static Script, args: Vec<Arg>) -> Request {
    Request::with_keys(script, vec![keys.record.clone(), keys.mark.clone()], args, Repeat::Free)
}

fn once(keys: &PermitKeys, script: &'static Script, args: Vec<Arg>) -> Request {
    Request::script(script, &keys.record, args, Repeat::Never)
}

fn with_timeouts(keys: &PermitKeys, marked: bool) -> Vec<Arc<str>> {
    let mut all = vec![keys.record.clone(), keys.timeouts.clone()];
    all.extend(marked.then(|| keys.mark.clone()));
    all
}
