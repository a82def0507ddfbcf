//! The requests about a lock with a queue of waiters. Their answers are the reentrant lock's.

use super::{
    Arg, FAIR_ABANDON, FAIR_ACQUIRE, FAIR_FORCE_UNLOCK, FAIR_KEEP, FAIR_RELEASE, FIRST, Repeat, Request,
    Script,
};
use crate::protocol::keys::QueueKeys;
use std::sync::Arc;

/// The first hold of `owner`. `numbers` are the lease and the allowance in ms, and what Redis knows of the waiter.
pub(crate) fn acquire_fair(keys: &QueueKeys, owner: &Arc<str>, numbers: [u64; 3]) -> Request {
    let numbers = numbers.into_iter().map(Arg::Number);
    let args = [Arg::Text(owner.clone())].into_iter().chain(numbers).chain([FIRST]).collect();
    about(keys, &FAIR_ACQUIRE, args, Repeat::Flagged)
}

/// The last release of `owner`.
pub(crate) fn release_fair(keys: &QueueKeys, owner: &Arc<str>) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Text(keys.lock.channel().clone())];
    about(keys, &FAIR_RELEASE, args, Repeat::Free)
}

/// `owner` waits no more.
pub(crate) fn abandon_fair(keys: &QueueKeys, owner: &Arc<str>, allowance_ms: u64) -> Request {
    let channel = Arg::Text(keys.lock.channel().clone());
    about(
        keys,
        &FAIR_ABANDON,
        vec![Arg::Text(owner.clone()), Arg::Number(allowance_ms), channel],
        Repeat::Free,
    )
}

/// Refreshes the scores of the waiters `owners`. It is sent again before long, so it does not wait for a connection.
pub(crate) fn keep_fair(keys: &QueueKeys, owners: &[Arc<str>], allowance_ms: u64) -> Request {
    let owners = owners.iter().cloned().map(Arg::Text);
    let args = [Arg::Number(allowance_ms)].into_iter().chain(owners).collect();
    about(keys, &FAIR_KEEP, args, Repeat::Afresh)
}

/// Frees the record whoever holds it. Must not be sent twice.
pub(crate) fn force_unlock_fair(keys: &QueueKeys) -> Request {
    let (record, queue) = (keys.lock.record().clone(), keys.queue.clone());
    let args = vec![Arg::Text(keys.lock.channel().clone())];
    Request::with_keys(&FAIR_FORCE_UNLOCK, vec![record, queue], args, Repeat::Never)
}

fn about(keys: &QueueKeys, script: &'static Script, args: Vec<Arg>, repeat: Repeat) -> Request {
    let keys = vec![keys.lock.record().clone(), keys.queue.clone(), keys.timeouts.clone()];
    Request::with_keys(script, keys, args, repeat)
}
