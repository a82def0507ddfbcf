//! The classic Redis lock, which libraries of many languages use: a string with a random token, set by
//! `SET key token NX PX lease`. A client that deletes or extends the string compares the token first.
//!
//! Other libraries publish no message when they release, so a waiter polls. Clients of this library also notify each other.

use crate::config::options::BackOff;
use crate::holder::Holder;
use crate::kinds::kind::{AcquireArgs, KindTraits, LockKind, OwnedKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Arg, Renewal, Reply, Request, Undecodable};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

static VALUE: KindTraits = KindTraits {
    name: "value lock",
    reentrant: false,
    pipelined: false,
    renewal: Renewal::Value,
    ..KindTraits::REENTRANT
};
/// Polls about as often as other libraries: redis-py's lock polls every 100 ms.
const BACK_OFF: BackOff = BackOff::between(Duration::from_millis(10), Duration::from_millis(80));

/// The value lock. The owner id of a hold is its token.
pub(crate) struct Value(LockKeys);

impl Value {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self(keys)
    }
}

impl LockKind for Value {
    fn traits(&self) -> &'static KindTraits {
        &VALUE
    }

    fn record(&self) -> &Arc<str> {
        self.0.record()
    }

    /// The token is unique to the hold, so a late request of one hold cannot affect another. The token contains the owner, so
    /// that the client recognises a token of its own that was set late.
    fn owner_id(&self, owner: Arc<str>) -> Arc<str> {
        let (client, id) = owner.split_once(':').unwrap_or(("", &owner));
        format!("{client}:{}-{id}", Uuid::new_v4().as_simple()).into()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel().clone())
    }

    fn poll(&self) -> Option<BackOff> {
        Some(BACK_OFF)
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Request {
        script::acquire_value(self.record(), args.owner_id, args.lease_ms)
    }

    fn release(&self, token: &Arc<str>, _: &[Arc<str>]) -> Request {
        script::release_value(self.record(), token, self.0.channel())
    }

    fn hand_off(&self, from: &Arc<str>, to: &Arc<str>, lease: Arg) -> Option<Request> {
        Some(script::hand_off_value(self.record(), from, to, lease, self.0.channel()))
    }

    fn holder_probe(&self) -> Request {
        script::token(self.record())
    }

    fn owned(&self) -> Option<&dyn OwnedKind> {
        Some(self)
    }
}

impl OwnedKind for Value {
    fn force_unlock(&self) -> Request {
        script::force_unlock_value(self.record(), self.0.channel())
    }

    fn inspect(&self) -> Request {
        script::inspect_value(self.record(), self.0.channel())
    }

    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        script::held_by_token(reply)
    }

    fn hold_count(&self, _: &Arc<str>) -> Request {
        script::token(self.record())
    }

    fn counted(&self, token: &str, reply: &Reply) -> Result<u64, Undecodable> {
        Ok(script::held_by_token(reply)?.is_some_and(|holder| holder.owner() == token).into())
    }
}
