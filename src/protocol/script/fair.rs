//! Requests of the fair lock. Their replies are decoded as those of the reentrant lock.

use super::{
    Arg, FAIR_ACQUIRE, FAIR_FORCE_UNLOCK, FAIR_HAND_OFF, FAIR_INSPECT, FAIR_LEAVE, FAIR_REFRESH,
    FAIR_RELEASE, FEW, FIRST, Repeat, Request, Script,
};
use crate::protocol::keys::FairLockKeys;
use std::sync::Arc;

/// Acquires the first hold of `owner`. `numbers` are the lease in ms, the allowance in ms, and the state of the waiter in the
/// queue (`ARGV[4]` of the script).
pub(crate) fn acquire_fair(keys: &FairLockKeys, owner: &Arc<str>, numbers: [u64; 3]) -> Request {
    let numbers = numbers.into_iter().map(Arg::Number);
    let args = [Arg::Text(owner.clone())].into_iter().chain(numbers).chain([FIRST]).collect();
    with_fair_keys(keys, &FAIR_ACQUIRE, args, Repeat::Flagged)
}

/// Releases the last level of `owner`.
pub(crate) fn release_fair(keys: &FairLockKeys, owner: &Arc<str>) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Text(keys.lock.channel().clone())];
    with_fair_keys(keys, &FAIR_RELEASE, args, Repeat::Free)
}

/// Moves the single hold of `from` to `to`, if that is the first waiter in the queue. Otherwise releases it. `terms` are the lease and the
/// allowance in ms.
pub(crate) fn hand_off_fair(keys: &FairLockKeys, from: &Arc<str>, to: &Arc<str>, terms: [Arg; 2]) -> Request {
    let owners = [from, to].into_iter().cloned().map(Arg::Text);
    let args = owners.chain(terms).chain([Arg::Text(keys.lock.channel().clone()), FIRST]).collect();
    with_fair_keys(keys, &FAIR_HAND_OFF, args, Repeat::Flagged)
}

/// Removes `owner`, which no longer waits, from the queue.
pub(crate) fn leave_fair(keys: &FairLockKeys, owner: &Arc<str>, allowance_ms: u64) -> Request {
    let channel = Arg::Text(keys.lock.channel().clone());
    let args = vec![Arg::Text(owner.clone()), Arg::Number(allowance_ms), channel];
    with_fair_keys(keys, &FAIR_LEAVE, args, Repeat::Free)
}

/// Refreshes the scores of the waiters `owners`. The request does not wait for a connection, because the next refresh
/// follows soon.
pub(crate) fn refresh_fair(keys: &FairLockKeys, owners: &[Arc<str>], allowance_ms: u64) -> Request {
    let owners = owners.iter().cloned().map(Arg::Text);
    let args = [Arg::Number(allowance_ms)].into_iter().chain(owners).collect();
    with_fair_keys(keys, &FAIR_REFRESH, args, Repeat::Afresh)
}

/// Reads the holder, its lease, and the length of the queue. The reply is that of [`inspect`](super::inspect()).
pub(crate) fn inspect_fair(keys: &FairLockKeys) -> Request {
    let (record, queue) = (keys.lock.record().clone(), keys.queue.clone());
    Request::with_keys(&FAIR_INSPECT, vec![record, queue], vec![Arg::Literal(FEW)], Repeat::Free)
}

/// Deletes the record, whoever holds the lock. Must not be sent twice.
pub(crate) fn force_unlock_fair(keys: &FairLockKeys) -> Request {
    let args = vec![Arg::Text(keys.lock.channel().clone())];
    with_fair_keys(keys, &FAIR_FORCE_UNLOCK, args, Repeat::Never)
}

fn with_fair_keys(keys: &FairLockKeys, script: &'static Script, args: Vec<Arg>, repeat: Repeat) -> Request {
    let keys = vec![keys.lock.record().clone(), keys.queue.clone(), keys.timeouts.clone()];
    Request::with_keys(script, keys, args, repeat)
}
