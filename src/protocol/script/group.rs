//! Requests of the group lock, which locks each value of a group separately. The requests of an owner are numbered; no
//! request takes effect twice, or after a later one. Their replies are decoded as those of the reentrant lock.

use super::{
    Arg, GROUP_ACQUIRE, GROUP_FORCE_UNLOCK, GROUP_LOOK, GROUP_RELEASE, Repeat, Reply, Request, TimeToLive,
    Undecodable, subscriptions, ttl,
};
use crate::holder::Holder;
use crate::protocol::keys::GroupKeys;
use std::sync::Arc;

/// How long the mark of an owner is kept after its last request, in ms. If a dead connection delivers a request later than
/// that, the hold that it acquires ends with its lease.
const MARK_KEPT: Arg = Arg::Literal("60000");

/// Acquires the values.
pub(crate) fn take_values(keys: &GroupKeys, number: u64, owner: &Arc<str>, lease_ms: u64) -> Request {
    let [owner_arg, values] = [owner, &keys.values].map(|text| Arg::Text(text.clone()));
    let args = vec![Arg::Number(number), MARK_KEPT, owner_arg, Arg::Number(lease_ms), values];
    Request::with_keys(
        &GROUP_ACQUIRE,
        vec![keys.record.clone(), keys.last_request(owner)],
        args,
        Repeat::Free,
    )
}

/// Releases the owner's holds on the values but `kept`, one number for each value.
pub(crate) fn release_values(keys: &GroupKeys, number: u64, owner: &Arc<str>, kept: &[usize]) -> Request {
    let [owner_arg, values, channel] =
        [owner, &keys.values, &keys.channel].map(|text| Arg::Text(text.clone()));
    let kept = kept.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    let args = vec![Arg::Number(number), MARK_KEPT, owner_arg, Arg::Text(kept.into()), values, channel];
    Request::with_keys(
        &GROUP_RELEASE,
        vec![keys.record.clone(), keys.last_request(owner)],
        args,
        Repeat::Free,
    )
}

/// Reads the holder of any of the values, or, with `owner`, whether that owner holds all of them.
pub(crate) fn values_holder(keys: &GroupKeys, owner: Option<&str>) -> Request {
    let owner = owner.unwrap_or_default().into();
    let args = vec![Arg::Text(keys.values.clone()), Arg::Text(owner), Arg::Text(keys.channel.clone())];
    Request::script(&GROUP_LOOK, &keys.record, args, Repeat::Free)
}

/// The holder of values of a group with its hold count, and the time that the hold has left.
pub(crate) type ValuesHolder = (Holder, TimeToLive);

/// Reply of [`values_holder`].
pub(crate) fn holds_values(reply: &Reply) -> Result<Option<ValuesHolder>, Undecodable> {
    inspected_values(reply).map(|(holder, _)| holder)
}

/// Reply of [`values_holder`], with the number of waiters, if it is known.
pub(crate) fn inspected_values(reply: &Reply) -> Result<(Option<ValuesHolder>, Option<u64>), Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [waiters, holder @ ..] = items.as_slice() else { return Err(Undecodable) };
    let holder = match holder {
        [] => None,
        [Reply::Text(owner), count, ms] => {
            let count = u64::try_from(count.int()?).map_err(|_| Undecodable)?;
            let left = ttl(ms.int()?).map_or(TimeToLive::Never, TimeToLive::Left);
            Some((Holder::new(String::from_utf8_lossy(owner).into_owned(), count), left))
        }
        _ => return Err(Undecodable),
    };
    Ok((holder, subscriptions(waiters)?))
}

/// Frees the values, whoever holds them. Must not be sent twice.
pub(crate) fn force_unlock_values(keys: &GroupKeys) -> Request {
    let args = vec![Arg::Text(keys.values.clone()), Arg::Text(keys.channel.clone())];
    Request::script(&GROUP_FORCE_UNLOCK, &keys.record, args, Repeat::Never)
}
