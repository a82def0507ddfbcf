//! The interface between the engine and a kind of lock: the kind's keys, requests and traits.
//!
//! A kind has no loop, does no I/O, and keeps no state of a hold.

use crate::config::options::BackOff;
use crate::error::Error;
use crate::holder::Holder;
use crate::protocol::script::{self, Arg, PassedIds, Renewal, Reply, Request, TimeToLive, Undecodable};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The requests for one record that are sent one after the other: they share a key queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueScope {
    /// All requests that change the record, except those of readers.
    Record,
    /// The requests of one owner as a reader.
    Reader,
    /// The requests of one owner for values of a group.
    GroupOwner,
}

/// A kind of lock, with the keys of one lock.
pub(crate) trait LockKind: Send + Sync + 'static {
    fn traits(&self) -> &'static KindTraits;
    /// The key of the record.
    fn record(&self) -> &Arc<str>;
    /// The part of the record that the lock guards: the values of a group lock. `None` for the whole record.
    fn part(&self) -> Option<Arc<str>> {
        None
    }
    /// The scope of the key queue of an owner id that was found in the record.
    fn scope_of(&self, _owner_id: &str) -> QueueScope {
        self.traits().scope
    }
    /// Maps a client's owner id to the text in the record. Most kinds use it unchanged.
    fn owner_id(&self, owner_id: Arc<str>) -> Arc<str> {
        owner_id
    }
    /// The id of the owner: the owner id without the text that this kind adds to it.
    fn owner<'a>(&self, owner_id: &'a str) -> &'a str {
        owner_id
    }
    /// The channel on which the waiter with this owner id is notified of a release, if there is one.
    fn channel(&self, owner_id: &Arc<str>) -> Option<Arc<str>>;
    /// When to poll a busy lock, for kinds whose holders may release without a message.
    fn poll(&self) -> Option<BackOff> {
        None
    }
    /// Acquires the first hold of an owner.
    fn acquire(&self, args: &AcquireArgs<'_>) -> Request;
    /// Changes the hold count of an owner that keeps its hold. Only for kinds that can be held more than once.
    fn recount(&self, _owner: &Arc<str>, _from: u64, _to: u64, _lease_ms: u64) -> Option<Request> {
        None
    }
    /// Releases the last level of an owner, by its [`release_id`](Self::release_id). `others` are the owner ids of further holds of this
    /// client on the record: the shared holds of the owner, or those of other readers.
    fn release(&self, id: &Arc<str>, others: &[Arc<str>]) -> Request;
    /// The id of a release: the owner id that it names, or a number. It is made when the request is, and a repeat has the same.
    fn release_id(&self, owner_id: &Arc<str>) -> Arc<str> {
        owner_id.clone()
    }
    /// Releases the last level without naming the other holds. The reply may be [`Released::Unnamed`](crate::protocol::script::Released::Unnamed).
    fn release_unnamed(&self, id: &Arc<str>) -> Request {
        self.release(id, &[])
    }
    /// Hands the lock off from one owner to another. Only for kinds with [`KindTraits::hands_off`]. If the kind is queued and the other owner
    /// is not the first in the queue, the lock is released.
    fn hand_off(&self, _from: &Arc<str>, _to: &Arc<str>, _lease: Arg) -> Option<Request> {
        None
    }
    /// The permits of a hold, for a kind that has some. They may pass to a waiter of the same client that wants as many.
    fn permits(&self) -> Option<HeldPermits> {
        None
    }
    /// Passes permits from holds to waiters of the same client that want as many. Only for kinds whose permits have ids.
    fn pass_permits(&self, _passed: &[PassedIds<'_>]) -> Option<Request> {
        None
    }
    /// Removes the waiter with this owner id from the queue in Redis. Only for kinds with [`KindTraits::queued`].
    fn dequeue(&self, _owner_id: &Arc<str>) -> Option<Request> {
        None
    }
    /// Refreshes the scores of these waiters in the queue in Redis. Only for kinds with [`KindTraits::queued`].
    fn refresh(&self, _owner_ids: &[Arc<str>]) -> Option<Request> {
        None
    }
    /// Removes every trace of an acquire under this owner id, whatever its outcome was. The owner id may also belong to another
    /// kind on the same record. `others` are those of [`release`](Self::release).
    fn undo(&self, owner_id: &Arc<str>, others: &[Arc<str>]) -> Request {
        self.release(owner_id, others)
    }
    /// Probes a busy lock: reads the part of the record that shows whether waiters may attempt an acquire.
    fn holder_probe(&self) -> Request {
        script::holder(self.record())
    }
    /// Decodes a reply of [`holder_probe`](Self::holder_probe). A kind whose record does not name its owners must implement this.
    fn probed(&self, reply: &Reply) -> Result<Probed, Undecodable> {
        self.owned().map_or(Err(Undecodable), |kind| kind.held_by(reply).map(Probed::of_holder))
    }
    /// The further interface of a kind whose record names its owners.
    fn owned(&self) -> Option<&dyn OwnedKind> {
        None
    }
    /// Appends the keys that a renewal of the hold needs.
    fn renewed_keys(&self, _owner: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.push(self.record().clone());
    }
}

/// The permits of a hold. In the order, permits with ids come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum HeldPermits {
    /// The record names no holder, so the permits pass without a request.
    Unnamed(u32),
    /// The record has an id for each permit, so they pass by a request ([`LockKind::pass_permits`]).
    WithIds(u32),
}

