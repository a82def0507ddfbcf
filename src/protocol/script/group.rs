//! The requests about values of a group, each of which is locked by itself. Those of an owner have a number, and none takes
//! effect twice, or after a later one. Their answers are the reentrant lock's.

use super::{
    Arg, GROUP_ACQUIRE, GROUP_FORCE_UNLOCK, GROUP_LOOK, GROUP_RELEASE, Repeat, Reply, Request, TimeToLive,
    Undecodable, ttl,
};
use crate::error::Holder;
use crate::protocol::keys::GroupKeys;
use std::sync::Arc;

/// How long the mark of an owner stays behind its last request, in ms. What a dead connection delivers later than that ends
/// with its lease.
const MARK_KEPT: Arg = Arg::Literal("60000");

/// Takes the values.
pub(crate) fn take_values(keys: &GroupKeys, number: u64, owner: &Arc<str>, lease_ms: u64) -> Request {
    let [owner_arg, values] = [owner, &keys.values].map(|text| Arg::Text(text.clone()));
    let args = vec![Arg::Number(number), MARK_KEPT, owner_arg, Arg::Number(lease_ms), values];
    Request::with_keys(&GROUP_ACQUIRE, vec![keys.record.clone(), keys.mark(owner)], args, Repeat::Free)
}

/// Gives the values back. If the request that took them may have come to nothing, its number.
pub(crate) fn give_values(keys: &GroupKeys, number: u64, owner: &Arc<str>, taken_by: Option<u64>) -> Request {
    let [owner_arg, values, channel] =
        [owner, &keys.values, &keys.channel].map(|text| Arg::Text(text.clone()));
    let taken_by = Arg::Number(taken_by.unwrap_or(0));
    let args = vec![Arg::Number(number), MARK_KEPT, owner_arg, taken_by, values, channel];
    Request::with_keys(&GROUP_RELEASE, vec![keys.record.clone(), keys.mark(owner)], args, Repeat::Free)
}

/// Asks who holds one of the values, or whether `owner` holds all.
pub(crate) fn values_holder(keys: &GroupKeys, owner: Option<&str>) -> Request {
    let args = vec![Arg::Text(keys.values.clone()), Arg::Text(owner.unwrap_or_default().into())];
    Request::script(&GROUP_LOOK, &keys.record, args, Repeat::Free)
}

/// Who, how often, and for how many ms.
pub(crate) fn holds_values(reply: &Reply) -> Result<Option<(Holder, TimeToLive)>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    match items.as_slice() {
        [] => Ok(None),
        [Reply::Text(owner), count, ms] => {
            let count = u64::try_from(count.int()?).map_err(|_| Undecodable)?;
            let left = ttl(ms.int()?).map_or(TimeToLive::Never, TimeToLive::Left);
            Ok(Some((Holder::new(String::from_utf8_lossy(owner).into_owned(), count), left)))
        }
        _ => Err(Undecodable),
    }
}

/// Frees the values whoever holds them. Must not be sent twice.
pub(crate) fn force_unlock_values(keys: &GroupKeys) -> Request {
    let args = vec![Arg::Text(keys.values.clone()), Arg::Text(keys.channel.clone())];
    Request::script(&GROUP_FORCE_UNLOCK, &keys.record, args, Repeat::Never)
}
