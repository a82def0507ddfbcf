//! The classic lock of Redis: a string with a random token, as `SET key token NX PX lease` makes it, and as many libraries in
//! many languages have it. Who deletes or extends it compares the token first.
//!
//! Clients of other libraries tell nobody of a release, so who waits looks again and again; those of this one tell each other.

use crate::config::options::BackOff;
use crate::error::Holder;
use crate::kinds::kind::{Ask, KindTraits, LockKind};
use crate::protocol::keys::LockKeys;
use crate::protocol::script::{self, Renewal, Reply, Request, Undecodable};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

static VALUE: KindTraits = KindTraits {
    name: "value lock",
    reentrant: false,
    handed_on: false,
    pipelined: false,
    renewal: Renewal::Value,
    ..KindTraits::REENTRANT
};
/// The others look that often, too: redis-py's lock each 100 ms.
const BACK_OFF: BackOff = BackOff::between(Duration::from_millis(10), Duration::from_millis(80));

/// The kind. The text of a hold is its token.
pub(crate) struct Value(LockKeys);

impl Value {
    pub(crate) fn new(keys: LockKeys) -> Self {
        Self(keys)
    }
}

impl LockKind for Value {
    fn manner(&self) -> &'static KindTraits {
        &VALUE
    }

    fn record(&self) -> &Arc<str> {
        self.0.record()
    }

    /// Of this hold alone: nothing that is done late for one hold can touch another. And it says whose it is, so that one
    /// that was set late is known for what it is.
    fn text(&self, owner: Arc<str>) -> Arc<str> {
        let (client, id) = owner.split_once(':').unwrap_or(("", &owner));
        format!("{client}:{}-{id}", Uuid::new_v4().as_simple()).into()
    }

    fn channel(&self, _: &Arc<str>) -> Option<Arc<str>> {
        Some(self.0.channel().clone())
    }

    fn poll(&self) -> Option<BackOff> {
        Some(BACK_OFF)
    }

    fn acquire(&self, ask: &Ask<'_>) -> Request {
        script::acquire_value(self.record(), ask.text, ask.lease_ms)
    }

    fn release(&self, token: &Arc<str>) -> Request {
        script::release_value(self.record(), token, self.0.channel())
    }

    fn force_unlock(&self) -> Option<Request> {
        Some(script::force_unlock_value(self.record(), self.0.channel()))
    }

    fn holder(&self) -> Request {
        script::token(self.record())
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