/// A kind whose record names its owners, so that the holder can be queried.
pub(crate) trait OwnedKind: LockKind {
    /// Frees the lock, whoever holds it.
    fn force_unlock(&self) -> Request;
    /// The kind that its owner can also acquire from a shared hold of its own. Only for the write side of a read/write lock.
    fn upgrade(&self) -> Option<Arc<dyn OwnedKind>> {
        None
    }
    /// The holder, by a reply of [`holder_probe`](LockKind::holder_probe).
    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        script::held_by(reply)
    }
    /// All holders, by a reply of [`holder_probe`](LockKind::holder_probe).
    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        self.held_by(reply).ok().flatten().into_iter().collect()
    }
    /// Reads the holders, the lease and the number of waiters at once.
    fn inspect(&self) -> Request;
    fn inspected(&self, reply: &Reply) -> Result<Inspection, Undecodable> {
        let (probe, left, waiters) = script::inspected(reply)?;
        self.held_by(probe)?;
        Ok(Inspection { holders: self.holders(probe), remaining_lease: left.duration(), waiters })
    }
    /// Reads the hold count of an owner.
    fn hold_count(&self, owner: &Arc<str>) -> Request {
        script::hold_count(self.record(), owner)
    }
    fn counted(&self, _owner: &str, reply: &Reply) -> Result<u64, Undecodable> {
        script::counted(reply)
    }
    /// Reads whether anyone holds the lock.
    fn is_locked(&self) -> Request {
        script::exists(self.record())
    }
    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        script::yes(reply)
    }
    /// Reads how long the lease of the current hold lasts.
    fn time_to_live(&self) -> Request {
        script::time_to_live(self.record())
    }
    fn lives(&self, reply: &Reply) -> Result<TimeToLive, Undecodable> {
        script::lives(reply)
    }
}

/// A lock at one moment, as [`Lock::inspect`](crate::Lock::inspect) saw it.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let now = client.lock("orders:42").inspect().await?;
/// println!("held by {:?}, {:?} waiters", now.holders, now.waiters);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The holders, each with its hold count. There is none if the lock is free.
    ///
    /// Only a read/write lock can have several, writers first. If it has more than a thousand, some may be missing. Of a group lock this
    /// is the holder of the value that is held longest.
    pub holders: Vec<Holder>,
    /// The time until the lease ends unless it is renewed: see [`Lock::remaining_lease`](crate::Lock::remaining_lease).
    pub remaining_lease: Option<Duration>,
    /// The number of waiters, `None` if it is unknown.
    ///
    /// For a fair lock, this is the exact number of waiters in the queue. For other locks, it is the number of clients that listen for the
    /// release: a client with several waiters counts once, and a waiter that does not listen, such as that of a spin lock, does not count.
    /// In a cluster without sharded messages, only clients that listen at the lock's node count.
    pub waiters: Option<u64>,
}

/// The result of [`LockKind::holder_probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probed {
    /// Waiters may attempt an acquire.
    Free,
    /// The lock is busy. The text changes with the holder; kinds without owners have none.
    Busy(Option<String>),
}

impl Probed {
    pub(crate) fn of_holder(holder: Option<Holder>) -> Self {
        holder.map_or(Self::Free, |holder| Self::Busy(Some(holder.owner().to_owned())))
    }
}

impl fmt::Debug for dyn LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.traits().name, self.record())
    }
}

impl dyn LockKind {
    /// Whether a caller may send a request itself (`direct.rs`). Of the kinds with shared holds, only permits need nothing that only the key
    /// actor knows.
    pub(crate) fn has_direct_path(&self) -> bool {
        self.traits().access == Access::Exclusive || self.permits().is_some()
    }

    /// Whether a hold of this kind may be handed to a waiter of `other` in the same key queue.
    pub(crate) fn hands_off_to(&self, other: &dyn LockKind) -> bool {
        self.traits().hands_off_to(other.traits())
    }
}

/// The arguments of an acquire.
pub(crate) struct AcquireArgs<'a> {
    /// The owner id for the record.
    pub owner_id: &'a Arc<str>,
    pub lease_ms: u64,
    pub waiting: Waiting,
    /// The owner id of the counterpart hold (see [`KindTraits::counterpart`]), if the owner has one.
    pub counterpart: Option<Arc<str>>,
}

/// The state of a waiter in the queue in Redis, for kinds that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The acquire does not wait.
    No,
    /// The waiter is not in the queue yet.
    New,
    /// The waiter was queued by an earlier attempt.
    Queued,
}

/// The behaviour of a kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KindTraits {
    /// The name in errors and logs.
    pub name: &'static str,
    /// The scope of the kind's key queues.
    pub scope: QueueScope,
    /// The scope of the key queue of the counterpart hold: the write hold of a reader, the read hold of a writer.
    pub counterpart: Option<QueueScope>,
    /// An owner that holds the lock may acquire it again.
    pub reentrant: bool,
    /// A client hands the lock from one of its waiters to the next, see `release`.
    pub hands_off: bool,
    /// A hand-off may run ahead of the record, see `pipelined`.
    pub pipelined: bool,
    /// Redis keeps the order of the waiters, so each waiter is queued there.
    pub queued: bool,
    /// The holder of a busy lock is probed from time to time: a probe shows whether to attempt an acquire, and costs less than the attempt.
    pub probes_holder: bool,
    pub access: Access,
    /// Each hold has a token, which the replies of an acquire and a hand-off contain.
    pub fenced: bool,
    /// The record counts the levels of a hold. Otherwise its count is always 1, and only the client counts.
    pub counts: bool,
    /// How holds are renewed.
    pub renewal: Renewal,
    /// Other clients may shorten the record's TTL. So fixed leases are renewed, too, and the replies of an acquire and a renewal
    /// contain the time that the record had left.
    pub renews_fixed_leases: bool,
}

/// The waiters that a successful acquire admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// One owner. Its hold is the current one of the key queue, and may have further levels.
    Exclusive,
    /// One waiter, whose hold is one of several shared holds. The engine keeps no order among the holds, and no hold has further
    /// levels. The record may not show which request made a hold, so the waiters take turns, and a request that may have taken effect is
    /// undone by its number.
    Shared,
    /// Every waiter that was queued when the request was sent. Nothing is held or released.
    Gate,
}

impl KindTraits {
    /// Redisson's reentrant lock, from which the others differ.
    pub(crate) const REENTRANT: Self = Self {
        name: "reentrant lock",
        scope: QueueScope::Record,
        counterpart: None,
        reentrant: true,
        hands_off: true,
        pipelined: true,
        queued: false,
        probes_holder: true,
        access: Access::Exclusive,
        fenced: false,
        counts: true,
        renewal: Renewal::Lock,
        renews_fixed_leases: false,
    };

    /// Whether the record may be kept for nobody after a release.
    pub(crate) fn may_be_kept(&self) -> bool {
        self.hands_off && !self.queued
    }

    /// Compares by value, because a constant may have several addresses.
    fn hands_off_to(&self, other: &Self) -> bool {
        self.hands_off && self == other
    }
}

/// The error for an owner that would have to wait for its own hold.
pub(crate) fn would_deadlock(kind: &dyn LockKind) -> Error {
    Error::WouldDeadlock { name: kind.record().to_string(), kind: kind.traits().name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_passes_to_equal_traits_at_any_address() {
        static COPY: KindTraits = KindTraits::REENTRANT;
        static OTHER: KindTraits = KindTraits { name: "other", ..KindTraits::REENTRANT };
        static KEPT: KindTraits = KindTraits { hands_off: false, ..KindTraits::REENTRANT };
        assert!(KindTraits::REENTRANT.hands_off_to(&COPY));
        assert!(!KindTraits::REENTRANT.hands_off_to(&OTHER));
        assert!(!KEPT.hands_off_to(&KEPT));
    }
}
